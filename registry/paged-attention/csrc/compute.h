// The two ways of multiplying: 32-bit floats, or pairs of bfloat16 with a 32-bit accumulator.
//
// Both see their operands as 32-bit units: one float, or two neighbouring bfloat16 along the contraction. A packed
// operand is a sequence of panels of kPanel columns; a panel holds, for each unit of the contraction, kPanel units.
// The last panel may be half as wide. Rows of the other operand lie kRowStride units apart, a constant, so that the
// micro-kernel addresses all of them from one pointer.
#pragma once

#include "kernel_interface.h"

namespace {

using namespace flash_attn;

constexpr int64_t kPanelVectors = 2;
constexpr int64_t kPanel = kPanelVectors * Vector::kLanes;

FA_INLINE int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
FA_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
FA_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

struct FloatCompute {
  using Element = float;
  using Unit = float;
  static constexpr int64_t kDepth = 1;  // Elements of the contraction in a unit.
  // 32 units more than a block, so that rows do not fall on the same cache sets.
  static constexpr int64_t kRowStride = kKeyBlock + 32;

  static FA_INLINE Vector::Register broadcast(const Unit* a) { return Vector::set1(*a); }
  static FA_INLINE Vector::Register multiply_add(Vector::Register sum, Vector::Register a, const Unit* b) {
    return Vector::fma(a, Vector::load(b), sum);
  }
  static FA_INLINE Vector::Register column(const Unit* b) { return Vector::load(b); }
  static FA_INLINE Vector::Register multiply_add(Vector::Register sum, Vector::Register a, Vector::Register b) {
    return Vector::fma(a, b, sum);
  }
};

#ifdef FA_BFLOAT16_PAIRS
struct PairCompute {
  using Element = bfloat16;
  using Unit = uint32_t;
  static constexpr int64_t kDepth = 2;
  static constexpr int64_t kRowStride = kKeyBlock / 2 + 16;

  static FA_INLINE __m512 broadcast(const Unit* a) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(*a)));
  }
  static FA_INLINE __m512 column(const Unit* b) { return _mm512_loadu_ps(reinterpret_cast<const float*>(b)); }
  static FA_INLINE __m512 multiply_add(__m512 sum, __m512 a, __m512 b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
  }
};
#endif

// c[rows][columns] = scale[row] * c + a * panel over `units` units; with scale null the old c is not read. The new sum
// starts at zero and meets the old one at the end: rounding errors are then those of the shorter sum.
template <class Compute, int kRows, int kVectors>
FA_INLINE void multiply_panel(const typename Compute::Unit* a, const typename Compute::Unit* panel, int64_t units, float* c,
                              int64_t c_stride, const float* scale) {
  using Register = Vector::Register;
  Register sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) sums[r][n] = Vector::zero();
  }
  for (int64_t unit = 0; unit < units; ++unit) {
    Register columns[kVectors];
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) columns[n] = Compute::column(panel + n * Vector::kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Register value = Compute::broadcast(a + r * Compute::kRowStride);
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) sums[r][n] = Compute::multiply_add(sums[r][n], value, columns[n]);
    }
    panel += kVectors * Vector::kLanes;
    ++a;
  }
  if (scale != nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const Register factor = Vector::set1(scale[r]);
#pragma GCC unroll 4
      for (int n = 0; n < kVectors; ++n) {
        sums[r][n] = Vector::fma(factor, Vector::load(c + r * c_stride + n * Vector::kLanes), sums[r][n]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < kVectors; ++n) Vector::store(c + r * c_stride + n * Vector::kLanes, sums[r][n]);
  }
}

// The same over `columns` columns, a multiple of the vector width, of an operand whose panels hold `panel_units` units.
template <class Compute, int kRows>
__attribute__((noinline)) void multiply(const typename Compute::Unit* a, const typename Compute::Unit* panels,
                                        int64_t panel_units, int64_t first_unit, int64_t units, int64_t columns, float* c,
                                        int64_t c_stride, const float* scale) {
  int64_t column = 0;
  for (; column + kPanel <= columns; column += kPanel) {
    const typename Compute::Unit* panel = panels + column * panel_units + first_unit * kPanel;
    multiply_panel<Compute, kRows, kPanelVectors>(a, panel, units, c + column, c_stride, scale);
  }
  if (column < columns) {
    const typename Compute::Unit* panel = panels + column * panel_units + first_unit * Vector::kLanes;
    multiply_panel<Compute, kRows, 1>(a, panel, units, c + column, c_stride, scale);
  }
}

