// Which instruction set the kernels use, decided once from what the running CPU has.
#pragma once

#include <string>

#include "kernel_interface.h"

namespace flash_attn {

// The instruction set in effect.
const InstructionSet& active_instruction_set();

// Puts the named instruction set into effect, for tests and comparisons; an empty name changes nothing. Returns the name
// in effect. Throws std::invalid_argument when the name is unknown here or this CPU cannot run it.
std::string select_instruction_set(const std::string& name);

}  // namespace flash_attn
