// Gradients over a batch of sequences on the CPU: the split into tasks, not the arithmetic (backward_blocks.h).
#pragma once

#include <cstdint>
#include <vector>

#include "kernel_interface.h"

namespace flash_attn {

// Where one operand of a batch lies: strides in elements.
struct Rows {
  const void* base;
  int64_t row_stride;
  int64_t head_stride;
};

struct BackwardSequence {
  int64_t q_offset;  // Offsets in elements from the bases below.
  int64_t out_offset;
  int64_t grad_out_offset;
  int64_t grad_q_offset;
  int64_t lse_offset;
  int64_t k_offset;
  int64_t v_offset;
  int64_t grad_k_offset;
  int64_t grad_v_offset;
  int64_t q_len;
  int64_t k_len;
  const float* slopes;  // One per query head, or null.
};

struct Backward {
  ElementType type;
  Rows q, out, grad_out, k, v, grad_q, grad_k, grad_v;
  const float* lse;
  const float* grad_lse;  // Like lse, or null.
  int64_t lse_row_stride, lse_head_stride;
  int64_t q_heads;
  int64_t k_heads;
  int64_t head_dim;
  float softmax_scale;
  float softcap;
  Mask mask;
  std::vector<BackwardSequence> sequences;
};

void run_backward(const Backward& backward);

}  // namespace flash_attn
