// Element types as bit patterns, and their scalar conversions.
//
// Included by the instruction-set files only, inside their own namespace, so that no two files share a function.
#pragma once

#include <stdint.h>
#include <string.h>

#define FA_INLINE inline __attribute__((always_inline))

namespace {

struct bfloat16 {
  uint16_t bits;
};

struct float16 {
  uint16_t bits;
};

FA_INLINE uint32_t float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}

FA_INLINE float bits_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

FA_INLINE float to_float(float x) { return x; }

FA_INLINE float to_float(bfloat16 x) { return bits_float(static_cast<uint32_t>(x.bits) << 16); }

// Scaling by 2^112 moves the exponent bias from 15 to 127, subnormals included; infinities and NaN are restored after.
FA_INLINE float to_float(float16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  if (rest >= 0x0f800000u) return bits_float(sign | 0x70000000u | rest);
  return bits_float(sign | float_bits(bits_float(rest) * 0x1p112f));
}

FA_INLINE void from_float(float* out, float x) { *out = x; }

// Round to nearest, ties to even; a NaN keeps a set mantissa bit instead of overflowing into an infinity.
FA_INLINE void from_float(bfloat16* out, float x) {
  const uint32_t bits = float_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    out->bits = static_cast<uint16_t>((bits >> 16) | 0x40u);
    return;
  }
  out->bits = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

FA_INLINE void from_float(float16* out, float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    out->bits = static_cast<uint16_t>(sign | 0x7e00u);
  } else if (magnitude >= 0x477ff000u) {
    out->bits = static_cast<uint16_t>(sign | 0x7c00u);
  } else if (magnitude < 0x38800000u) {
    // The float adder rounds to the subnormal grid when the sum's last place is 2^-24.
    const float shifted = bits_float(magnitude) + 0.5f;
    out->bits = static_cast<uint16_t>(sign | (float_bits(shifted) - 0x3f000000u));
  } else {
    const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
    out->bits = static_cast<uint16_t>(sign | (rounded >> 13));
  }
}

}  // namespace
