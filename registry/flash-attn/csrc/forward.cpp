#include "forward.h"

#include <algorithm>
#include <optional>

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

// Keys that a task packs, of all heads: a multiple of every panel's width.
constexpr int64_t kPackedKeys = 64;

// Unmerged results of decoding are kept for as many sequences as fit here.
constexpr int64_t kDecodeBytes = 32 << 20;

// Blocks of keys that a thread attends to one after the other, and at least as many such runs for every thread.
constexpr int64_t kJobsOfRun = 16;
constexpr int64_t kRunsPerThread = 4;

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

// Some keys of one block of neighbouring units.
struct PackJob {
  int64_t first_unit;
  int64_t last_unit;
  int64_t block;
  int64_t first_key;
};

struct RowJob {
  int64_t unit;
  int64_t row_begin;
  int64_t row_end;
  int64_t work;
};

// A sequence with so few queries that its keys are read where they lie (decode_block.h).
struct Decode {
  const Sequence* sequence;
  int64_t first_block;
  int64_t blocks;
  int64_t first_state;
};

struct DecodeJob {
  int64_t decode;
  int64_t block;
  int64_t k_head;
};

KeyRange keys_of_position(int64_t position, int64_t q_len, int64_t k_len, const Mask& mask) {
  const int64_t diagonal = position + k_len - q_len;
  KeyRange range{0, k_len};
  if (mask.window_left >= 0) range.begin = std::max<int64_t>(0, diagonal - mask.window_left);
  if (mask.window_right >= 0) range.end = std::min(k_len, diagonal + mask.window_right + 1);
  range.begin = std::min(range.begin, k_len);
  range.end = std::max(range.end, range.begin);
  return range;
}

// The keys that any query of the sequence sees.
KeyRange visible_keys(const Sequence& sequence, const Mask& mask) {
  const KeyRange first = keys_of_position(0, sequence.q_len, sequence.k_len, mask);
  const KeyRange last = keys_of_position(sequence.q_len - 1, sequence.q_len, sequence.k_len, mask);
  return KeyRange{first.begin, std::max(first.begin, last.end)};
}

// Pointers to rows `begin` to `end` of one block of keys or values; those beyond the last key repeat it.
void block_rows(const void** rows, const void* base, const Sequence& sequence, int64_t offset, int64_t first_key,
                int64_t keys, int64_t row_stride, int64_t page_size, int64_t page_stride, int64_t element_bytes,
                int64_t begin, int64_t end) {
  const int64_t last = std::min(end, keys);
  // Page by page, because a division for every row would take a good part of the time that reading the row takes.
  for (int64_t i = begin; i < last;) {
    const int64_t row = sequence.k_begin + first_key + i;
    int64_t at = row * row_stride;
    int64_t run = last;
    if (sequence.pages != nullptr) {
      const int64_t within = row % page_size;
      at = sequence.pages[row / page_size] * page_stride + within * row_stride;
      run = std::min(last, i + page_size - within);
    }
    for (; i < run; ++i, at += row_stride) rows[i] = advance(base, offset + at, element_bytes);
  }
  for (int64_t i = std::max(begin, keys); i < end; ++i) rows[i] = rows[keys - 1];
}

class Run {
 public:
  explicit Run(const Forward& forward)
      : forward_(forward),
        kernels_(active_instruction_set().kernels[static_cast<int>(forward.type)]),
        element_bytes_(kElementBytes[static_cast<int>(forward.type)]),
        group_(forward.q_heads / forward.k_heads),
        k_block_bytes_(kernels_.k_block_bytes(forward.head_dim)),
        v_block_bytes_(kernels_.v_block_bytes(forward.head_dim)),
        columns_(kernels_.columns(forward.head_dim)) {}

  void operator()() {
    for (const Sequence& sequence : forward_.sequences) {
      if (sequence.q_len == 0) continue;
      const KeyRange keys = visible_keys(sequence, forward_.mask);
      const int64_t first = keys.begin / kKeyBlock;
      const int64_t blocks = keys.begin < keys.end ? (keys.end + kKeyBlock - 1) / kKeyBlock - first : 0;
      if (sequence.q_len * group_ <= kernels_.decode_rows) {
        add_decode(sequence, first, blocks);
      } else {
        add_packed(sequence, first, blocks);
      }
    }
    flush_decode();
    flush_packed();
  }

 private:
  Score score(const Sequence& sequence, int64_t head) const {
    return Score{forward_.softmax_scale, forward_.softcap, sequence.slopes == nullptr ? nullptr : sequence.slopes + head,
                 forward_.sinks == nullptr ? nullptr : forward_.sinks + head};
  }

