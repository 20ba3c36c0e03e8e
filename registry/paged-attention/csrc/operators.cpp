// The operators: from torch tensors to the plain structures of forward.h and cache.h. Every claim about shapes and indices
// is checked again here, because an operator can be called without the Python functions in front of it.
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "../torch-ext/torch_binding.h"
#include "cache.h"
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
      STD_TORCH_CHECK(false, "paged_attention: the element type must be float32, bfloat16 or float16");
  }
}

int64_t element_bytes(const Tensor& tensor) { return tensor.scalar_type() == ScalarType::Float ? 4 : 2; }

// Rows along the last dimension must be dense: everything steps freely over the other dimensions only.
void check_rows(const Tensor& tensor, const Tensor& like, int64_t dimensions, const char* name) {
  STD_TORCH_CHECK(tensor.is_cpu() && tensor.dim() == dimensions, "paged_attention: ", name, " must be a CPU tensor of ",
                  dimensions, " dimensions");
  STD_TORCH_CHECK(tensor.scalar_type() == like.scalar_type(), "paged_attention: ", name, " differs in its element type");
  STD_TORCH_CHECK(tensor.size(dimensions - 1) <= 1 || tensor.stride(dimensions - 1) == 1, "paged_attention: ", name,
                  " must be contiguous along its last dimension");
}

void check_same_shape(const Tensor& tensor, const Tensor& like, const char* name) {
  bool equal = tensor.dim() == like.dim();
  for (int64_t dimension = 0; equal && dimension < like.dim(); ++dimension) {
    equal = tensor.size(dimension) == like.size(dimension);
  }
  STD_TORCH_CHECK(equal, "paged_attention: ", name, " has the wrong shape");
}

const int32_t* integers(const Tensor& tensor, int64_t count, const char* name) {
  STD_TORCH_CHECK(tensor.is_cpu() && tensor.scalar_type() == ScalarType::Int && tensor.is_contiguous() &&
                      tensor.numel() == count,
                  "paged_attention: ", name, " must be a contiguous int32 CPU tensor of ", count, " entries");
  return tensor.const_data_ptr<int32_t>();
}

const float* per_head_floats(const std::optional<Tensor>& tensor, int64_t heads, int64_t batch, const char* name) {
  if (!tensor.has_value()) return nullptr;
  const int64_t dimensions = tensor->dim();
  STD_TORCH_CHECK(tensor->is_cpu() && tensor->scalar_type() == ScalarType::Float && tensor->is_contiguous() &&
                      (dimensions == 1 || (dimensions == 2 && tensor->size(0) == batch)) &&
                      tensor->size(dimensions - 1) == heads,
                  "paged_attention: ", name, " must be a contiguous float32 CPU tensor with one entry per query head");
  return tensor->const_data_ptr<float>();
}

