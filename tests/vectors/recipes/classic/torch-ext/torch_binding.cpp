#include <ATen/ATen.h>
#include <torch/library.h>

#include "registration.h"

at::Tensor scaled_add(double a, const at::Tensor& x, const at::Tensor& y);

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("scaled_add(float a, Tensor x, Tensor y) -> Tensor");
  ops.impl("scaled_add", c10::DispatchKey::CPU, &scaled_add);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
