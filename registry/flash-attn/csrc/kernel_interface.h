// The plain-data boundary between the driver (which knows torch) and the kernels (which know one instruction set).
//
// Nothing here may use the C++ standard library: the instruction-set files include this header, and any inline
// function they shared with the driver could be emitted with instructions that the running CPU does not have.
#pragma once

#include <stdint.h>

namespace flash_attn {

enum class ElementType : int32_t { kFloat32 = 0, kBFloat16 = 1, kFloat16 = 2 };

constexpr int kElementTypes = 3;

// Keys are packed and visited in blocks of this many; see forward_rows.h for how the figure relates to the caches.
constexpr int64_t kKeyBlock = 256;

constexpr int64_t kMaxHeadDim = 256;

// Which keys a query sees. A window of -1 is unlimited on that side; causal is window_right == 0 at most.
struct Mask {
  int64_t window_left;
  int64_t window_right;
};

// How raw scores become logits. `softcap` 0 means none; `slopes` and `sinks` are null or one float per head of the group.
struct Score {
  float softmax_scale;
  float softcap;
  const float* slopes;
  const float* sinks;
};

// One block of keys and values of one key/value head, to be laid out for the micro-kernels.
struct PackBlock {
  const void* k;
  const void* v;
  int64_t k_row_stride;  // Elements.
  int64_t v_row_stride;
  int64_t keys;  // 1 to kKeyBlock; the remainder of the block is filled with zeros.
  int64_t head_dim;
  void* k_packed;
  void* v_packed;
};

// A run of rows of one (sequence, key/value head). Row r is query position r / group of head r % group of the group.
struct ForwardTask {
  const void* q;  // Position 0 of the group's first head; strides in elements.
  int64_t q_row_stride;
  int64_t q_head_stride;
  void* out;
  int64_t out_row_stride;
  int64_t out_head_stride;
  float* lse;
  int64_t lse_row_stride;
  int64_t lse_head_stride;
  const void* k_packed;  // Block number `first_key_block` of this head.
  const void* v_packed;
  int64_t first_key_block;
  int64_t row_begin;
  int64_t row_end;
  int64_t group;
  int64_t head_dim;
  int64_t q_len;
  int64_t k_len;
  Mask mask;
  Score score;
  void* scratch;  // scratch_bytes(...) bytes, aligned to 64.
};

// What one instruction set offers for one element type.
struct ForwardKernels {
  int64_t (*k_block_bytes)(int64_t head_dim);
  int64_t (*v_block_bytes)(int64_t head_dim);
  int64_t (*scratch_bytes)(int64_t rows, int64_t head_dim);
  void (*pack_block)(const PackBlock* block);
  void (*forward_rows)(const ForwardTask* task);
  int64_t row_tile;
};

struct InstructionSet {
  const char* name;
  ForwardKernels forward[kElementTypes];
};

// Each returns null where the file was compiled for another architecture.
const InstructionSet* avx512bf16_instruction_set();
const InstructionSet* avx512_instruction_set();
const InstructionSet* avx2_instruction_set();
const InstructionSet* portable_instruction_set();

// First key that row `position` sees, and one past the last; both within [0, k_len], begin <= end.
struct KeyRange {
  int64_t begin;
  int64_t end;
};

}  // namespace flash_attn