// Rows that belong to no sequence get what a row without keys gets.
void clear_rows_from(int64_t row, const Tensor& out, const Tensor& lse) {
  for (; row < out.size(0); ++row) {
    for (int64_t head = 0; head < out.size(1); ++head) {
      char* at = static_cast<char*>(out.mutable_data_ptr()) +
                 (row * out.stride(0) + head * out.stride(1)) * element_bytes(out);
      std::memset(at, 0, out.size(2) * element_bytes(out));
      lse.mutable_data_ptr<float>()[row * lse.stride(0) + head * lse.stride(1)] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace

void paged_fwd(Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor cu_seqlens_q, Tensor k_begins,
               Tensor k_lens, std::optional<Tensor> alibi_slopes, std::optional<Tensor> s_aux, int64_t,
               double softmax_scale, int64_t window_left, int64_t window_right, double softcap, int64_t, Tensor out,
               Tensor lse) {
  check_rows(q, q, 3, "q");
  check_rows(k_cache, q, 4, "k_cache");
  check_rows(v_cache, q, 4, "v_cache");
  check_rows(out, q, 3, "out");
  check_same_shape(v_cache, k_cache, "v_cache");
  check_same_shape(out, q, "out");
  const int64_t q_heads = q.size(1);
  const int64_t head_dim = q.size(2);
  const int64_t pages = k_cache.size(0);
  const int64_t page_size = k_cache.size(1);
  const int64_t k_heads = k_cache.size(2);
  STD_TORCH_CHECK(head_dim >= 1 && head_dim <= flash_attn::kMaxHeadDim && k_cache.size(3) == head_dim,
                  "paged_attention: q and the cache must have one head dimension, 1 to 256");
  STD_TORCH_CHECK(k_heads >= 1 && q_heads % k_heads == 0, "paged_attention: q heads must be a multiple of cache heads");
  STD_TORCH_CHECK(std::isfinite(softmax_scale) && softcap >= 0 && std::isfinite(softcap),
                  "paged_attention: softmax_scale must be finite, softcap finite and not negative");
  STD_TORCH_CHECK(lse.is_cpu() && lse.scalar_type() == ScalarType::Float && lse.dim() == 2 && lse.size(0) == q.size(0) &&
                      lse.size(1) == q_heads,
                  "paged_attention: lse must be a float32 CPU tensor with one entry per row and head");
  STD_TORCH_CHECK(block_table.dim() == 2 && cu_seqlens_q.numel() >= 1, "paged_attention: block_table must have 2 dimensions");
  const int64_t batch = cu_seqlens_q.numel() - 1;
  const int64_t table_pages = block_table.size(1);
  STD_TORCH_CHECK(block_table.size(0) == batch, "paged_attention: block_table must have one row per sequence");
  const int32_t* table = integers(block_table, batch * table_pages, "block_table");
  const int32_t* q_starts = integers(cu_seqlens_q, batch + 1, "cu_seqlens_q");
  const int32_t* begins = integers(k_begins, batch, "k_begins");
  const int32_t* lens = integers(k_lens, batch, "k_lens");
  STD_TORCH_CHECK(q_starts[0] == 0 && q_starts[batch] <= q.size(0),
                  "paged_attention: cu_seqlens_q must start at 0 and end within q");

  flash_attn::Forward forward;
  forward.type = element_type(q);
  forward.q = q.const_data_ptr();
  forward.k = k_cache.const_data_ptr();
  forward.v = v_cache.const_data_ptr();
  forward.out = out.mutable_data_ptr();
  forward.lse = lse.mutable_data_ptr<float>();
  forward.q_row_stride = q.stride(0);
  forward.q_head_stride = q.stride(1);
  forward.k_row_stride = k_cache.stride(1);
  forward.k_head_stride = k_cache.stride(2);
  forward.v_row_stride = v_cache.stride(1);
  forward.v_head_stride = v_cache.stride(2);
  forward.out_row_stride = out.stride(0);
  forward.out_head_stride = out.stride(1);
  forward.lse_row_stride = lse.stride(0);
  forward.lse_head_stride = lse.stride(1);
  forward.page_size = page_size;
  forward.k_page_stride = k_cache.stride(0);
  forward.v_page_stride = v_cache.stride(0);
  forward.q_heads = q_heads;
  forward.k_heads = k_heads;
  forward.head_dim = head_dim;
  forward.softmax_scale = static_cast<float>(softmax_scale);
  forward.softcap = static_cast<float>(softcap);
  forward.sinks = per_head_floats(s_aux, q_heads, -1, "s_aux");
  forward.mask = {window_left, window_right};
  const float* slopes = per_head_floats(alibi_slopes, q_heads, batch, "alibi_slopes");
  const int64_t slopes_stride = slopes != nullptr && alibi_slopes->dim() == 2 ? q_heads : 0;
  for (int64_t b = 0; b < batch; ++b) {
    STD_TORCH_CHECK(q_starts[b] <= q_starts[b + 1], "paged_attention: cu_seqlens_q must not decrease");
    const int64_t end = int64_t{begins[b]} + lens[b];
    STD_TORCH_CHECK(begins[b] >= 0 && lens[b] >= 0 && end <= table_pages * page_size, "paged_attention: the keys of sequence ",
                    b, " lie outside its pages");
    flash_attn::Sequence sequence;
    sequence.q_offset = q_starts[b] * q.stride(0);
    sequence.out_offset = q_starts[b] * out.stride(0);
    sequence.lse_offset = q_starts[b] * lse.stride(0);
    sequence.q_len = q_starts[b + 1] - q_starts[b];
    sequence.k_len = lens[b];
    sequence.k_begin = begins[b];
    sequence.pages = table + b * table_pages;
    sequence.k_offset = 0;
    sequence.v_offset = 0;
    sequence.slopes = slopes == nullptr ? nullptr : slopes + b * slopes_stride;
    if (lens[b] > 0) {
      for (int64_t page = begins[b] / page_size; page <= (end - 1) / page_size; ++page) {
        STD_TORCH_CHECK(sequence.pages[page] >= 0 && sequence.pages[page] < pages, "paged_attention: block_table names page ",
                        sequence.pages[page], " of ", pages);
      }
    }
    forward.sequences.push_back(sequence);
  }
  if (q_heads > 0) flash_attn::run_forward(forward);
  clear_rows_from(q_starts[batch], out, lse);
}

void reshape_and_cache(Tensor key, Tensor value, Tensor k_cache, Tensor v_cache, Tensor slot_mapping) {
  check_rows(key, key, 3, "key");
  check_rows(value, key, 3, "value");
  check_rows(k_cache, key, 4, "k_cache");
  check_rows(v_cache, key, 4, "v_cache");
  check_same_shape(value, key, "value");
  check_same_shape(v_cache, k_cache, "v_cache");
  element_type(key);
  const int64_t tokens = key.size(0);
  const int64_t heads = key.size(1);
  STD_TORCH_CHECK(k_cache.size(2) == heads && k_cache.size(3) == key.size(2),
                  "paged_attention: the cache must have the heads and head dimension of key");
  STD_TORCH_CHECK(slot_mapping.is_cpu() && slot_mapping.scalar_type() == ScalarType::Long && slot_mapping.is_contiguous() &&
                      slot_mapping.dim() == 1 && slot_mapping.size(0) == tokens,
                  "paged_attention: slot_mapping must be a contiguous int64 CPU tensor with one entry per token");
  const int64_t* slots = slot_mapping.const_data_ptr<int64_t>();
  const int64_t capacity = k_cache.size(0) * k_cache.size(1);
  for (int64_t token = 0; token < tokens; ++token) {
    STD_TORCH_CHECK(slots[token] < capacity, "paged_attention: slot_mapping names slot ", slots[token], " of ", capacity);
  }
  const int64_t bytes = element_bytes(key);
  const auto rows_of = [&](const Tensor& rows, const Tensor& cache) {
    return paged_attention::Rows{static_cast<const char*>(rows.const_data_ptr()),
                                 rows.stride(0) * bytes,
                                 rows.stride(1) * bytes,
                                 static_cast<char*>(cache.mutable_data_ptr()),
                                 cache.stride(0) * bytes,
                                 cache.stride(1) * bytes,
                                 cache.stride(2) * bytes,
                                 rows.size(2) * bytes};
  };
  const paged_attention::Rows tensors[] = {rows_of(key, k_cache), rows_of(value, v_cache)};
  paged_attention::write_rows(tensors, 2, heads, slots, tokens, std::max<int64_t>(1, k_cache.size(1)));
}

void copy_blocks(Tensor cache, Tensor block_pairs) {
  STD_TORCH_CHECK(cache.is_cpu() && cache.dim() == 4, "paged_attention: the cache must be a CPU tensor of 4 dimensions");
  element_type(cache);
  STD_TORCH_CHECK(block_pairs.is_cpu() && block_pairs.scalar_type() == ScalarType::Long && block_pairs.is_contiguous() &&
                      block_pairs.dim() == 2 && block_pairs.size(1) == 2,
                  "paged_attention: block_pairs must be a contiguous int64 CPU tensor of shape (pairs, 2)");
  // The smallest stride order in which a page is one run of memory; which of its dimensions comes first does not matter.
  const int64_t elements = cache.size(1) * cache.size(2) * cache.size(3);
  int64_t span = 1;
  for (int64_t dimension = 1; dimension < 4; ++dimension) {
    if (cache.size(dimension) > 0) span += (cache.size(dimension) - 1) * cache.stride(dimension);
  }
  STD_TORCH_CHECK(elements == 0 || span == elements, "paged_attention: every page of the cache must be one run of memory");
  const int64_t* pairs = block_pairs.const_data_ptr<int64_t>();
  const int64_t count = block_pairs.size(0);
  std::vector<int64_t> sources;
  std::vector<int64_t> destinations;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t page : {pairs[2 * i], pairs[2 * i + 1]}) {
      STD_TORCH_CHECK(page >= 0 && page < cache.size(0), "paged_attention: block_pairs names page ", page, " of ", cache.size(0));
    }
    sources.push_back(pairs[2 * i]);
    destinations.push_back(pairs[2 * i + 1]);
  }
  std::sort(sources.begin(), sources.end());
  std::sort(destinations.begin(), destinations.end());
  for (int64_t i = 0; i < count; ++i) {
    STD_TORCH_CHECK((i == 0 || destinations[i] != destinations[i - 1]) &&
                        !std::binary_search(sources.begin(), sources.end(), destinations[i]),
                    "paged_attention: page ", destinations[i], " is written by one pair and used by another");
  }
  const int64_t bytes = element_bytes(cache);
  paged_attention::copy_pages(static_cast<char*>(cache.mutable_data_ptr()), cache.stride(0) * bytes, elements * bytes, pairs,
                              count);
}

void merge_state(Tensor first, Tensor first_lse, Tensor second, Tensor second_lse, Tensor out, Tensor lse) {
  STD_TORCH_CHECK(first.is_cpu() && second.is_cpu() && out.is_cpu() && first.dim() == 3,
                  "paged_attention: the states must be CPU tensors of 3 dimensions");
  const auto fits = [&](const Tensor& tensor) {
    bool equal = tensor.is_contiguous() && tensor.scalar_type() == first.scalar_type() && tensor.dim() == 3;
    for (int64_t dimension = 0; equal && dimension < 3; ++dimension) equal = tensor.size(dimension) == first.size(dimension);
    return equal;
  };
  const auto fits_lse = [&](const Tensor& tensor) {
    return tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == ScalarType::Float && tensor.dim() == 2 &&
           tensor.size(0) == first.size(0) && tensor.size(1) == first.size(1);
  };
  STD_TORCH_CHECK(fits(first) && fits(second) && fits(out), "paged_attention: the states must be contiguous and alike");
  STD_TORCH_CHECK(fits_lse(first_lse) && fits_lse(second_lse) && fits_lse(lse),
                  "paged_attention: log-sum-exps must be contiguous float32 tensors with one entry per row and head");
  paged_attention::Merge merge;
  merge.type = element_type(first);
  merge.first = first.const_data_ptr();
  merge.first_lse = first_lse.const_data_ptr<float>();
  merge.second = second.const_data_ptr();
  merge.second_lse = second_lse.const_data_ptr<float>();
  merge.out = out.mutable_data_ptr();
  merge.lse = lse.mutable_data_ptr<float>();
  merge.rows = first.size(0) * first.size(1);
  merge.head_dim = first.size(2);
  paged_attention::merge(merge);
}

std::string cpu_capability(std::string request) { return flash_attn::select_instruction_set(request); }
