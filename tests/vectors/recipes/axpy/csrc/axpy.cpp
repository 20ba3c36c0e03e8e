#include "axpy.h"

#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/Exception.h>

#include <sstream>

float scale();

// a * x + y, scaled; the check's message is made through a string stream, which newer libstdc++ moved into the library.
torch::stable::Tensor axpy(double a, const torch::stable::Tensor& x, const torch::stable::Tensor& y) {
  std::ostringstream said;
  said << "x has " << x.numel() << " elements, y has " << y.numel();
  STD_TORCH_CHECK(x.numel() == y.numel(), said.str());
  torch::stable::Tensor out = torch::stable::empty_like(x);
  const float* in = static_cast<const float*>(x.const_data_ptr());
  const float* add = static_cast<const float*>(y.const_data_ptr());
  float* to = static_cast<float*>(out.mutable_data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = static_cast<float>(a) * scale() * in[i] + add[i];
  return out;
}
