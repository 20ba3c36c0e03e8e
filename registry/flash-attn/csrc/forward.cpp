#include "forward.h"

#include <algorithm>

#include "capability.h"
#include "parallel.h"

namespace flash_attn {
namespace {

// Packed keys and values of as many heads as fit here are made at a time, so that they stay in the last-level cache and
// a long batch does not double its memory.
constexpr int64_t kPackedBytes = 16 << 20;

// Rows of a task: enough to pay for streaming a block of keys from the last-level cache, few enough that the running
// output stays in the second-level one.
constexpr int64_t kTaskRows = 192;
constexpr int64_t kTasksPerThread = 4;

constexpr int64_t kElementBytes[kElementTypes] = {4, 2, 2};

template <class T>
T* advance(T* base, int64_t elements, int64_t element_bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<Byte*>(base) + elements * element_bytes;
}

// One key/value head of one sequence: what the tasks of its rows share.
struct Unit {
  const Sequence* sequence;
  int64_t k_head;
  int64_t first_block;
  int64_t blocks;
  int64_t k_packed_offset;
  int64_t v_packed_offset;
};

struct BlockJob {
  int64_t unit;
  int64_t block;
};

struct RowJob {
  int64_t unit;
  int64_t row_begin;
  int64_t row_end;
};

// The keys that any query of the sequence sees.
KeyRange visible_keys(const Sequence& sequence, const Mask& mask) {
  KeyRange range{0, sequence.k_len};
  const int64_t first_diagonal = sequence.k_len - sequence.q_len;
  const int64_t last_diagonal = sequence.k_len - 1;
  if (mask.window_left >= 0) range.begin = std::max<int64_t>(0, first_diagonal - mask.window_left);
  if (mask.window_right >= 0) range.end = std::min(sequence.k_len, last_diagonal + mask.window_right + 1);
  range.begin = std::min(range.begin, sequence.k_len);
  range.end = std::max(range.end, range.begin);
  return range;
}

class Run {
 public:
  explicit Run(const Forward& forward)
      : forward_(forward),
        kernels_(active_instruction_set().forward[static_cast<int>(forward.type)]),
        element_bytes_(kElementBytes[static_cast<int>(forward.type)]),
        group_(forward.q_heads / forward.k_heads),
        k_block_bytes_(kernels_.k_block_bytes(forward.head_dim)),
        v_block_bytes_(kernels_.v_block_bytes(forward.head_dim)) {}

  void operator()() {
    for (const Sequence& sequence : forward_.sequences) {
      if (sequence.q_len == 0) continue;
      const KeyRange keys = visible_keys(sequence, forward_.mask);
      const int64_t first = keys.begin / kKeyBlock;
      const int64_t blocks = keys.begin < keys.end ? (keys.end + kKeyBlock - 1) / kKeyBlock - first : 0;
      for (int64_t head = 0; head < forward_.k_heads; ++head) {
        const int64_t bytes = blocks * (k_block_bytes_ + v_block_bytes_);
        if (packed_bytes_ > 0 && packed_bytes_ + bytes > kPackedBytes) flush();
        units_.push_back(Unit{&sequence, head, first, blocks, packed_bytes_, packed_bytes_ + blocks * k_block_bytes_});
        packed_bytes_ += bytes;
      }
    }
    flush();
  }

 private:
  void flush() {
    if (units_.empty()) return;
    if (packed_bytes_ > capacity_) {
      packed_ = allocate(packed_bytes_);
      capacity_ = packed_bytes_;
    }
    pack();
    attend();
    units_.clear();
    packed_bytes_ = 0;
  }

  void pack() {
    std::vector<BlockJob> jobs;
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      for (int64_t block = 0; block < units_[unit].blocks; ++block) jobs.push_back({static_cast<int64_t>(unit), block});
    }
    for_each_task(static_cast<int64_t>(jobs.size()), 0, [&](int64_t index, char*) {
      const Unit& unit = units_[jobs[index].unit];
      const int64_t block = jobs[index].block;
      const int64_t key = (unit.first_block + block) * kKeyBlock;
      PackBlock pack;
      pack.k = advance(forward_.k, unit.sequence->k_offset + unit.k_head * forward_.k_head_stride + key * forward_.k_row_stride,
                       element_bytes_);
      pack.v = advance(forward_.v, unit.sequence->v_offset + unit.k_head * forward_.v_head_stride + key * forward_.v_row_stride,
                       element_bytes_);
      pack.k_row_stride = forward_.k_row_stride;
      pack.v_row_stride = forward_.v_row_stride;
      pack.keys = std::min(kKeyBlock, unit.sequence->k_len - key);
      pack.head_dim = forward_.head_dim;
      pack.k_packed = packed_.get() + unit.k_packed_offset + block * k_block_bytes_;
      pack.v_packed = packed_.get() + unit.v_packed_offset + block * v_block_bytes_;
      kernels_.pack_block(&pack);
    });
  }

