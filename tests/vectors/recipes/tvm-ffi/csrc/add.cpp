#include <tvm/ffi/tvm_ffi.h>

void add(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView out) {
  TVM_FFI_CHECK(x.size(0) == y.size(0), ValueError) << "x has " << x.size(0) << " elements, y has " << y.size(0);
  const float* left = static_cast<const float*>(x.data_ptr());
  const float* right = static_cast<const float*>(y.data_ptr());
  float* to = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < x.size(0); ++i) to[i] = left[i] + right[i];
}
