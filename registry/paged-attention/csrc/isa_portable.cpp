// Every instruction set's last resort, and the native one of aarch64.
#include "vector_portable.h"
// The order matters: the kernels are written over the Vector of the header above.
#include "kernel_table.h"

namespace flash_attn {

const InstructionSet* portable_instruction_set() {
  static const InstructionSet set{"portable",
                                  {kernels<FloatCompute, float>(), kernels<FloatCompute, bfloat16>(),
                                   kernels<FloatCompute, float16>()}};
  return &set;
}

}  // namespace flash_attn