// Calls multiply<rows>, whose row counts are the full tile and multiples of the tail.
template <class Compute>
FA_INLINE void multiply_rows(int64_t rows, const typename Compute::Unit* a, const typename Compute::Unit* panels,
                             int64_t panel_units, int64_t first_unit, int64_t units, int64_t columns, float* c,
                             int64_t c_stride, const float* scale) {
  static_assert(Vector::kRowTile == 3 * Vector::kRowTail, "the switch below knows three row counts");
  if (rows == Vector::kRowTile) {
    multiply<Compute, Vector::kRowTile>(a, panels, panel_units, first_unit, units, columns, c, c_stride, scale);
  } else if (rows == 2 * Vector::kRowTail) {
    multiply<Compute, 2 * Vector::kRowTail>(a, panels, panel_units, first_unit, units, columns, c, c_stride, scale);
  } else {
    multiply<Compute, Vector::kRowTail>(a, panels, panel_units, first_unit, units, columns, c, c_stride, scale);
  }
}

// 2^x. The polynomial is a minimax fit of relative error on [0, 1] (computed for this file by Remez exchange): degree 6 is
// within 1.9e-9, degree 4 within 2.6e-6, which is far below what a bfloat16 probability keeps.
template <int kDegree>
FA_INLINE Vector::Register exp2_vector(Vector::Register x) {
  Vector::Register f;
  const Vector::Register n = Vector::split(x, &f);
  Vector::Register p;
  if (kDegree == 4) {
    p = Vector::set1(0.013534167781472206f);
    p = Vector::fma(p, f, Vector::set1(0.052011460065841675f));
    p = Vector::fma(p, f, Vector::set1(0.2414427548646927f));
    p = Vector::fma(p, f, Vector::set1(0.6930038332939148f));
    p = Vector::fma(p, f, Vector::set1(1.0000026226043701f));
  } else {
    p = Vector::set1(0.00021702254889532924f);
    p = Vector::fma(p, f, Vector::set1(0.001243968727067113f));
    p = Vector::fma(p, f, Vector::set1(0.009678840637207031f));
    p = Vector::fma(p, f, Vector::set1(0.055483341217041016f));
    p = Vector::fma(p, f, Vector::set1(0.24022983014583588f));
    p = Vector::fma(p, f, Vector::set1(0.6931470036506653f));
    p = Vector::fma(p, f, Vector::set1(1.0f));
  }
  return Vector::scale(p, n);
}

// Natural logarithm of a positive, normal float: x = 2^e * m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh((m-1)/(m+1)).
FA_INLINE float log_scalar(float x) {
  const uint32_t bits = float_bits(x);
  int32_t exponent = static_cast<int32_t>(bits >> 23) - 127;
  float mantissa = bits_float((bits & 0x007fffffu) | 0x3f800000u);
  if (mantissa > 1.41421356f) {
    mantissa *= 0.5f;
    ++exponent;
  }
  const double t = (static_cast<double>(mantissa) - 1.0) / (static_cast<double>(mantissa) + 1.0);
  const double t2 = t * t;
  const double series = t * (2.0 + t2 * (2.0 / 3 + t2 * (2.0 / 5 + t2 * (2.0 / 7 + t2 * (2.0 / 9 + t2 * (2.0 / 11))))));
  return static_cast<float>(exponent * 0.69314718055994531 + series);
}

// tanh through expm1, so that small arguments keep their relative accuracy: tanh(y) = e / (e + 2), e = expm1(2y).
FA_INLINE Vector::Register tanh_vector(Vector::Register y) {
  // tanh(10) is 1 to the last place of a float. `min` returns its second operand when that is NaN.
  const Vector::Register magnitude = Vector::min(Vector::set1(10.0f), Vector::abs(y));
  const Vector::Register z = Vector::add(magnitude, magnitude);
  const Vector::Register n = Vector::round(Vector::mul(z, Vector::set1(1.44269504f)));
  Vector::Register r = Vector::fma(n, Vector::set1(-0.693145752f), z);
  r = Vector::fma(n, Vector::set1(-1.42860677e-6f), r);
  Vector::Register e = Vector::set1(1.0f / 5040);
  e = Vector::fma(e, r, Vector::set1(1.0f / 720));
  e = Vector::fma(e, r, Vector::set1(1.0f / 120));
  e = Vector::fma(e, r, Vector::set1(1.0f / 24));
  e = Vector::fma(e, r, Vector::set1(1.0f / 6));
  e = Vector::fma(e, r, Vector::set1(0.5f));
  e = Vector::fma(Vector::mul(e, r), r, r);
  const Vector::Register power = Vector::scale(Vector::set1(1.0f), n);
  e = Vector::fma(e, power, Vector::sub(power, Vector::set1(1.0f)));
  return Vector::copy_sign(Vector::div(e, Vector::add(e, Vector::set1(2.0f))), y);
}

}  // namespace
