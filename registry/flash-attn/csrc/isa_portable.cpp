// Every instruction set's last resort, and the native one of aarch64.
#include "vector_portable.h"
// The order matters: the kernels are written over the Vector of the header above.
#include "decode_block.h"

namespace flash_attn {

const InstructionSet* portable_instruction_set() {
  static const InstructionSet set{"portable",
                                  {forward_kernels<FloatCompute, float>(), forward_kernels<FloatCompute, bfloat16>(),
                                   forward_kernels<FloatCompute, float16>()}};
  return &set;
}

}  // namespace flash_attn
