#include <ATen/ATen.h>

at::Tensor scaled_add(double a, const at::Tensor& x, const at::Tensor& y) {
  TORCH_CHECK(x.sizes() == y.sizes(), "shapes ", x.sizes(), " and ", y.sizes(), " differ");
  return at::add(y, x, a);
}