  // Rows of a task, a multiple of the kernel's tile, such that every thread gets several.
  int64_t rows_per_task() const {
    int64_t rows = 0;
    for (const Unit& unit : units_) rows += unit.sequence->q_len * group_;
    const int64_t threads = torch::stable::get_num_threads();
    const int64_t wanted = rows / (threads * kTasksPerThread);
    const int64_t tiles = std::max<int64_t>(1, std::min(kTaskRows, wanted) / kernels_.row_tile);
    return tiles * kernels_.row_tile;
  }

  void attend() {
    const int64_t task_rows = rows_per_task();
    std::vector<RowJob> jobs;
    int64_t longest = 0;
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      const int64_t rows = units_[unit].sequence->q_len * group_;
      for (int64_t begin = 0; begin < rows; begin += task_rows) {
        const int64_t end = std::min(rows, begin + task_rows);
        jobs.push_back({static_cast<int64_t>(unit), begin, end});
        longest = std::max(longest, end - begin);
      }
    }
    // Under a causal mask the last rows see the most keys; starting with them leaves the short tasks for the end.
    std::reverse(jobs.begin(), jobs.end());
    const int64_t scratch_bytes = kernels_.scratch_bytes(longest, forward_.head_dim);
    for_each_task(static_cast<int64_t>(jobs.size()), scratch_bytes,
                  [&](int64_t index, char* scratch) { attend_rows(jobs[index], scratch); });
  }

  void attend_rows(const RowJob& job, char* scratch) const {
    const Unit& unit = units_[job.unit];
    const Sequence& sequence = *unit.sequence;
    const int64_t head = unit.k_head * group_;
    ForwardTask task;
    task.q = advance(forward_.q, sequence.q_offset + head * forward_.q_head_stride, element_bytes_);
    task.q_row_stride = forward_.q_row_stride;
    task.q_head_stride = forward_.q_head_stride;
    task.out = advance(forward_.out, sequence.out_offset + head * forward_.out_head_stride, element_bytes_);
    task.out_row_stride = forward_.out_row_stride;
    task.out_head_stride = forward_.out_head_stride;
    task.lse = forward_.lse + sequence.lse_offset + head * forward_.lse_head_stride;
    task.lse_row_stride = forward_.lse_row_stride;
    task.lse_head_stride = forward_.lse_head_stride;
    task.k_packed = packed_.get() + unit.k_packed_offset;
    task.v_packed = packed_.get() + unit.v_packed_offset;
    task.first_key_block = unit.first_block;
    task.row_begin = job.row_begin;
    task.row_end = job.row_end;
    task.group = group_;
    task.head_dim = forward_.head_dim;
    task.q_len = sequence.q_len;
    task.k_len = sequence.k_len;
    task.mask = forward_.mask;
    task.score.softmax_scale = forward_.softmax_scale;
    task.score.softcap = forward_.softcap;
    task.score.slopes = sequence.slopes == nullptr ? nullptr : sequence.slopes + head;
    task.score.sinks = forward_.sinks == nullptr ? nullptr : forward_.sinks + head;
    task.scratch = scratch;
    kernels_.forward_rows(&task);
  }

  const Forward& forward_;
  const ForwardKernels& kernels_;
  int64_t element_bytes_;
  int64_t group_;
  int64_t k_block_bytes_;
  int64_t v_block_bytes_;
  std::vector<Unit> units_;
  int64_t packed_bytes_ = 0;
  Memory packed_;
  int64_t capacity_ = 0;
};

}  // namespace

void run_forward(const Forward& forward) { Run{forward}(); }

}  // namespace flash_attn
