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

// One block of keys and values of one key/value head, to be laid out for the micro-kernels. Rows are given one by one,
// because those of a paged cache lie anywhere.
struct PackBlock {
  const void* const* k_rows;
  const void* const* v_rows;
  int64_t keys;  // 1 to kKeyBlock; the remainder of the block is filled with zeros.
  int64_t head_dim;
  void* k_packed;
  void* v_packed;
  // Only these keys are packed now: from `first`, a multiple of 32, to `first + count`.
  int64_t first = 0;
  int64_t count = kKeyBlock;
  // What will be packed next lies this far from these rows, in bytes; 0 for the rows that follow.
  int64_t k_next_bytes = 0;
  int64_t v_next_bytes = 0;
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

// All rows of one (sequence, key/value head), few of them, against one block of keys that is read where it lies: with so
// few rows, packing would cost more than it saves. Leaves unnormalised results for merge_rows.
struct DecodeTask {
  const void* q;
  int64_t q_row_stride;
  int64_t q_head_stride;
  const void* const* k_rows;  // kKeyBlock pointers; those beyond `keys` repeat the last.
  const void* const* v_rows;
  const void* const* next_k_rows;  // Of the block that this thread attends to next, to be asked for meanwhile; or null.
  int64_t keys;
  int64_t block;
  int64_t rows;
  int64_t group;
  int64_t head_dim;
  int64_t q_len;
  int64_t k_len;
  Mask mask;
  Score score;
  float* maximum;  // [rows], in base-2 logits.
  float* total;    // [rows]
  float* sums;     // [rows][columns(head_dim)]
  void* scratch;   // decode_scratch_bytes bytes, aligned to 64.
};

// Puts the results of all blocks of one row together.
struct MergeTask {
  const float* maximum;  // Of block b: maximum[b * state_stride], and so on.
  const float* total;
  const float* sums;
  int64_t state_stride;
  int64_t sums_stride;
  int64_t blocks;
  int64_t head_dim;
  const float* sink;  // Or null.
  bool empty;         // The row sees no key.
  void* out;
  float* lse;
};

// The gradient of one (sequence, key/value head) by a run of its key blocks: whole gradients of those keys and values, and
// what they contribute to the gradient of the queries.
struct BackwardTask {
  const void* q;  // As in ForwardTask, likewise the others of the query's shape.
  const void* out;
  const void* grad_out;
  int64_t q_row_stride, q_head_stride;
  int64_t out_row_stride, out_head_stride;
  int64_t grad_out_row_stride, grad_out_head_stride;
  const float* lse;
  const float* grad_lse;  // Or null.
  int64_t lse_row_stride, lse_head_stride;
  const void* k;
  const void* v;
  int64_t k_row_stride, v_row_stride;
  void* grad_k;
  void* grad_v;
  int64_t grad_k_row_stride, grad_v_row_stride;
  float* grad_q;  // [rows][head_dim], written whole; not yet multiplied by the softmax scale.
  int64_t first_block;
  int64_t last_block;  // One past the last.
  int64_t group;
  int64_t head_dim;
  int64_t q_len;
  int64_t k_len;
  Mask mask;
  Score score;
  void* scratch;  // backward_scratch_bytes(...) bytes, aligned to 64.
};

// One row of the queries' gradient from its parts.
struct GradientRow {
  const float* parts;  // Part p at parts + p * stride.
  int64_t stride;
  int64_t count;
  float scale;
  int64_t head_dim;
  void* out;
};

// What one instruction set offers for one element type.
struct Kernels {
  int64_t (*k_block_bytes)(int64_t head_dim);
  int64_t (*v_block_bytes)(int64_t head_dim);
  int64_t (*scratch_bytes)(int64_t rows, int64_t head_dim);
  void (*pack_block)(const PackBlock* block);
  void (*forward_rows)(const ForwardTask* task);
  int64_t row_tile;
  int64_t (*columns)(int64_t head_dim);
  int64_t decode_rows;  // Up to this many rows of a head, decode_block is the faster way.
  int64_t decode_scratch_bytes;
  void (*decode_block)(const DecodeTask* task);
  void (*merge_rows)(const MergeTask* task);
  int64_t (*backward_scratch_bytes)(int64_t rows, int64_t head_dim);
  void (*backward_blocks)(const BackwardTask* task);
  void (*store_gradient)(const GradientRow* row);
};

struct InstructionSet {
  const char* name;
  Kernels kernels[kElementTypes];
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

// What time is spent on, for builds with FA_PROFILE (benchmarks/profile_parts.py); otherwise nothing of it is compiled.
// kBusy is all that threads do from the start of their first task to the end of their last, kCall a call from outside.
enum Part { kPacking, kScoreProducts, kExponentials, kValueProducts, kBusy, kCall, kParts };

}  // namespace flash_attn

#ifdef FA_PROFILE
extern "C" uint64_t flash_attn_profile_ticks[flash_attn::kParts];

namespace {

// Of this thread and this file, until FA_TIMES_DONE: threads that share a counter would wait for each other.
__thread uint64_t profile_ticks[flash_attn::kParts];

struct PartTimer {
  explicit PartTimer(flash_attn::Part p) : part(p), start(__builtin_ia32_rdtsc()) {}
  ~PartTimer() { profile_ticks[part] += __builtin_ia32_rdtsc() - start; }
  flash_attn::Part part;
  uint64_t start;
};

struct PartFlush {
  ~PartFlush() {
    for (int part = 0; part < flash_attn::kParts; ++part) {
      __atomic_fetch_add(&flash_attn_profile_ticks[part], profile_ticks[part], __ATOMIC_RELAXED);
      profile_ticks[part] = 0;
    }
  }
};

}  // namespace

// From here to the end of the scope.
#define FA_TIMED(part) const PartTimer part_timer(flash_attn::part)
// At the start of every function that a task or a call enters by.
#define FA_TIMED_TASK() const PartFlush part_flush
#else
#define FA_TIMED(part) static_assert(true)
#define FA_TIMED_TASK() static_assert(true)
#endif
