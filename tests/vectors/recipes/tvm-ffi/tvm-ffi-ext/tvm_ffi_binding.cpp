#include <tvm/ffi/tvm_ffi.h>

#ifdef CPU_KERNEL
void add(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView out);

TVM_FFI_DLL_EXPORT_TYPED_FUNC(add, add);
#endif