  const void* query(const Sequence& sequence, int64_t head) const {
    return advance(forward_.q, sequence.q_offset + head * forward_.q_head_stride, element_bytes_);
  }

  void* output(const Sequence& sequence, int64_t head) const {
    return advance(forward_.out, sequence.out_offset + head * forward_.out_head_stride, element_bytes_);
  }

  float* log_sum_exp(const Sequence& sequence, int64_t head) const {
    return forward_.lse + sequence.lse_offset + head * forward_.lse_head_stride;
  }

  void rows_of_keys(const Sequence& sequence, int64_t k_head, int64_t block, int64_t keys, const void** rows,
                    int64_t begin = 0, int64_t end = kKeyBlock) const {
    block_rows(rows, forward_.k, sequence, sequence.k_offset + k_head * forward_.k_head_stride, block * kKeyBlock, keys,
               forward_.k_row_stride, forward_.page_size, forward_.k_page_stride, element_bytes_, begin, end);
  }

  void rows_of_values(const Sequence& sequence, int64_t k_head, int64_t block, int64_t keys, const void** rows,
                      int64_t begin = 0, int64_t end = kKeyBlock) const {
    block_rows(rows, forward_.v, sequence, sequence.v_offset + k_head * forward_.v_head_stride, block * kKeyBlock, keys,
               forward_.v_row_stride, forward_.page_size, forward_.v_page_stride, element_bytes_, begin, end);
  }

  void add_packed(const Sequence& sequence, int64_t first, int64_t blocks) {
    for (int64_t head = 0; head < forward_.k_heads; ++head) {
      const int64_t bytes = blocks * (k_block_bytes_ + v_block_bytes_);
      if (packed_bytes_ > 0 && packed_bytes_ + bytes > kPackedBytes) flush_packed();
      units_.push_back(Unit{&sequence, head, first, blocks, packed_bytes_, packed_bytes_ + blocks * k_block_bytes_});
      packed_bytes_ += bytes;
    }
  }

  void flush_packed() {
    if (units_.empty()) return;
    if (!packed_ || packed_->bytes() < packed_bytes_) {
      packed_.reset();
      packed_.emplace(packed_bytes_);
    }
    pack();
    attend();
    units_.clear();
    packed_bytes_ = 0;
  }

  // The heads of a few keys follow each other: their rows are neighbours in memory.
  void pack() {
    std::vector<PackJob> jobs;
    for (int64_t unit = 0; unit < static_cast<int64_t>(units_.size());) {
      int64_t end = unit;
      while (end < static_cast<int64_t>(units_.size()) && units_[end].sequence == units_[unit].sequence) ++end;
      for (int64_t block = 0; block < units_[unit].blocks; ++block) {
        const int64_t keys = keys_of_block(units_[unit], block);
        for (int64_t key = 0; key < keys; key += kPackedKeys) jobs.push_back({unit, end, block, key});
      }
      unit = end;
    }
    for_each_task(static_cast<int64_t>(jobs.size()), 0, [&](int64_t index, char*) { pack_keys(jobs[index]); });
  }

  int64_t keys_of_block(const Unit& unit, int64_t block) const {
    return std::min(kKeyBlock, unit.sequence->k_len - (unit.first_block + block) * kKeyBlock);
  }

