#include <torch/csrc/stable/library.h>

#include "axpy.h"
#include "registration.h"

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("axpy(float a, Tensor x, Tensor y) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) { ops.impl("axpy", TORCH_BOX(&axpy)); }

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
