// Sixteen floats in an AVX-512 register (F, BW, DQ, VL).
#pragma once

#include <immintrin.h>

#include "elements.h"

namespace {

struct Vector {
  using Register = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kRowTile = 12;
  static constexpr int kRowTail = 4;

  static FA_INLINE Register zero() { return _mm512_setzero_ps(); }
  static FA_INLINE Register set1(float x) { return _mm512_set1_ps(x); }
  static FA_INLINE Register load(const float* p) { return _mm512_loadu_ps(p); }
  static FA_INLINE void store(float* p, Register x) { _mm512_storeu_ps(p, x); }
  static FA_INLINE Register add(Register a, Register b) { return _mm512_add_ps(a, b); }
  static FA_INLINE Register sub(Register a, Register b) { return _mm512_sub_ps(a, b); }
  static FA_INLINE Register mul(Register a, Register b) { return _mm512_mul_ps(a, b); }
  static FA_INLINE Register div(Register a, Register b) { return _mm512_div_ps(a, b); }
  static FA_INLINE Register fma(Register a, Register b, Register c) { return _mm512_fmadd_ps(a, b, c); }
  // The second operand is returned when either is NaN, so a NaN in `b` survives.
  static FA_INLINE Register max(Register a, Register b) { return _mm512_max_ps(a, b); }
  static FA_INLINE Register min(Register a, Register b) { return _mm512_min_ps(a, b); }
  static FA_INLINE Register round(Register x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static FA_INLINE Register abs(Register x) { return _mm512_abs_ps(x); }
  static FA_INLINE Register copy_sign(Register magnitude, Register sign) {
    return _mm512_or_ps(magnitude, _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
  }
  // Returns what `scale` takes as an exponent, and x minus it in `fraction`, from 0 to 1. `scale` rounds down by itself. An
  // infinity has the fraction 0.
  static FA_INLINE Register split(Register x, Register* fraction) {
    *fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    return x;
  }
  // x * 2^floor(n).
  static FA_INLINE Register scale(Register x, Register n) { return _mm512_scalef_ps(x, n); }
  // x where low <= index < high, zero elsewhere.
  static FA_INLINE Register keep_between(Register x, Register index, float low, float high) {
    const __mmask16 above = _mm512_cmp_ps_mask(index, _mm512_set1_ps(low), _CMP_GE_OQ);
    return _mm512_maskz_mov_ps(_mm512_mask_cmp_ps_mask(above, index, _mm512_set1_ps(high), _CMP_LT_OQ), x);
  }
  static FA_INLINE Register iota() {
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }

  static FA_INLINE Register load(const bfloat16* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static FA_INLINE Register load(const float16* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  // The first `count` elements, zeros after them; nothing beyond them is read.
  static FA_INLINE Register load_first(const float* p, int64_t count) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
  }
  template <class T>
  static FA_INLINE Register load_first(const T* p, int64_t count) {
    alignas(32) T copy[kLanes];
    _mm256_store_si256(reinterpret_cast<__m256i*>(copy),
                       _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1), p));
    return load(copy);
  }
  static FA_INLINE void store(bfloat16* p, Register x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_epi32(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    rounded = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(0x7fc0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
  }
  static FA_INLINE void store(float16* p, Register x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Exchanges rows and columns of a 16 x 16 block: pairs within 128-bit lanes, then quadruples, then the lanes themselves.
  static FA_INLINE void transpose(Register* rows) {
    Register pairs[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      pairs[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
      pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    Register quads[16];
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m512d top = _mm512_castps_pd(pairs[i + half]);
        const __m512d bottom = _mm512_castps_pd(pairs[i + 2 + half]);
        quads[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(top, bottom));
        quads[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(top, bottom));
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Register low01 = _mm512_shuffle_f32x4(quads[i], quads[4 + i], 0x88);
      const Register high01 = _mm512_shuffle_f32x4(quads[i], quads[4 + i], 0xdd);
      const Register low23 = _mm512_shuffle_f32x4(quads[8 + i], quads[12 + i], 0x88);
      const Register high23 = _mm512_shuffle_f32x4(quads[8 + i], quads[12 + i], 0xdd);
      rows[i] = _mm512_shuffle_f32x4(low01, low23, 0x88);
      rows[8 + i] = _mm512_shuffle_f32x4(low01, low23, 0xdd);
      rows[4 + i] = _mm512_shuffle_f32x4(high01, high23, 0x88);
      rows[12 + i] = _mm512_shuffle_f32x4(high01, high23, 0xdd);
    }
  }
  // Lane i of the result is the sum over all lanes of rows[i]: each step adds two halves while it joins two vectors, which
  // takes half of the shuffles that a transposition takes.
  static FA_INLINE Register sum_rows(const Register* rows) {
    Register quads[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const Register* four = rows + 4 * i;
      const Register low = add(_mm512_unpacklo_ps(four[0], four[1]), _mm512_unpackhi_ps(four[0], four[1]));
      const Register high = add(_mm512_unpacklo_ps(four[2], four[3]), _mm512_unpackhi_ps(four[2], four[3]));
      const __m512d a = _mm512_castps_pd(low);
      const __m512d b = _mm512_castps_pd(high);
      quads[i] = add(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    Register halves[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      halves[i] = add(_mm512_shuffle_f32x4(quads[2 * i], quads[2 * i + 1], 0x88),
                      _mm512_shuffle_f32x4(quads[2 * i], quads[2 * i + 1], 0xdd));
    }
    return add(_mm512_shuffle_f32x4(halves[0], halves[1], 0x88), _mm512_shuffle_f32x4(halves[0], halves[1], 0xdd));
  }
};

}  // namespace