  void pack_keys(const PackJob& job) const {
    const void* k_rows[kKeyBlock];
    const void* v_rows[kKeyBlock];
    for (int64_t index = job.first_unit; index < job.last_unit; ++index) {
      const Unit& unit = units_[index];
      PackBlock pack;
      pack.k_rows = k_rows;
      pack.v_rows = v_rows;
      pack.keys = keys_of_block(unit, job.block);
      pack.head_dim = forward_.head_dim;
      pack.k_packed = packed_->get() + unit.k_packed_offset + job.block * k_block_bytes_;
      pack.v_packed = packed_->get() + unit.v_packed_offset + job.block * v_block_bytes_;
      pack.first = job.first_key;
      pack.count = kPackedKeys;
      const bool last = index + 1 == job.last_unit;
      pack.k_next_bytes = last ? 0 : forward_.k_head_stride * element_bytes_;
      pack.v_next_bytes = last ? 0 : forward_.v_head_stride * element_bytes_;
      const int64_t block = unit.first_block + job.block;
      const int64_t end = std::min(pack.keys, job.first_key + kPackedKeys);
      rows_of_keys(*unit.sequence, unit.k_head, block, pack.keys, k_rows, job.first_key, end);
      rows_of_values(*unit.sequence, unit.k_head, block, pack.keys, v_rows, job.first_key, end);
      kernels_.pack_block(&pack);
    }
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

  // Pairs of a row and a key that a run of rows has to visit.
  int64_t work(const Sequence& sequence, int64_t row_begin, int64_t row_end) const {
    const KeyRange first = keys_of_position(row_begin / group_, sequence.q_len, sequence.k_len, forward_.mask);
    const KeyRange last = keys_of_position((row_end - 1) / group_, sequence.q_len, sequence.k_len, forward_.mask);
    return (row_end - row_begin) * (last.end - first.begin);
  }

  void attend() {
    const int64_t task_rows = rows_per_task();
    std::vector<RowJob> jobs;
    int64_t longest = 0;
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      const int64_t rows = units_[unit].sequence->q_len * group_;
      for (int64_t begin = 0; begin < rows; begin += task_rows) {
        const int64_t end = std::min(rows, begin + task_rows);
        jobs.push_back({static_cast<int64_t>(unit), begin, end, work(*units_[unit].sequence, begin, end)});
        longest = std::max(longest, end - begin);
      }
    }
    // Starting with the most work leaves short tasks for the end, when a thread would wait for the last one.
    std::stable_sort(jobs.begin(), jobs.end(), [](const RowJob& a, const RowJob& b) { return a.work > b.work; });
    const int64_t scratch_bytes = kernels_.scratch_bytes(longest, forward_.head_dim);
    for_each_task(static_cast<int64_t>(jobs.size()), scratch_bytes,
                  [&](int64_t index, char* scratch) { attend_rows(jobs[index], scratch); });
  }

  void attend_rows(const RowJob& job, char* scratch) const {
    const Unit& unit = units_[job.unit];
    const Sequence& sequence = *unit.sequence;
    const int64_t head = unit.k_head * group_;
    ForwardTask task;
    task.q = query(sequence, head);
    task.q_row_stride = forward_.q_row_stride;
    task.q_head_stride = forward_.q_head_stride;
    task.out = output(sequence, head);
    task.out_row_stride = forward_.out_row_stride;
    task.out_head_stride = forward_.out_head_stride;
    task.lse = log_sum_exp(sequence, head);
    task.lse_row_stride = forward_.lse_row_stride;
    task.lse_head_stride = forward_.lse_head_stride;
    task.k_packed = packed_->get() + unit.k_packed_offset;
    task.v_packed = packed_->get() + unit.v_packed_offset;
    task.first_key_block = unit.first_block;
    task.row_begin = job.row_begin;
    task.row_end = job.row_end;
    task.group = group_;
    task.head_dim = forward_.head_dim;
    task.q_len = sequence.q_len;
    task.k_len = sequence.k_len;
    task.mask = forward_.mask;
    task.score = score(sequence, head);
    task.scratch = scratch;
    kernels_.forward_rows(&task);
  }

  // The heads of a block follow each other, because their rows are neighbours in memory.
  void add_decode(const Sequence& sequence, int64_t first, int64_t blocks) {
    const int64_t states = blocks * forward_.k_heads * sequence.q_len * group_;
    if (decode_states_ > 0 && (decode_states_ + states) * (columns_ + 2) * 4 > kDecodeBytes) flush_decode();
    decodes_.push_back(Decode{&sequence, first, blocks, decode_states_});
    decode_states_ += states;
    for (int64_t block = 0; block < blocks; ++block) {
      for (int64_t head = 0; head < forward_.k_heads; ++head) {
        decode_jobs_.push_back({static_cast<int64_t>(decodes_.size()) - 1, block, head});
      }
    }
  }

