// Work sharing on torch's own threads.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "kernel_interface.h"

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

// Memory that is kept for the next call: the system hands out every page anew, and for short problems that takes longer than
// filling them. At most kKeptBytes stay.
class Workspace {
 public:
  explicit Workspace(int64_t bytes) {
    Spares& spares = Workspace::spares();
    const std::lock_guard<std::mutex> lock(spares.mutex);
    for (std::size_t i = 0; i < spares.blocks.size(); ++i) {
      if (spares.blocks[i].bytes < bytes) continue;
      block_ = std::move(spares.blocks[i]);
      spares.blocks.erase(spares.blocks.begin() + static_cast<std::ptrdiff_t>(i));
      spares.bytes -= block_.bytes;
      return;
    }
    block_ = Block{allocate(bytes), bytes};
  }

  ~Workspace() {
    Spares& spares = Workspace::spares();
    const std::lock_guard<std::mutex> lock(spares.mutex);
    if (block_.bytes > kKeptBytes) return;
    // The oldest go first.
    while (spares.bytes + block_.bytes > kKeptBytes) {
      spares.bytes -= spares.blocks.front().bytes;
      spares.blocks.erase(spares.blocks.begin());
    }
    spares.bytes += block_.bytes;
    spares.blocks.push_back(std::move(block_));
  }

  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  char* get() const { return block_.memory.get(); }
  int64_t bytes() const { return block_.bytes; }

 private:
  static constexpr int64_t kKeptBytes = 48 << 20;

  struct Block {
    Memory memory;
    int64_t bytes = 0;
  };

  struct Spares {
    std::mutex mutex;
    std::vector<Block> blocks;
    int64_t bytes = 0;
  };

  static Spares& spares() {
    static Spares spares;
    return spares;
  }

  Block block_;
};

// Calls body(task, scratch) for every task in [0, tasks). Threads draw tasks one at a time from a counter, because causal
// tasks differ in length; torch's own split into equal ranges would leave threads idle. Scratch memory is per thread.
template <class Body>
void for_each_task(int64_t tasks, int64_t scratch_bytes, const Body& body) {
  if (tasks <= 0) return;
  std::atomic<int64_t> next{0};
  const int64_t available = torch::stable::get_num_threads();
  const int64_t workers = tasks < available ? tasks : available;
  const Workspace scratch(workers * ((scratch_bytes + 63) / 64 * 64));
  std::atomic<int64_t> arrivals{0};
  torch::stable::parallel_for(0, workers, 1, [&](int64_t, int64_t) {
    FA_TIMED_TASK();
    FA_TIMED(kBusy);
    char* mine = scratch.get() + arrivals.fetch_add(1) * ((scratch_bytes + 63) / 64 * 64);
    for (int64_t task = next.fetch_add(1); task < tasks; task = next.fetch_add(1)) body(task, mine);
  });
}

}  // namespace flash_attn
