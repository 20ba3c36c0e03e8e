// Lays out blocks of keys and values for the micro-kernels of compute.h.
//
// Keys: panels of kPanel keys, contraction over the head dimension. Values: panels of kPanel head-dimension columns,
// contraction over the keys of the block. Everything beyond the real keys and columns is zero.
#pragma once

#include "compute.h"

namespace {

template <class Compute>
struct Layout {
  // Units of the contraction over the head dimension.
  static FA_INLINE int64_t key_units(int64_t head_dim) { return round_up(head_dim, Compute::kDepth) / Compute::kDepth; }
  static constexpr int64_t kValueUnits = kKeyBlock / Compute::kDepth;
  static FA_INLINE int64_t columns(int64_t head_dim) { return round_up(head_dim, Vector::kLanes); }

  static int64_t k_block_bytes(int64_t head_dim) {
    return round_up(kKeyBlock * key_units(head_dim) * static_cast<int64_t>(sizeof(typename Compute::Unit)), 64);
  }
  static int64_t v_block_bytes(int64_t head_dim) {
    return round_up(kValueUnits * columns(head_dim) * static_cast<int64_t>(sizeof(typename Compute::Unit)), 64);
  }
};

// How a key's row is read: `unit(row, index)` is one unit, `vector(row, index)` kLanes of them.
template <class Compute, class T>
struct KeyReader {
  static FA_INLINE Vector::Register vector(const T* row, int64_t unit) { return Vector::load(row + unit); }
  static FA_INLINE float unit(const T* row, int64_t unit, int64_t) { return to_float(row[unit]); }
};

#ifdef FA_BFLOAT16_PAIRS
template <class T>
struct KeyReader<PairCompute, T> {
  static FA_INLINE Vector::Register vector(const T* row, int64_t unit) {
    return Vector::load(reinterpret_cast<const float*>(row + 2 * unit));
  }
  static FA_INLINE uint32_t unit(const T* row, int64_t unit, int64_t head_dim) {
    const uint32_t high = 2 * unit + 1 < head_dim ? row[2 * unit + 1].bits : 0u;
    return row[2 * unit].bits | (high << 16);
  }
};
#endif

// The rows of a head are short and far apart, which no hardware prefetcher follows.
constexpr int64_t kRowsAhead = 32;

FA_INLINE void ask_for_row(const void* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(static_cast<const char*>(row) + at);
}

FA_INLINE int64_t last_key(const PackBlock& block) { return smaller(block.keys, block.first + block.count); }

// Asks for what will be read in place of row `key` later.
FA_INLINE void ask_for_next(const PackBlock& block, const void* const* rows, int64_t next_bytes, int64_t key, int64_t offset,
                            int64_t bytes) {
  const void* row = next_bytes != 0 ? rows[key] : rows[smaller(key + kRowsAhead, last_key(block) - 1)];
  ask_for_row(static_cast<const char*>(row) + next_bytes + offset, bytes);
}

template <class Compute, class T>
FA_INLINE void pack_keys(const PackBlock& block) {
  using Reader = KeyReader<Compute, T>;
  using Unit = typename Compute::Unit;
  const int64_t units = Layout<Compute>::key_units(block.head_dim);
  Unit* panel = static_cast<Unit*>(block.k_packed) + block.first * units;
  const int64_t whole_units = block.head_dim / Compute::kDepth / Vector::kLanes * Vector::kLanes;
  for (int64_t first = block.first; first < last_key(block); first += kPanel) {
    for (int64_t half = 0; half < kPanel; half += Vector::kLanes) {
      const T* const* rows = reinterpret_cast<const T* const*>(block.k_rows) + first + half;
      const int64_t keys = larger(0, smaller(Vector::kLanes, block.keys - first - half));
      for (int64_t key = 0; key < keys; ++key) {
        ask_for_next(block, block.k_rows, block.k_next_bytes, first + half + key, 0, block.head_dim * static_cast<int64_t>(sizeof(T)));
      }
      for (int64_t unit = 0; unit < whole_units; unit += Vector::kLanes) {
        Vector::Register tile[Vector::kLanes];
        if (keys == Vector::kLanes) {
#pragma GCC unroll 16
          for (int key = 0; key < Vector::kLanes; ++key) tile[key] = Reader::vector(rows[key], unit);
        } else {
          for (int64_t key = 0; key < Vector::kLanes; ++key) {
            tile[key] = key < keys ? Reader::vector(rows[key], unit) : Vector::zero();
          }
        }
        Vector::transpose(tile);
#pragma GCC unroll 16
        for (int i = 0; i < Vector::kLanes; ++i) {
          Vector::store(reinterpret_cast<float*>(panel + (unit + i) * kPanel + half), tile[i]);
        }
      }
      for (int64_t unit = whole_units; unit < units; ++unit) {
        for (int64_t key = 0; key < Vector::kLanes; ++key) {
          panel[unit * kPanel + half + key] =
              key < keys ? Reader::unit(rows[key], unit, block.head_dim) : Unit{0};
        }
      }
    }
    panel += kPanel * units;
  }
}

template <class T>
FA_INLINE void pack_values(FloatCompute, const PackBlock& block) {
  const T* const* rows = reinterpret_cast<const T* const*>(block.v_rows);
  constexpr int64_t size = sizeof(T);
  float* panels = static_cast<float*>(block.v_packed);
  const int64_t columns = Layout<FloatCompute>::columns(block.head_dim);
  const int64_t last = last_key(block);
  const int64_t padded = round_up(last, kPanel);
  for (int64_t column = 0; column < columns; column += kPanel) {
    const int64_t width = smaller(kPanel, columns - column);
    const int64_t real = smaller(width, block.head_dim - column);
    float* panel = panels + column * Layout<FloatCompute>::kValueUnits;
    for (int64_t key = block.first; key < last; ++key) {
      ask_for_next(block, block.v_rows, block.v_next_bytes, key, column * size, width * size);
      const T* row = rows[key] + column;
      int64_t n = 0;
      for (; n + Vector::kLanes <= real; n += Vector::kLanes) Vector::store(panel + key * width + n, Vector::load(row + n));
      for (; n < real; ++n) panel[key * width + n] = to_float(row[n]);
      for (; n < width; ++n) panel[key * width + n] = 0.0f;
    }
    for (int64_t n = last * width; n < padded * width; ++n) panel[n] = 0.0f;
  }
}

#ifdef FA_BFLOAT16_PAIRS
template <class T>
FA_INLINE void pack_values(PairCompute, const PackBlock& block) {
  const bfloat16* const* rows = reinterpret_cast<const bfloat16* const*>(block.v_rows);
  uint32_t* panels = static_cast<uint32_t*>(block.v_packed);
  const int64_t columns = Layout<PairCompute>::columns(block.head_dim);
  const int64_t padded = round_up(last_key(block), kPanel) / 2;
  const int64_t units = (last_key(block) + 1) / 2;
  for (int64_t column = 0; column < columns; column += kPanel) {
    const int64_t width = smaller(kPanel, columns - column);
    const int64_t real = smaller(width, block.head_dim - column);
    uint32_t* panel = panels + column * Layout<PairCompute>::kValueUnits;
    for (int64_t unit = block.first / 2; unit < units; ++unit) {
      ask_for_next(block, block.v_rows, block.v_next_bytes, 2 * unit, column * 2, width * 2);
      if (2 * unit + 1 < block.keys) ask_for_next(block, block.v_rows, block.v_next_bytes, 2 * unit + 1, column * 2, width * 2);
      const bfloat16* low = rows[2 * unit] + column;
      const bfloat16* high = 2 * unit + 1 < block.keys ? rows[2 * unit + 1] + column : nullptr;
      int64_t n = 0;
      for (; n + 16 <= real; n += 16) {
        const __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low + n)));
        const __m256i odd =
            high == nullptr ? _mm256_setzero_si256() : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high + n));
        const __m512i upper = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
        _mm512_storeu_si512(panel + unit * width + n, _mm512_or_si512(even, upper));
      }
      for (; n < real; ++n) {
        const uint32_t upper = high == nullptr ? 0u : high[n].bits;
        panel[unit * width + n] = low[n].bits | (upper << 16);
      }
      for (; n < width; ++n) panel[unit * width + n] = 0;
    }
    for (int64_t n = units * width; n < padded * width; ++n) panel[n] = 0;
  }
}
#endif

template <class Compute, class T>
void pack_block(const PackBlock* block) {
  FA_TIMED_TASK();
  FA_TIMED(kPacking);
  pack_keys<Compute, T>(*block);
  pack_values<T>(Compute{}, *block);
}

}  // namespace
