#include "backward.h"

#include <algorithm>

#include "capability.h"
#include "parallel.h"

namespace flash_attn {
namespace {

// A head's key blocks are shared among tasks until there are about this many tasks. Not a number of threads, so that the
// order of summation, and with it every bit of the result, does not depend on the machine.
constexpr int64_t kTasks = 16;

// Gradients of queries are kept as 32-bit parts for as many heads as fit here.
constexpr int64_t kPartBytes = 256 << 20;

constexpr int64_t kElementBytes[kElementTypes] = {4, 2, 2};

// One key/value head of one sequence.
struct Unit {
  const BackwardSequence* sequence;
  int64_t k_head;
  int64_t parts;
  int64_t first_float;  // Of its parts of grad_q, each rows * head_dim floats.
};

struct BlockJob {
  int64_t unit;
  int64_t part;
};

class Run {
 public:
  explicit Run(const Backward& backward)
      : backward_(backward),
        kernels_(active_instruction_set().kernels[static_cast<int>(backward.type)]),
        element_bytes_(kElementBytes[static_cast<int>(backward.type)]),
        group_(backward.q_heads / backward.k_heads) {}

  void operator()() {
    const int64_t all = static_cast<int64_t>(backward_.sequences.size()) * backward_.k_heads;
    for (const BackwardSequence& sequence : backward_.sequences) {
      const int64_t blocks = (sequence.k_len + kKeyBlock - 1) / kKeyBlock;
      const int64_t parts = std::max<int64_t>(1, std::min(blocks, (kTasks + all - 1) / all));
      const int64_t floats = parts * sequence.q_len * group_ * backward_.head_dim;
      for (int64_t head = 0; head < backward_.k_heads; ++head) {
        if (floats_ > 0 && (floats_ + floats) * 4 > kPartBytes) flush();
        units_.push_back(Unit{&sequence, head, parts, floats_});
        floats_ += floats;
      }
    }
    flush();
  }

 private:
  const void* at(const Rows& rows, int64_t offset, int64_t head) const {
    return static_cast<const char*>(rows.base) + (offset + head * rows.head_stride) * element_bytes_;
  }

  void flush() {
    if (units_.empty()) return;
    const Workspace memory(floats_ * 4);
    float* parts = reinterpret_cast<float*>(memory.get());
    std::vector<BlockJob> jobs;
    int64_t longest = 0;
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      longest = std::max(longest, units_[unit].sequence->q_len * group_);
      for (int64_t part = 0; part < units_[unit].parts; ++part) jobs.push_back({static_cast<int64_t>(unit), part});
    }
    const int64_t scratch_bytes = kernels_.backward_scratch_bytes(longest, backward_.head_dim);
    for_each_task(static_cast<int64_t>(jobs.size()), scratch_bytes,
                  [&](int64_t index, char* scratch) { differentiate(jobs[index], parts, scratch); });
    for_each_task(static_cast<int64_t>(units_.size()), 0, [&](int64_t index, char*) { store(units_[index], parts); });
    units_.clear();
    floats_ = 0;
  }

  void differentiate(const BlockJob& job, float* parts, char* scratch) const {
    const Unit& unit = units_[job.unit];
    const BackwardSequence& sequence = *unit.sequence;
    const int64_t head = unit.k_head * group_;
    const int64_t blocks = (sequence.k_len + kKeyBlock - 1) / kKeyBlock;
    BackwardTask task;
    task.q = at(backward_.q, sequence.q_offset, head);
    task.out = at(backward_.out, sequence.out_offset, head);
    task.grad_out = at(backward_.grad_out, sequence.grad_out_offset, head);
    task.q_row_stride = backward_.q.row_stride;
    task.q_head_stride = backward_.q.head_stride;
    task.out_row_stride = backward_.out.row_stride;
    task.out_head_stride = backward_.out.head_stride;
    task.grad_out_row_stride = backward_.grad_out.row_stride;
    task.grad_out_head_stride = backward_.grad_out.head_stride;
    const int64_t lse_offset = sequence.lse_offset + head * backward_.lse_head_stride;
    task.lse = backward_.lse + lse_offset;
    task.grad_lse = backward_.grad_lse == nullptr ? nullptr : backward_.grad_lse + lse_offset;
    task.lse_row_stride = backward_.lse_row_stride;
    task.lse_head_stride = backward_.lse_head_stride;
    task.k = at(backward_.k, sequence.k_offset, unit.k_head);
    task.v = at(backward_.v, sequence.v_offset, unit.k_head);
    task.k_row_stride = backward_.k.row_stride;
    task.v_row_stride = backward_.v.row_stride;
    task.grad_k = const_cast<void*>(at(backward_.grad_k, sequence.grad_k_offset, unit.k_head));
    task.grad_v = const_cast<void*>(at(backward_.grad_v, sequence.grad_v_offset, unit.k_head));
    task.grad_k_row_stride = backward_.grad_k.row_stride;
    task.grad_v_row_stride = backward_.grad_v.row_stride;
    task.grad_q = parts + unit.first_float + job.part * sequence.q_len * group_ * backward_.head_dim;
    task.first_block = blocks * job.part / unit.parts;
    task.last_block = blocks * (job.part + 1) / unit.parts;
    task.group = group_;
    task.head_dim = backward_.head_dim;
    task.q_len = sequence.q_len;
    task.k_len = sequence.k_len;
    task.mask = backward_.mask;
    task.score = Score{backward_.softmax_scale, backward_.softcap,
                       sequence.slopes == nullptr ? nullptr : sequence.slopes + head, nullptr};
    task.scratch = scratch;
    kernels_.backward_blocks(&task);
  }

  void store(const Unit& unit, const float* parts) const {
    const BackwardSequence& sequence = *unit.sequence;
    const int64_t rows = sequence.q_len * group_;
    const int64_t head = unit.k_head * group_;
    for (int64_t r = 0; r < rows; ++r) {
      GradientRow row;
      row.parts = parts + unit.first_float + r * backward_.head_dim;
      row.stride = rows * backward_.head_dim;
      row.count = unit.parts;
      row.scale = backward_.softmax_scale;
      row.head_dim = backward_.head_dim;
      row.out = const_cast<void*>(
          at(backward_.grad_q, sequence.grad_q_offset + r / group_ * backward_.grad_q.row_stride, head + r % group_));
      kernels_.store_gradient(&row);
    }
  }

  const Backward& backward_;
  const Kernels& kernels_;
  int64_t element_bytes_;
  int64_t group_;
  std::vector<Unit> units_;
  int64_t floats_ = 0;
};

}  // namespace

void run_backward(const Backward& backward) {
  FA_TIMED_TASK();
  FA_TIMED(kCall);
  Run{backward}();
}

}  // namespace flash_attn
