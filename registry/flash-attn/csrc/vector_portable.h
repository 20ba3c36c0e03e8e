// Four floats in the compiler's own vector type: SSE2 on x86-64, NEON on aarch64, whatever exists elsewhere.
#pragma once

#include "elements.h"

namespace {

struct Vector {
  typedef float Register __attribute__((vector_size(16)));
  typedef int32_t Integers __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  // Twelve accumulators, two columns and one broadcast fit the 16 registers of SSE2; NEON has 32.
  static constexpr int kRowTile = 6;
  static constexpr int kRowTail = 2;

  static FA_INLINE Register zero() { return Register{0, 0, 0, 0}; }
  static FA_INLINE Register set1(float x) { return Register{x, x, x, x}; }
  static FA_INLINE Register load(const float* p) {
    Register x;
    memcpy(&x, p, 16);
    return x;
  }
  static FA_INLINE void store(float* p, Register x) { memcpy(p, &x, 16); }
  static FA_INLINE Register add(Register a, Register b) { return a + b; }
  static FA_INLINE Register sub(Register a, Register b) { return a - b; }
  static FA_INLINE Register mul(Register a, Register b) { return a * b; }
  static FA_INLINE Register div(Register a, Register b) { return a / b; }
  static FA_INLINE Register fma(Register a, Register b, Register c) { return a * b + c; }
  static FA_INLINE Register select(Integers mask, Register a, Register b) {
    return reinterpret_cast<Register>((mask & reinterpret_cast<Integers>(a)) | (~mask & reinterpret_cast<Integers>(b)));
  }
  // The second operand is returned when either is NaN, so a NaN in `b` survives.
  static FA_INLINE Register max(Register a, Register b) { return select(a > b, a, b); }
  static FA_INLINE Register min(Register a, Register b) { return select(a < b, a, b); }
  // Adding 1.5 * 2^23 leaves no fraction bits; exact to the nearest integer for |x| < 2^22, which every caller keeps to.
  static FA_INLINE Register round(Register x) {
    volatile float magic_source = 12582912.0f;
    const Register magic = set1(magic_source);
    return (x + magic) - magic;
  }
  static FA_INLINE Register abs(Register x) {
    return reinterpret_cast<Register>(reinterpret_cast<Integers>(x) & 0x7fffffff);
  }
  static FA_INLINE Register copy_sign(Register magnitude, Register sign) {
    const Integers bit = reinterpret_cast<Integers>(set1(-0.0f));
    return reinterpret_cast<Register>(reinterpret_cast<Integers>(magnitude) | (reinterpret_cast<Integers>(sign) & bit));
  }
  // Returns what `scale` takes as an exponent, and x minus it in `fraction`, from 0 to 1. Below 2^-149 everything rounds to
  // zero; the bound also turns -inf into a number. A NaN passes.
  static FA_INLINE Register split(Register x, Register* fraction) {
    const Register bounded = max(set1(-160.0f), x);
    const Register nearest = round(bounded);
    const Register exponent = select(nearest > bounded, nearest - set1(1.0f), nearest);
    *fraction = sub(bounded, exponent);
    return exponent;
  }
  // x * 2^n for integral n. Below 2^-126 the result is flushed to zero; n is at most 127 wherever this is used.
  static FA_INLINE Register scale(Register x, Register n) {
    const Register bounded = max(set1(-127.0f), n);
    const Integers exponent = __builtin_convertvector(bounded, Integers) + 127;
    return x * reinterpret_cast<Register>(exponent << 23);
  }
  // x where low <= index < high, zero elsewhere.
  static FA_INLINE Register keep_between(Register x, Register index, float low, float high) {
    return select((index >= set1(low)) & (index < set1(high)), x, zero());
  }
  static FA_INLINE Register iota() { return Register{0, 1, 2, 3}; }

  template <class T>
  static FA_INLINE Register load(const T* p) {
    return Register{to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
  }
  // The first `count` elements, zeros after them; nothing beyond them is read.
  template <class T>
  static FA_INLINE Register load_first(const T* p, int64_t count) {
    T copy[kLanes] = {};
    for (int64_t i = 0; i < count; ++i) copy[i] = p[i];
    return load(copy);
  }
  template <class T>
  static FA_INLINE void store(T* p, Register x) {
    for (int i = 0; i < kLanes; ++i) from_float(p + i, x[i]);
  }
  static FA_INLINE void transpose(Register* rows) {
    const Register a = rows[0], b = rows[1], c = rows[2], d = rows[3];
    for (int i = 0; i < 4; ++i) rows[i] = Register{a[i], b[i], c[i], d[i]};
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
