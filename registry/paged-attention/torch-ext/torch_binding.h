#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>

// Operators of the native CPU build; shapes and meaning as in paged_attention/operators.py, which holds the same schemas.

void paged_fwd(torch::stable::Tensor q, torch::stable::Tensor k_cache, torch::stable::Tensor v_cache,
               torch::stable::Tensor block_table, torch::stable::Tensor cu_seqlens_q, torch::stable::Tensor k_begins,
               torch::stable::Tensor k_lens, std::optional<torch::stable::Tensor> alibi_slopes,
               std::optional<torch::stable::Tensor> s_aux, int64_t max_seqlen_q, double softmax_scale, int64_t window_left,
               int64_t window_right, double softcap, int64_t num_splits, torch::stable::Tensor out,
               torch::stable::Tensor lse);

void reshape_and_cache(torch::stable::Tensor key, torch::stable::Tensor value, torch::stable::Tensor k_cache,
                       torch::stable::Tensor v_cache, torch::stable::Tensor slot_mapping);

void copy_blocks(torch::stable::Tensor cache, torch::stable::Tensor block_pairs);

void merge_state(torch::stable::Tensor first, torch::stable::Tensor first_lse, torch::stable::Tensor second,
                 torch::stable::Tensor second_lse, torch::stable::Tensor out, torch::stable::Tensor lse);

std::string cpu_capability(std::string request);
