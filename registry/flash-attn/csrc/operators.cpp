// The operators: from torch tensors to the plain structures of forward.h. Every claim about shapes is checked again here,
// because an operator can be called without the Python functions in front of it.
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <tuple>

#include "../torch-ext/torch_binding.h"
#include "backward.h"
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

// Heads and head dimension are the last two dimensions of every operand.
void check_heads(const Tensor& q, const Tensor& k, const Tensor& v) {
  const int64_t head_dim = q.size(q.dim() - 1);
  const int64_t k_heads = k.size(k.dim() - 2);
  STD_TORCH_CHECK(head_dim >= 1 && head_dim <= flash_attn::kMaxHeadDim, "flash_attn: the head dimension must be 1 to 256");
  STD_TORCH_CHECK(k.size(k.dim() - 1) == head_dim, "flash_attn: q and k differ in their head dimension");
  for (int64_t dimension = 0; dimension < k.dim(); ++dimension) {
    STD_TORCH_CHECK(k.size(dimension) == v.size(dimension), "flash_attn: k and v must have one shape");
  }
  STD_TORCH_CHECK(k_heads >= 1 && q.size(q.dim() - 2) % k_heads == 0, "flash_attn: q heads must be a multiple of k heads");
}

void check_scalars(double softmax_scale, double softcap) {
  STD_TORCH_CHECK(std::isfinite(softmax_scale) && softcap >= 0 && std::isfinite(softcap),
                  "flash_attn: softmax_scale must be finite, softcap finite and not negative");
}

const float* per_head_floats(const std::optional<Tensor>& tensor, int64_t heads, int64_t batch, const char* name) {
  if (!tensor.has_value()) return nullptr;
  const int64_t dimensions = tensor->dim();
  STD_TORCH_CHECK(tensor->is_cpu() && tensor->scalar_type() == ScalarType::Float && tensor->is_contiguous() &&
                      (dimensions == 1 || (dimensions == 2 && tensor->size(0) == batch)) &&
                      tensor->size(dimensions - 1) == heads,
                  "flash_attn: ", name, " must be a contiguous float32 CPU tensor with one entry per query head");
  return tensor->const_data_ptr<float>();
}

const int32_t* integers(const Tensor& tensor, int64_t count, const char* name) {
  STD_TORCH_CHECK(tensor.is_cpu() && tensor.scalar_type() == ScalarType::Int && tensor.is_contiguous() && tensor.dim() == 1 &&
                      tensor.size(0) == count,
                  "flash_attn: ", name, " must be a contiguous int32 CPU tensor of ", count, " entries");
  return tensor.const_data_ptr<int32_t>();
}

// Where the sequences of a batch lie, checked.
struct Lengths {
  int64_t batch;
  const int32_t* q_starts;
  const int32_t* k_begins;
  const int32_t* k_lens;
};

// `capacity` is the number of key rows that a sequence can reach.
Lengths check_lengths(const Tensor& cu_seqlens_q, const Tensor& k_begins, const Tensor& k_lens, int64_t rows,
                      int64_t capacity) {
  STD_TORCH_CHECK(cu_seqlens_q.dim() == 1 && cu_seqlens_q.size(0) >= 1, "flash_attn: cu_seqlens_q must have an entry");
  Lengths lengths;
  lengths.batch = cu_seqlens_q.size(0) - 1;
  lengths.q_starts = integers(cu_seqlens_q, lengths.batch + 1, "cu_seqlens_q");
  lengths.k_begins = integers(k_begins, lengths.batch, "k_begins");
  lengths.k_lens = integers(k_lens, lengths.batch, "k_lens");
  STD_TORCH_CHECK(lengths.q_starts[0] == 0 && lengths.q_starts[lengths.batch] <= rows,
                  "flash_attn: cu_seqlens_q must start at 0 and end within q");
  for (int64_t b = 0; b < lengths.batch; ++b) {
    STD_TORCH_CHECK(lengths.q_starts[b] <= lengths.q_starts[b + 1], "flash_attn: cu_seqlens_q must not decrease");
    STD_TORCH_CHECK(lengths.k_begins[b] >= 0 && lengths.k_lens[b] >= 0 &&
                        int64_t{lengths.k_begins[b]} + lengths.k_lens[b] <= capacity,
                    "flash_attn: the keys of sequence ", b, " lie outside k");
  }
  return lengths;
}