  void flush_decode() {
    if (decodes_.empty()) return;
    const Workspace partial(decode_states_ * (columns_ + 2) * 4);
    float* sums = reinterpret_cast<float*>(partial.get());
    float* maximum = sums + decode_states_ * columns_;
    float* total = maximum + decode_states_;
    // Jobs are drawn several at a time, so that a thread knows which keys it reads next.
    const int64_t jobs = static_cast<int64_t>(decode_jobs_.size());
    const int64_t threads = torch::stable::get_num_threads();
    const int64_t run = std::max<int64_t>(1, std::min(kJobsOfRun, jobs / (threads * kRunsPerThread)));
    for_each_task((jobs + run - 1) / run, kernels_.decode_scratch_bytes, [&](int64_t index, char* scratch) {
      const void* rows[2][kKeyBlock];
      const int64_t begin = index * run;
      const int64_t end = std::min(jobs, begin + run);
      rows_of_job(decode_jobs_[begin], rows[begin % 2]);
      for (int64_t job = begin; job < end; ++job) {
        const bool more = job + 1 < end;
        if (more) rows_of_job(decode_jobs_[job + 1], rows[(job + 1) % 2]);
        decode(decode_jobs_[job], rows[job % 2], more ? rows[(job + 1) % 2] : nullptr, sums, maximum, total, scratch);
      }
    });
    for_each_task(static_cast<int64_t>(decodes_.size()) * forward_.k_heads, 0, [&](int64_t index, char*) {
      merge(decodes_[index / forward_.k_heads], index % forward_.k_heads, sums, maximum, total);
    });
    decodes_.clear();
    decode_jobs_.clear();
    decode_states_ = 0;
  }

  void rows_of_job(const DecodeJob& job, const void** rows) const {
    const Decode& decode = decodes_[job.decode];
    const int64_t block = decode.first_block + job.block;
    rows_of_keys(*decode.sequence, job.k_head, block, std::min(kKeyBlock, decode.sequence->k_len - block * kKeyBlock), rows);
  }

  void decode(const DecodeJob& job, const void* const* k_rows, const void* const* next_k_rows, float* sums, float* maximum,
              float* total, char* scratch) const {
    const Decode& decode = decodes_[job.decode];
    const Sequence& sequence = *decode.sequence;
    const int64_t head = job.k_head * group_;
    const int64_t block = decode.first_block + job.block;
    const int64_t rows = sequence.q_len * group_;
    const int64_t state = decode.first_state + (job.block * forward_.k_heads + job.k_head) * rows;
    const void* v_rows[kKeyBlock];
    DecodeTask task;
    task.q = query(sequence, head);
    task.q_row_stride = forward_.q_row_stride;
    task.q_head_stride = forward_.q_head_stride;
    task.k_rows = k_rows;
    task.v_rows = v_rows;
    task.next_k_rows = next_k_rows;
    task.keys = std::min(kKeyBlock, sequence.k_len - block * kKeyBlock);
    task.block = block;
    task.rows = rows;
    task.group = group_;
    task.head_dim = forward_.head_dim;
    task.q_len = sequence.q_len;
    task.k_len = sequence.k_len;
    task.mask = forward_.mask;
    task.score = score(sequence, head);
    task.maximum = maximum + state;
    task.total = total + state;
    task.sums = sums + state * columns_;
    task.scratch = scratch;
    rows_of_values(sequence, job.k_head, block, task.keys, v_rows);
    kernels_.decode_block(&task);
  }

  void merge(const Decode& decode, int64_t k_head, const float* sums, const float* maximum, const float* total) const {
    const Sequence& sequence = *decode.sequence;
    const int64_t rows = sequence.q_len * group_;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t position = row / group_;
      const int64_t head = k_head * group_ + row % group_;
      const int64_t state = decode.first_state + k_head * rows + row;
      MergeTask task;
      task.maximum = maximum + state;
      task.total = total + state;
      task.sums = sums + state * columns_;
      task.state_stride = forward_.k_heads * rows;
      task.sums_stride = forward_.k_heads * rows * columns_;
      task.blocks = decode.blocks;
      task.head_dim = forward_.head_dim;
      task.sink = forward_.sinks == nullptr ? nullptr : forward_.sinks + head;
      const KeyRange keys = keys_of_position(position, sequence.q_len, sequence.k_len, forward_.mask);
      task.empty = keys.begin >= keys.end;
      task.out = advance(output(sequence, head), position * forward_.out_row_stride, element_bytes_);
      task.lse = log_sum_exp(sequence, head) + position * forward_.lse_row_stride;
      kernels_.merge_rows(&task);
    }
  }

  const Forward& forward_;
  const Kernels& kernels_;
  int64_t element_bytes_;
  int64_t group_;
  int64_t k_block_bytes_;
  int64_t v_block_bytes_;
  int64_t columns_;
  std::vector<Unit> units_;
  int64_t packed_bytes_ = 0;
  std::optional<Workspace> packed_;
  std::vector<Decode> decodes_;
  std::vector<DecodeJob> decode_jobs_;
  int64_t decode_states_ = 0;
};

}  // namespace

void run_forward(const Forward& forward) {
  FA_TIMED_TASK();
  FA_TIMED(kCall);
  Run{forward}();
}

}  // namespace flash_attn
