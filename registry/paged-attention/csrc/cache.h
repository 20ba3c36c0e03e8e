// Moving keys and values into and within a paged cache, and merging two partial results of attention.
#pragma once

#include <cstdint>

#include "kernel_interface.h"

namespace paged_attention {

// One tensor of keys or values of new tokens, and the cache it goes to. Strides are in bytes.
struct Rows {
  const char* rows;
  int64_t row_stride, head_stride;
  char* cache;
  int64_t page_stride, token_stride, cache_head_stride;
  int64_t head_bytes;
};

// Copies row i of every head to slot slots[i] (page slots[i] / page_size, token slots[i] % page_size); negative slots are
// skipped, and of two rows with one slot the later stays.
void write_rows(const Rows* tensors, int64_t count, int64_t heads, const int64_t* slots, int64_t tokens, int64_t page_size);

// Copies pages: pairs[2 * i] onto pairs[2 * i + 1]. No destination may be another pair's source or destination.
void copy_pages(char* cache, int64_t page_stride_bytes, int64_t page_bytes, const int64_t* pairs, int64_t count);

// Two partial results of `rows` rows of `head_dim` elements each.
struct Merge {
  flash_attn::ElementType type;
  const void* first;
  const float* first_lse;
  const void* second;
  const float* second_lse;
  void* out;
  float* lse;
  int64_t rows;
  int64_t head_dim;
};

void merge(const Merge& merge);

}  // namespace paged_attention
