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

template <class T>
FA_INLINE void pack_keys(FloatCompute, const PackBlock& block) {
  const T* source = static_cast<const T*>(block.k);
  float* panel = static_cast<float*>(block.k_packed);
  for (int64_t first = 0; first < block.keys; first += kPanel) {
    const int64_t keys = smaller(kPanel, block.keys - first);
    for (int64_t d = 0; d < block.head_dim; ++d) {
      for (int64_t key = 0; key < keys; ++key) {
        panel[d * kPanel + key] = to_float(source[(first + key) * block.k_row_stride + d]);
      }
      for (int64_t key = keys; key < kPanel; ++key) panel[d * kPanel + key] = 0.0f;
    }
    panel += kPanel * block.head_dim;
  }
}

template <class T>
FA_INLINE void pack_values(FloatCompute, const PackBlock& block) {
  const T* source = static_cast<const T*>(block.v);
  float* panels = static_cast<float*>(block.v_packed);
  const int64_t columns = Layout<FloatCompute>::columns(block.head_dim);
  const int64_t padded = round_up(block.keys, kPanel);
  for (int64_t column = 0; column < columns; column += kPanel) {
    const int64_t width = smaller(kPanel, columns - column);
    const int64_t real = smaller(width, block.head_dim - column);
    float* panel = panels + column * Layout<FloatCompute>::kValueUnits;
    for (int64_t key = 0; key < block.keys; ++key) {
      const T* row = source + key * block.v_row_stride + column;
      int64_t n = 0;
      for (; n + Vector::kLanes <= real; n += Vector::kLanes) Vector::store(panel + key * width + n, Vector::load(row + n));
      for (; n < real; ++n) panel[key * width + n] = to_float(row[n]);
      for (; n < width; ++n) panel[key * width + n] = 0.0f;
    }
    for (int64_t n = block.keys * width; n < padded * width; ++n) panel[n] = 0.0f;
  }
}

#ifdef FA_BFLOAT16_PAIRS
template <class T>
FA_INLINE void pack_keys(PairCompute, const PackBlock& block) {
  const bfloat16* source = static_cast<const bfloat16*>(block.k);
  uint32_t* panel = static_cast<uint32_t*>(block.k_packed);
  const int64_t units = Layout<PairCompute>::key_units(block.head_dim);
  for (int64_t first = 0; first < block.keys; first += kPanel) {
    const int64_t keys = smaller(kPanel, block.keys - first);
    for (int64_t unit = 0; unit < units; ++unit) {
      const bool pair = 2 * unit + 1 < block.head_dim;
      for (int64_t key = 0; key < keys; ++key) {
        const bfloat16* element = source + (first + key) * block.k_row_stride + 2 * unit;
        const uint32_t high = pair ? element[1].bits : 0u;
        panel[unit * kPanel + key] = element[0].bits | (high << 16);
      }
      for (int64_t key = keys; key < kPanel; ++key) panel[unit * kPanel + key] = 0;
    }
    panel += kPanel * units;
  }
}

template <class T>
FA_INLINE void pack_values(PairCompute, const PackBlock& block) {
  const bfloat16* source = static_cast<const bfloat16*>(block.v);
  uint32_t* panels = static_cast<uint32_t*>(block.v_packed);
  const int64_t columns = Layout<PairCompute>::columns(block.head_dim);
  const int64_t padded = round_up(block.keys, kPanel) / 2;
  const int64_t units = (block.keys + 1) / 2;
  for (int64_t column = 0; column < columns; column += kPanel) {
    const int64_t width = smaller(kPanel, columns - column);
    const int64_t real = smaller(width, block.head_dim - column);
    uint32_t* panel = panels + column * Layout<PairCompute>::kValueUnits;
    for (int64_t unit = 0; unit < units; ++unit) {
      const bfloat16* low = source + 2 * unit * block.v_row_stride + column;
      const bfloat16* high = 2 * unit + 1 < block.keys ? low + block.v_row_stride : nullptr;
      for (int64_t n = 0; n < real; ++n) {
        const uint32_t upper = high == nullptr ? 0u : high[n].bits;
        panel[unit * width + n] = low[n].bits | (upper << 16);
      }
      for (int64_t n = real; n < width; ++n) panel[unit * width + n] = 0;
    }
    for (int64_t n = units * width; n < padded * width; ++n) panel[n] = 0;
  }
}
#endif

template <class Compute, class T>
void pack_block(const PackBlock* block) {
  pack_keys<T>(Compute{}, *block);
  pack_values<T>(Compute{}, *block);
}

}  // namespace
