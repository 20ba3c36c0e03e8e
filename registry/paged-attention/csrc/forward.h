// Attention over a batch of sequences on the CPU: the split into tasks, not the arithmetic (forward_rows.h).
#pragma once

#include <cstdint>
#include <vector>

#include "kernel_interface.h"

namespace flash_attn {

// One sequence of the batch. Offsets are in elements from the base pointers of Forward.
struct Sequence {
  int64_t q_offset;
  int64_t out_offset;
  int64_t lse_offset;
  int64_t q_len;
  int64_t k_len;
  // Key j is row k_begin + j of a list of rows. Without pages the list is one run of memory; with them its row r is row
  // r % page_size of page pages[r / page_size].
  int64_t k_begin;
  const int32_t* pages;
  int64_t k_offset;
  int64_t v_offset;
  const float* slopes;  // One per query head, or null.
};

struct Forward {
  ElementType type;
  const void* q;
  const void* k;
  const void* v;
  void* out;
  float* lse;
  int64_t q_row_stride, q_head_stride;
  int64_t k_row_stride, k_head_stride;
  int64_t v_row_stride, v_head_stride;
  int64_t out_row_stride, out_head_stride;
  int64_t lse_row_stride, lse_head_stride;
  int64_t page_size, k_page_stride, v_page_stride;
  int64_t q_heads;
  int64_t k_heads;
  int64_t head_dim;
  float softmax_scale;
  float softcap;
  const float* sinks;  // One per query head, or null.
  Mask mask;
  std::vector<Sequence> sequences;
};

void run_forward(const Forward& forward);

}  // namespace flash_attn
