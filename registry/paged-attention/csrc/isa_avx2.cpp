// AVX2 with FMA and F16C. The target is set here and not by a compiler flag, so that one recipe serves every architecture.
#include "kernel_interface.h"

#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c")
#include "vector_avx2.h"
// The order matters: the kernels are written over the Vector of the header above.
#include "kernel_table.h"

namespace flash_attn {

const InstructionSet* avx2_instruction_set() {
  static const InstructionSet set{"avx2",
                                  {kernels<FloatCompute, float>(), kernels<FloatCompute, bfloat16>(),
                                   kernels<FloatCompute, float16>()}};
  return &set;
}

}  // namespace flash_attn
#else
namespace flash_attn {

const InstructionSet* avx2_instruction_set() { return nullptr; }

}  // namespace flash_attn
#endif
