// Work sharing on torch's own threads.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace flash_attn {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

using Memory = std::unique_ptr<char, Free>;

inline Memory allocate(int64_t bytes) {
  void* memory = std::aligned_alloc(64, static_cast<std::size_t>((bytes + 63) / 64 * 64 + 64));
  if (memory == nullptr) throw std::bad_alloc();
  return Memory(static_cast<char*>(memory));
}

// Calls body(task, scratch) for every task in [0, tasks). Threads draw tasks one at a time from a counter, because causal
// tasks differ in length; torch's own split into equal ranges would leave threads idle. Scratch memory is per thread.
template <class Body>
void for_each_task(int64_t tasks, int64_t scratch_bytes, const Body& body) {
  if (tasks <= 0) return;
  std::atomic<int64_t> next{0};
  const int64_t available = torch::stable::get_num_threads();
  const int64_t workers = tasks < available ? tasks : available;
  Memory scratch = allocate(workers * ((scratch_bytes + 63) / 64 * 64));
  std::atomic<int64_t> arrivals{0};
  torch::stable::parallel_for(0, workers, 1, [&](int64_t, int64_t) {
    char* mine = scratch.get() + arrivals.fetch_add(1) * ((scratch_bytes + 63) / 64 * 64);
    for (int64_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1)) body(task, mine);
  });
}

}  // namespace flash_attn
