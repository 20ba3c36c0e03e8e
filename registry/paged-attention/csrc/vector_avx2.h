// Eight floats in an AVX register, with FMA and F16C.
#pragma once

#include <immintrin.h>

#include "elements.h"

namespace {

struct Vector {
  using Register = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRowTile = 6;
  static constexpr int kRowTail = 2;

  static FA_INLINE Register zero() { return _mm256_setzero_ps(); }
  static FA_INLINE Register set1(float x) { return _mm256_set1_ps(x); }
  static FA_INLINE Register load(const float* p) { return _mm256_loadu_ps(p); }
  static FA_INLINE void store(float* p, Register x) { _mm256_storeu_ps(p, x); }
  static FA_INLINE Register add(Register a, Register b) { return _mm256_add_ps(a, b); }
  static FA_INLINE Register sub(Register a, Register b) { return _mm256_sub_ps(a, b); }
  static FA_INLINE Register mul(Register a, Register b) { return _mm256_mul_ps(a, b); }
  static FA_INLINE Register div(Register a, Register b) { return _mm256_div_ps(a, b); }
  static FA_INLINE Register fma(Register a, Register b, Register c) { return _mm256_fmadd_ps(a, b, c); }
  // The second operand is returned when either is NaN, so a NaN in `b` survives.
  static FA_INLINE Register max(Register a, Register b) { return _mm256_max_ps(a, b); }
  static FA_INLINE Register min(Register a, Register b) { return _mm256_min_ps(a, b); }
  static FA_INLINE Register round(Register x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static FA_INLINE Register abs(Register x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
  static FA_INLINE Register copy_sign(Register magnitude, Register sign) {
    return _mm256_or_ps(magnitude, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
  }
  // Returns what `scale` takes as an exponent, and x minus it in `fraction`, from 0 to 1. Below 2^-149 everything rounds to
  // zero; the bound also turns -inf into a number. A NaN passes.
  static FA_INLINE Register split(Register x, Register* fraction) {
    const Register bounded = max(set1(-160.0f), x);
    const Register exponent = _mm256_round_ps(bounded, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    *fraction = sub(bounded, exponent);
    return exponent;
  }
  // x * 2^n for integral n. Below 2^-126 the result is flushed to zero; n is at most 127 wherever this is used.
  static FA_INLINE Register scale(Register x, Register n) {
    const __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    const __m256 power = _mm256_castsi256_ps(_mm256_add_epi32(shift, _mm256_castps_si256(_mm256_set1_ps(1.0f))));
    const __m256 keep = _mm256_cmp_ps(n, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ);
    return _mm256_mul_ps(x, _mm256_and_ps(power, keep));
  }
  // x where low <= index < high, zero elsewhere.
  static FA_INLINE Register keep_between(Register x, Register index, float low, float high) {
    const __m256 above = _mm256_cmp_ps(index, _mm256_set1_ps(low), _CMP_GE_OQ);
    return _mm256_and_ps(x, _mm256_and_ps(above, _mm256_cmp_ps(index, _mm256_set1_ps(high), _CMP_LT_OQ)));
  }
  static FA_INLINE Register iota() { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }

  static FA_INLINE Register load(const bfloat16* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static FA_INLINE Register load(const float16* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // The first `count` elements, zeros after them; nothing beyond them is read.
  template <class T>
  static FA_INLINE Register load_first(const T* p, int64_t count) {
    T copy[kLanes] = {};
    for (int64_t i = 0; i < count; ++i) copy[i] = p[i];
    return load(copy);
  }
  static FA_INLINE void store(bfloat16* p, Register x) {
    float lanes[kLanes];
    store(lanes, x);
    for (int i = 0; i < kLanes; ++i) from_float(p + i, lanes[i]);
  }
  static FA_INLINE void store(float16* p, Register x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  // Exchanges rows and columns of an 8 x 8 block.
  static FA_INLINE void transpose(Register* rows) {
    Register pairs[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
      pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    Register quads[8];
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        quads[i + 2 * half] = _mm256_shuffle_ps(pairs[i + half], pairs[i + 2 + half], 0x44);
        quads[i + 2 * half + 1] = _mm256_shuffle_ps(pairs[i + half], pairs[i + 2 + half], 0xee);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      rows[i] = _mm256_permute2f128_ps(quads[i], quads[4 + i], 0x20);
      rows[4 + i] = _mm256_permute2f128_ps(quads[i], quads[4 + i], 0x31);
    }
  }
  // Lane i of the result is the sum over all lanes of rows[i]; the rows are overwritten.
  static FA_INLINE Register sum_rows(Register* rows) {
    transpose(rows);
    // A tree, because a chain of additions would wait for each.
#pragma GCC unroll 4
    for (int width = kLanes / 2; width > 0; width /= 2) {
#pragma GCC unroll 4
      for (int i = 0; i < width; ++i) rows[i] = add(rows[i], rows[i + width]);
    }
    return rows[0];
  }
};

}  // namespace