void check_shape(const Tensor& tensor, const Tensor& q, const char* name) {
  check_operand(tensor, q, q.dim(), name);
  for (int64_t dimension = 0; dimension < q.dim(); ++dimension) {
    STD_TORCH_CHECK(tensor.size(dimension) == q.size(dimension), "flash_attn: ", name, " must have the shape of q");
  }
}

void check_lse(const Tensor& lse, std::initializer_list<int64_t> shape) {
  bool fits = lse.is_cpu() && lse.scalar_type() == ScalarType::Float && lse.dim() == static_cast<int64_t>(shape.size());
  int64_t dimension = 0;
  for (int64_t size : shape) {
    fits = fits && lse.size(dimension) == size;
    ++dimension;
  }
  STD_TORCH_CHECK(fits, "flash_attn: lse and its gradient must be float32 CPU tensors with one entry per row and head");
}

// A last dimension of one element may carry any stride; the kernels never step along it.
Tensor with_dense_rows(const Tensor& tensor) {
  const int64_t last = tensor.dim() - 1;
  return tensor.size(last) <= 1 || tensor.stride(last) == 1 ? tensor : torch::stable::contiguous(tensor);
}

// Rows of q that belong to no sequence get what a row without keys gets.
void clear_rows_from(int64_t row, const Tensor& out, const Tensor& lse) {
  const int64_t rows = out.size(0);
  const int64_t row_bytes = out.size(1) * out.size(2) * (out.scalar_type() == ScalarType::Float ? 4 : 2);
  std::memset(static_cast<char*>(out.mutable_data_ptr()) + row * row_bytes, 0, (rows - row) * row_bytes);
  float* sums = lse.mutable_data_ptr<float>();
  for (int64_t head = 0; head < lse.size(0); ++head) {
    std::fill(sums + head * rows + row, sums + (head + 1) * rows, -std::numeric_limits<float>::infinity());
  }
}

// Everything but the sequences; rows and heads are the dimensions before the last of q, k and v.
flash_attn::Forward describe(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                             double softmax_scale, int64_t window_left, int64_t window_right, double softcap) {
  const int64_t q_heads = q.size(q.dim() - 2);
  const int64_t head_dim = q.size(q.dim() - 1);
  flash_attn::Forward forward;
  forward.type = element_type(q);
  forward.q = q.const_data_ptr();
  forward.k = k.const_data_ptr();
  forward.v = v.const_data_ptr();
  forward.out = out.mutable_data_ptr();
  forward.lse = lse.mutable_data_ptr<float>();
  forward.q_row_stride = q.stride(q.dim() - 3);
  forward.q_head_stride = q.stride(q.dim() - 2);
  forward.k_row_stride = k.stride(k.dim() - 3);
  forward.k_head_stride = k.stride(k.dim() - 2);
  forward.v_row_stride = v.stride(v.dim() - 3);
  forward.v_head_stride = v.stride(v.dim() - 2);
  forward.out_row_stride = q_heads * head_dim;
  forward.out_head_stride = head_dim;
  forward.lse_row_stride = 1;
  forward.lse_head_stride = lse.size(lse.dim() - 1);
  forward.page_size = 1;
  forward.k_page_stride = 0;
  forward.v_page_stride = 0;
  forward.q_heads = q_heads;
  forward.k_heads = k.size(k.dim() - 2);
  forward.head_dim = head_dim;
  forward.softmax_scale = static_cast<float>(softmax_scale);
  forward.softcap = static_cast<float>(softcap);
  forward.sinks = nullptr;
  forward.mask = {window_left, window_right};
  return forward;
}

flash_attn::Rows rows_of(const Tensor& tensor) {
  return {tensor.const_data_ptr(), tensor.stride(tensor.dim() - 3), tensor.stride(tensor.dim() - 2)};
}

flash_attn::Rows new_rows_of(const Tensor& tensor) {
  return {tensor.mutable_data_ptr(), tensor.stride(tensor.dim() - 3), tensor.stride(tensor.dim() - 2)};
}

