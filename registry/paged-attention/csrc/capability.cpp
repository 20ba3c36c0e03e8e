#include "capability.h"

#include <atomic>
#include <stdexcept>

#ifdef FA_PROFILE
__attribute__((visibility("default"))) uint64_t flash_attn_profile_ticks[flash_attn::kParts];
#endif

namespace flash_attn {
namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports also asks whether the operating system saves the wider registers.
bool runs_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"); }

bool runs_avx512() {
  return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

bool runs_avx512bf16() { return runs_avx512() && __builtin_cpu_supports("avx512bf16"); }
#else
bool runs_avx2() { return false; }
bool runs_avx512() { return false; }
bool runs_avx512bf16() { return false; }
#endif

struct Candidate {
  const InstructionSet* (*set)();
  bool runs;
};

// Best first.
const InstructionSet* best(const std::string& name) {
  const Candidate candidates[] = {
      {&avx512bf16_instruction_set, runs_avx512bf16()},
      {&avx512_instruction_set, runs_avx512()},
      {&avx2_instruction_set, runs_avx2()},
      {&portable_instruction_set, true},
  };
  for (const Candidate& candidate : candidates) {
    const InstructionSet* set = candidate.set();
    if (set != nullptr && candidate.runs && (name.empty() || name == set->name)) return set;
  }
  return nullptr;
}

std::atomic<const InstructionSet*>& active() {
  static std::atomic<const InstructionSet*> set{best("")};
  return set;
}

}  // namespace

const InstructionSet& active_instruction_set() { return *active().load(std::memory_order_relaxed); }

std::string select_instruction_set(const std::string& name) {
  if (!name.empty()) {
    const InstructionSet* set = best(name);
    if (set == nullptr) throw std::invalid_argument("this CPU does not run the instruction set '" + name + "'");
    active().store(set, std::memory_order_relaxed);
  }
  return active_instruction_set().name;
}

}  // namespace flash_attn
