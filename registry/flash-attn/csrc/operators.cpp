// The operators: from torch tensors to the plain structures of forward.h. Every claim about shapes is checked again here,
// because an operator can be called without the Python functions in front of it.
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <cmath>
#include <optional>
#include <string>
#include <tuple>

#include "../torch-ext/torch_binding.h"
#include "capability.h"
#include "forward.h"

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

namespace {

flash_attn::ElementType element_type(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      return flash_attn::ElementType::kFloat32;
    case ScalarType::BFloat16:
      return flash_attn::ElementType::kBFloat16;
    case ScalarType::Half:
      return flash_attn::ElementType::kFloat16;
    default:
      STD_TORCH_CHECK(false, "flash_attn: the element type must be float32, bfloat16 or float16");
  }
}

void check_operand(const Tensor& tensor, const Tensor& q, int64_t dimensions, const char* name) {
  STD_TORCH_CHECK(tensor.is_cpu(), "flash_attn: ", name, " must be a CPU tensor");
  STD_TORCH_CHECK(tensor.dim() == dimensions, "flash_attn: ", name, " must have ", dimensions, " dimensions");
  STD_TORCH_CHECK(tensor.scalar_type() == q.scalar_type(), "flash_attn: q, k and v must have one element type");
}

const float* per_head_floats(const std::optional<Tensor>& tensor, int64_t heads, const char* name) {
  if (!tensor.has_value()) return nullptr;
  STD_TORCH_CHECK(tensor->is_cpu() && tensor->scalar_type() == ScalarType::Float && tensor->is_contiguous() &&
                      tensor->dim() >= 1 && tensor->size(tensor->dim() - 1) == heads,
                  "flash_attn: ", name, " must be a contiguous float32 CPU tensor with one entry per query head");
  return tensor->const_data_ptr<float>();
}

// A last dimension of one element may carry any stride; the kernels never step along it.
Tensor with_dense_rows(const Tensor& tensor) {
  const int64_t last = tensor.dim() - 1;
  return tensor.size(last) <= 1 || tensor.stride(last) == 1 ? tensor : torch::stable::contiguous(tensor);
}

}  // namespace

std::tuple<Tensor, Tensor> fwd(Tensor q, Tensor k, Tensor v, std::optional<Tensor> alibi_slopes, std::optional<Tensor> s_aux,
                               double softmax_scale, int64_t window_left, int64_t window_right, double softcap) {
  check_operand(q, q, 4, "q");
  check_operand(k, q, 4, "k");
  check_operand(v, q, 4, "v");
  const int64_t batch = q.size(0);
  const int64_t q_len = q.size(1);
  const int64_t q_heads = q.size(2);
  const int64_t head_dim = q.size(3);
  const int64_t k_len = k.size(1);
  const int64_t k_heads = k.size(2);
  STD_TORCH_CHECK(head_dim >= 1 && head_dim <= flash_attn::kMaxHeadDim, "flash_attn: the head dimension must be 1 to 256");
  STD_TORCH_CHECK(k.size(0) == batch && k.size(3) == head_dim && v.size(0) == batch && v.size(1) == k_len &&
                      v.size(2) == k_heads && v.size(3) == head_dim,
                  "flash_attn: the shapes of q, k and v do not agree");
  STD_TORCH_CHECK(k_heads >= 1 && q_heads % k_heads == 0, "flash_attn: q heads must be a multiple of k heads");
  STD_TORCH_CHECK(std::isfinite(softmax_scale) && softcap >= 0 && std::isfinite(softcap),
                  "flash_attn: softmax_scale must be finite, softcap finite and not negative");
  const float* slopes = per_head_floats(alibi_slopes, q_heads, "alibi_slopes");
  const bool slopes_per_batch = alibi_slopes.has_value() && alibi_slopes->dim() == 2;
  STD_TORCH_CHECK(!slopes_per_batch || alibi_slopes->size(0) == batch, "flash_attn: alibi_slopes must have one row per batch");
  const float* sinks = per_head_floats(s_aux, q_heads, "s_aux");

  q = with_dense_rows(q);
  k = with_dense_rows(k);
  v = with_dense_rows(v);
  Tensor out = torch::stable::new_empty(q, {batch, q_len, q_heads, head_dim});
  Tensor lse = torch::stable::new_empty(q, {batch, q_heads, q_len}, ScalarType::Float);

  flash_attn::Forward forward;
  forward.type = element_type(q);
  forward.q = q.const_data_ptr();
  forward.k = k.const_data_ptr();
  forward.v = v.const_data_ptr();
  forward.out = out.mutable_data_ptr();
  forward.lse = lse.mutable_data_ptr<float>();
  forward.q_row_stride = q.stride(1);
  forward.q_head_stride = q.stride(2);
  forward.k_row_stride = k.stride(1);
  forward.k_head_stride = k.stride(2);
  forward.v_row_stride = v.stride(1);
  forward.v_head_stride = v.stride(2);
  forward.out_row_stride = q_heads * head_dim;
  forward.out_head_stride = head_dim;
  forward.lse_row_stride = 1;
  forward.lse_head_stride = q_len;
  forward.q_heads = q_heads;
  forward.k_heads = k_heads;
  forward.head_dim = head_dim;
  forward.softmax_scale = static_cast<float>(softmax_scale);
  forward.softcap = static_cast<float>(softcap);
  forward.sinks = sinks;
  forward.mask = {window_left, window_right};
  for (int64_t b = 0; b < batch; ++b) {
    forward.sequences.push_back({b * q.stride(0), b * k.stride(0), b * v.stride(0), b * q_len * q_heads * head_dim,
                                 b * q_heads * q_len, q_len, k_len,
                                 slopes == nullptr ? nullptr : slopes + (slopes_per_batch ? b * q_heads : 0)});
  }
  flash_attn::run_forward(forward);
  return {out, lse};
}

std::string cpu_capability(std::string request) { return flash_attn::select_instruction_set(request); }