flash_attn::Backward describe_backward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out, const Tensor& lse,
                                       const Tensor& grad_out, const std::optional<Tensor>& grad_lse, const Tensor& grad_q,
                                       const Tensor& grad_k, const Tensor& grad_v, double softmax_scale, int64_t window_left,
                                       int64_t window_right, double softcap) {
  flash_attn::Backward backward;
  backward.type = element_type(q);
  backward.q = rows_of(q);
  backward.out = rows_of(out);
  backward.grad_out = rows_of(grad_out);
  backward.k = rows_of(k);
  backward.v = rows_of(v);
  backward.grad_q = new_rows_of(grad_q);
  backward.grad_k = new_rows_of(grad_k);
  backward.grad_v = new_rows_of(grad_v);
  backward.lse = lse.const_data_ptr<float>();
  backward.grad_lse = grad_lse.has_value() ? grad_lse->const_data_ptr<float>() : nullptr;
  backward.lse_row_stride = 1;
  backward.lse_head_stride = lse.size(lse.dim() - 1);
  backward.q_heads = q.size(q.dim() - 2);
  backward.k_heads = k.size(k.dim() - 2);
  backward.head_dim = q.size(q.dim() - 1);
  backward.softmax_scale = static_cast<float>(softmax_scale);
  backward.softcap = static_cast<float>(softcap);
  backward.mask = {window_left, window_right};
  return backward;
}

}  // namespace

std::tuple<Tensor, Tensor> fwd(Tensor q, Tensor k, Tensor v, std::optional<Tensor> alibi_slopes, std::optional<Tensor> s_aux,
                               double softmax_scale, int64_t window_left, int64_t window_right, double softcap) {
  check_operand(q, q, 4, "q");
  check_operand(k, q, 4, "k");
  check_operand(v, q, 4, "v");
  check_heads(q, k, v);
  check_scalars(softmax_scale, softcap);
  const int64_t batch = q.size(0);
  const int64_t q_len = q.size(1);
  const int64_t q_heads = q.size(2);
  const int64_t head_dim = q.size(3);
  STD_TORCH_CHECK(k.size(0) == batch, "flash_attn: q and k differ in their batch size");

  q = with_dense_rows(q);
  k = with_dense_rows(k);
  v = with_dense_rows(v);
  Tensor out = torch::stable::new_empty(q, {batch, q_len, q_heads, head_dim});
  Tensor lse = torch::stable::new_empty(q, {batch, q_heads, q_len}, ScalarType::Float);
  flash_attn::Forward forward = describe(q, k, v, out, lse, softmax_scale, window_left, window_right, softcap);
  const float* slopes = per_head_floats(alibi_slopes, q_heads, batch, "alibi_slopes");
  const int64_t slopes_stride = slopes != nullptr && alibi_slopes->dim() == 2 ? q_heads : 0;
  forward.sinks = per_head_floats(s_aux, q_heads, -1, "s_aux");
  for (int64_t b = 0; b < batch; ++b) {
    flash_attn::Sequence sequence;
    sequence.q_offset = b * q.stride(0);
    sequence.out_offset = b * q_len * q_heads * head_dim;
    sequence.lse_offset = b * q_heads * q_len;
    sequence.q_len = q_len;
    sequence.k_len = k.size(1);
    sequence.k_begin = 0;
    sequence.pages = nullptr;
    sequence.k_offset = b * k.stride(0);
    sequence.v_offset = b * v.stride(0);
    sequence.slopes = slopes == nullptr ? nullptr : slopes + b * slopes_stride;
    forward.sequences.push_back(sequence);
  }
  flash_attn::run_forward(forward);
  return {out, lse};
}

