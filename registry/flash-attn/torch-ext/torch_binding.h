#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>

// Operators of the native CPU build; shapes and meaning as in flash_attn/operators.py, which holds the same schemas.

std::tuple<torch::stable::Tensor, torch::stable::Tensor> fwd(torch::stable::Tensor q, torch::stable::Tensor k,
                                                             torch::stable::Tensor v,
                                                             std::optional<torch::stable::Tensor> alibi_slopes,
                                                             std::optional<torch::stable::Tensor> s_aux,
                                                             double softmax_scale, int64_t window_left,
                                                             int64_t window_right, double softcap);

std::tuple<torch::stable::Tensor, torch::stable::Tensor> varlen_fwd(
    torch::stable::Tensor q, torch::stable::Tensor k, torch::stable::Tensor v, torch::stable::Tensor cu_seqlens_q,
    torch::stable::Tensor k_begins, torch::stable::Tensor k_lens, std::optional<torch::stable::Tensor> block_table,
    std::optional<torch::stable::Tensor> alibi_slopes, std::optional<torch::stable::Tensor> s_aux, int64_t max_seqlen_q,
    int64_t max_seqlen_k, double softmax_scale, int64_t window_left, int64_t window_right, double softcap);

std::tuple<torch::stable::Tensor, torch::stable::Tensor, torch::stable::Tensor> bwd(
    torch::stable::Tensor grad_out, std::optional<torch::stable::Tensor> grad_lse, torch::stable::Tensor q,
    torch::stable::Tensor k, torch::stable::Tensor v, torch::stable::Tensor out, torch::stable::Tensor lse,
    std::optional<torch::stable::Tensor> alibi_slopes, double softmax_scale, int64_t window_left, int64_t window_right,
    double softcap);

std::tuple<torch::stable::Tensor, torch::stable::Tensor, torch::stable::Tensor> varlen_bwd(
    torch::stable::Tensor grad_out, std::optional<torch::stable::Tensor> grad_lse, torch::stable::Tensor q,
    torch::stable::Tensor k, torch::stable::Tensor v, torch::stable::Tensor out, torch::stable::Tensor lse,
    torch::stable::Tensor cu_seqlens_q, torch::stable::Tensor k_begins, torch::stable::Tensor k_lens,
    std::optional<torch::stable::Tensor> alibi_slopes, int64_t max_seqlen_q, int64_t max_seqlen_k, double softmax_scale,
    int64_t window_left, int64_t window_right, double softcap);

std::string cpu_capability(std::string request);
