#include <cuda_runtime.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index, void** ret_stream);

namespace {

// Internal to this file, which is what compilers make names from paths for.
__device__ float factor = FACTOR;

__global__ void scale_elements(const float* in, float* out, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) out[i] = factor * in[i];
}

}  // namespace

torch::stable::Tensor scale(const torch::stable::Tensor& x) {
  torch::stable::Tensor out = torch::stable::empty_like(x);
  void* stream = nullptr;
  aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream);
  const int64_t count = x.numel();
  const unsigned blocks = static_cast<unsigned>((count + 255) / 256);
  if (blocks) {
    scale_elements<<<blocks, 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float*>(x.const_data_ptr()), static_cast<float*>(out.mutable_data_ptr()), count);
  }
  STD_TORCH_CHECK(cudaGetLastError() == cudaSuccess, "the kernel was not launched");
  return out;
}