std::tuple<Tensor, Tensor> varlen_fwd(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor k_begins, Tensor k_lens,
                                      std::optional<Tensor> block_table, std::optional<Tensor> alibi_slopes,
                                      std::optional<Tensor> s_aux, int64_t, int64_t, double softmax_scale, int64_t window_left,
                                      int64_t window_right, double softcap) {
  const bool paged = block_table.has_value();
  check_operand(q, q, 3, "q");
  check_operand(k, q, paged ? 4 : 3, "k");
  check_operand(v, q, paged ? 4 : 3, "v");
  check_heads(q, k, v);
  check_scalars(softmax_scale, softcap);
  const int64_t rows = q.size(0);
  const int64_t q_heads = q.size(1);
  const int64_t head_dim = q.size(2);
  const int32_t* pages = nullptr;
  int64_t pages_of_sequence = 0;
  int64_t capacity = k.size(0);
  if (paged) {
    STD_TORCH_CHECK(block_table->is_cpu() && block_table->scalar_type() == ScalarType::Int && block_table->is_contiguous() &&
                        block_table->dim() == 2 && block_table->size(0) == k_lens.numel(),
                    "flash_attn: block_table must be a contiguous int32 CPU tensor with one row per sequence");
    pages = block_table->const_data_ptr<int32_t>();
    pages_of_sequence = block_table->size(1);
    capacity = pages_of_sequence * k.size(1);
  }
  const Lengths lengths = check_lengths(cu_seqlens_q, k_begins, k_lens, rows, capacity);
  const int64_t batch = lengths.batch;
  q = with_dense_rows(q);
  k = with_dense_rows(k);
  v = with_dense_rows(v);
  Tensor out = torch::stable::new_empty(q, {rows, q_heads, head_dim});
  Tensor lse = torch::stable::new_empty(q, {q_heads, rows}, ScalarType::Float);
  flash_attn::Forward forward = describe(q, k, v, out, lse, softmax_scale, window_left, window_right, softcap);
  const float* slopes = per_head_floats(alibi_slopes, q_heads, batch, "alibi_slopes");
  const int64_t slopes_stride = slopes != nullptr && alibi_slopes->dim() == 2 ? q_heads : 0;
  forward.sinks = per_head_floats(s_aux, q_heads, -1, "s_aux");
  if (paged) {
    forward.page_size = k.size(1);
    forward.k_page_stride = k.stride(0);
    forward.v_page_stride = v.stride(0);
  }
  for (int64_t b = 0; b < batch; ++b) {
    flash_attn::Sequence sequence;
    sequence.q_offset = lengths.q_starts[b] * q.stride(0);
    sequence.out_offset = lengths.q_starts[b] * q_heads * head_dim;
    sequence.lse_offset = lengths.q_starts[b];
    sequence.q_len = lengths.q_starts[b + 1] - lengths.q_starts[b];
    sequence.k_len = lengths.k_lens[b];
    sequence.k_begin = lengths.k_begins[b];
    sequence.pages = nullptr;
    sequence.k_offset = 0;
    sequence.v_offset = 0;
    sequence.slopes = slopes == nullptr ? nullptr : slopes + b * slopes_stride;
    if (paged && lengths.k_lens[b] > 0) {
      sequence.pages = pages + b * pages_of_sequence;
      for (int64_t page = lengths.k_begins[b] / forward.page_size; page <= (int64_t{lengths.k_begins[b]} + lengths.k_lens[b] - 1) / forward.page_size; ++page) {
        STD_TORCH_CHECK(sequence.pages[page] >= 0 && sequence.pages[page] < k.size(0), "flash_attn: block_table names page ",
                        sequence.pages[page], " of ", k.size(0));
      }
    }
    forward.sequences.push_back(sequence);
  }
  flash_attn::run_forward(forward);
  clear_rows_from(lengths.q_starts[batch], out, lse);
  return {out, lse};
}

std::tuple<Tensor, Tensor, Tensor> bwd(Tensor grad_out, std::optional<Tensor> grad_lse, Tensor q, Tensor k, Tensor v,
                                       Tensor out, Tensor lse, std::optional<Tensor> alibi_slopes, double softmax_scale,
                                       int64_t window_left, int64_t window_right, double softcap) {
  check_operand(q, q, 4, "q");
  check_operand(k, q, 4, "k");
  check_operand(v, q, 4, "v");
  check_heads(q, k, v);
  check_scalars(softmax_scale, softcap);
  const int64_t batch = q.size(0);
  const int64_t q_len = q.size(1);
  const int64_t q_heads = q.size(2);
  STD_TORCH_CHECK(k.size(0) == batch, "flash_attn: q and k differ in their batch size");
  check_shape(grad_out, q, "grad_out");
  check_shape(out, q, "out");
  check_lse(lse, {batch, q_heads, q_len});
  q = with_dense_rows(q);
  k = with_dense_rows(k);
  v = with_dense_rows(v);
  out = with_dense_rows(out);
  grad_out = with_dense_rows(grad_out);
  lse = torch::stable::contiguous(lse);
  if (grad_lse.has_value()) {
    check_lse(*grad_lse, {batch, q_heads, q_len});
    grad_lse = torch::stable::contiguous(*grad_lse);
  }
  Tensor grad_q = torch::stable::new_empty(q, q.sizes());
  Tensor grad_k = torch::stable::new_empty(k, k.sizes());
  Tensor grad_v = torch::stable::new_empty(v, v.sizes());
  flash_attn::Backward backward =
      describe_backward(q, k, v, out, lse, grad_out, grad_lse, grad_q, grad_k, grad_v, softmax_scale, window_left,
                        window_right, softcap);
  const float* slopes = per_head_floats(alibi_slopes, q_heads, batch, "alibi_slopes");
  const int64_t slopes_stride = slopes != nullptr && alibi_slopes->dim() == 2 ? q_heads : 0;
  for (int64_t b = 0; b < batch; ++b) {
    flash_attn::BackwardSequence sequence;
    sequence.q_offset = b * q.stride(0);
    sequence.out_offset = b * out.stride(0);
    sequence.grad_out_offset = b * grad_out.stride(0);
    sequence.grad_q_offset = b * grad_q.stride(0);
    sequence.lse_offset = b * q_heads * q_len;
    sequence.k_offset = b * k.stride(0);
    sequence.v_offset = b * v.stride(0);
    sequence.grad_k_offset = b * grad_k.stride(0);
    sequence.grad_v_offset = b * grad_v.stride(0);
    sequence.q_len = q_len;
    sequence.k_len = k.size(1);
    sequence.slopes = slopes == nullptr ? nullptr : slopes + b * slopes_stride;
    backward.sequences.push_back(sequence);
  }
  flash_attn::run_backward(backward);
  return {grad_q, grad_k, grad_v};
}

