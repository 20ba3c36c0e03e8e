// AVX-512 F, BW, DQ, VL and BF16. The target is set here and not by a compiler flag, so that one recipe serves every architecture.
#include "kernel_interface.h"

#if defined(__x86_64__)
#pragma GCC target("avx512bf16,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#define FA_BFLOAT16_PAIRS
#include "vector_avx512.h"
// The order matters: the kernels are written over the Vector of the header above.
#include "kernel_table.h"

namespace flash_attn {

const InstructionSet* avx512bf16_instruction_set() {
  static const InstructionSet set{"avx512bf16",
                                  {kernels<FloatCompute, float>(), kernels<PairCompute, bfloat16>(),
                                   kernels<FloatCompute, float16>()}};
  return &set;
}

}  // namespace flash_attn
#else
namespace flash_attn {

const InstructionSet* avx512bf16_instruction_set() { return nullptr; }

}  // namespace flash_attn
#endif