std::tuple<Tensor, Tensor, Tensor> varlen_bwd(Tensor grad_out, std::optional<Tensor> grad_lse, Tensor q, Tensor k, Tensor v,
                                              Tensor out, Tensor lse, Tensor cu_seqlens_q, Tensor k_begins, Tensor k_lens,
                                              std::optional<Tensor> alibi_slopes, int64_t, int64_t, double softmax_scale,
                                              int64_t window_left, int64_t window_right, double softcap) {
  check_operand(q, q, 3, "q");
  check_operand(k, q, 3, "k");
  check_operand(v, q, 3, "v");
  check_heads(q, k, v);
  check_scalars(softmax_scale, softcap);
  const int64_t rows = q.size(0);
  const int64_t q_heads = q.size(1);
  check_shape(grad_out, q, "grad_out");
  check_shape(out, q, "out");
  check_lse(lse, {q_heads, rows});
  const Lengths lengths = check_lengths(cu_seqlens_q, k_begins, k_lens, rows, k.size(0));
  q = with_dense_rows(q);
  k = with_dense_rows(k);
  v = with_dense_rows(v);
  out = with_dense_rows(out);
  grad_out = with_dense_rows(grad_out);
  lse = torch::stable::contiguous(lse);
  if (grad_lse.has_value()) {
    check_lse(*grad_lse, {q_heads, rows});
    grad_lse = torch::stable::contiguous(*grad_lse);
  }
  // Rows that belong to no sequence get no gradient.
  Tensor grad_q = torch::stable::new_zeros(q, q.sizes());
  Tensor grad_k = torch::stable::new_zeros(k, k.sizes());
  Tensor grad_v = torch::stable::new_zeros(v, v.sizes());
  flash_attn::Backward backward =
      describe_backward(q, k, v, out, lse, grad_out, grad_lse, grad_q, grad_k, grad_v, softmax_scale, window_left,
                        window_right, softcap);
  const float* slopes = per_head_floats(alibi_slopes, q_heads, lengths.batch, "alibi_slopes");
  const int64_t slopes_stride = slopes != nullptr && alibi_slopes->dim() == 2 ? q_heads : 0;
  int64_t previous_end = 0;
  for (int64_t b = 0; b < lengths.batch; ++b) {
    const int64_t q_begin = lengths.q_starts[b];
    const int64_t k_begin = lengths.k_begins[b];
    STD_TORCH_CHECK(k_begin >= previous_end, "flash_attn: the keys of two sequences overlap, so their gradients would");
    previous_end = k_begin + lengths.k_lens[b];
    flash_attn::BackwardSequence sequence;
    sequence.q_offset = q_begin * q.stride(0);
    sequence.out_offset = q_begin * out.stride(0);
    sequence.grad_out_offset = q_begin * grad_out.stride(0);
    sequence.grad_q_offset = q_begin * grad_q.stride(0);
    sequence.lse_offset = q_begin;
    sequence.k_offset = k_begin * k.stride(0);
    sequence.v_offset = k_begin * v.stride(0);
    sequence.grad_k_offset = k_begin * grad_k.stride(0);
    sequence.grad_v_offset = k_begin * grad_v.stride(0);
    sequence.q_len = lengths.q_starts[b + 1] - q_begin;
    sequence.k_len = lengths.k_lens[b];
    sequence.slopes = slopes == nullptr ? nullptr : slopes + b * slopes_stride;
    backward.sequences.push_back(sequence);
  }
  flash_attn::run_backward(backward);
  return {grad_q, grad_k, grad_v};
}

std::string cpu_capability(std::string request) { return flash_attn::select_instruction_set(request); }
