"""The operators on Triton, registered where no native library is.

With TRITON_INTERPRET=1 they run on CPU tensors too, slowly: that is for tests.
"""

from typing import Optional, Tuple

import torch
import triton

from . import triton_backward, triton_forward
from ._ops import add_op_namespace_prefix

INTERPRETED = not isinstance(triton_forward.forward_kernel, triton.JITFunction)

DEVICE_TYPES = ("cpu", "cuda", "xpu") if INTERPRETED else ("cuda", "xpu")


@torch.library.custom_op(
    add_op_namespace_prefix("fwd"),
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor? alibi_slopes, Tensor? s_aux, float softmax_scale, int window_left, "
    "int window_right, float softcap) -> (Tensor, Tensor)",
)
def fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    alibi_slopes: Optional[torch.Tensor],
    s_aux: Optional[torch.Tensor],
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
) -> Tuple[torch.Tensor, torch.Tensor]:
    batch, q_len, heads, _ = q.shape
    out = q.new_empty(q.shape)
    lse = q.new_empty((batch, heads, q_len), dtype=torch.float32)
    triton_forward.launch(
        q, k, v, alibi_slopes, s_aux, softmax_scale, window_left, window_right, softcap, out, lse, None
    )
    return out, lse


@torch.library.custom_op(
    add_op_namespace_prefix("varlen_fwd"),
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor k_begins, Tensor k_lens, Tensor? block_table, "
    "Tensor? alibi_slopes, Tensor? s_aux, int max_seqlen_q, int max_seqlen_k, float softmax_scale, int window_left, "
    "int window_right, float softcap) -> (Tensor, Tensor)",
)
def varlen_fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    k_begins: torch.Tensor,
    k_lens: torch.Tensor,
    block_table: Optional[torch.Tensor],
    alibi_slopes: Optional[torch.Tensor],
    s_aux: Optional[torch.Tensor],
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
) -> Tuple[torch.Tensor, torch.Tensor]:
    rows, heads, _ = q.shape
    # Rows that belong to no sequence are written by no program.
    out = q.new_zeros(q.shape)
    lse = q.new_full((heads, rows), float("-inf"), dtype=torch.float32)
    triton_forward.launch(
        q.unsqueeze(0),
        k if block_table is not None else k.unsqueeze(0),
        v if block_table is not None else v.unsqueeze(0),
        alibi_slopes,
        s_aux,
        softmax_scale,
        window_left,
        window_right,
        softcap,
        out.unsqueeze(0),
        lse.unsqueeze(0),
        triton_forward.Sequences(cu_seqlens_q, k_begins, k_lens, block_table, max_seqlen_q),
    )
    return out, lse


@torch.library.custom_op(
    add_op_namespace_prefix("bwd"),
    mutates_args=(),
    schema="(Tensor grad_out, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    "Tensor? alibi_slopes, float softmax_scale, int window_left, int window_right, float softcap) "
    "-> (Tensor, Tensor, Tensor)",
)
def bwd(
    grad_out: torch.Tensor,
    grad_lse: Optional[torch.Tensor],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    alibi_slopes: Optional[torch.Tensor],
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    grads = (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape))
    triton_backward.launch(
        grad_out,
        grad_lse,
        q,
        k,
        v,
        out,
        lse,
        alibi_slopes,
        softmax_scale,
        window_left,
        window_right,
        softcap,
        *grads,
        None,
        k.shape[1],
    )
    return grads


@torch.library.custom_op(
    add_op_namespace_prefix("varlen_bwd"),
    mutates_args=(),
    schema="(Tensor grad_out, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    "Tensor cu_seqlens_q, Tensor k_begins, Tensor k_lens, Tensor? alibi_slopes, int max_seqlen_q, int max_seqlen_k, "
    "float softmax_scale, int window_left, int window_right, float softcap) -> (Tensor, Tensor, Tensor)",
)
def varlen_bwd(
    grad_out: torch.Tensor,
    grad_lse: Optional[torch.Tensor],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    k_begins: torch.Tensor,
    k_lens: torch.Tensor,
    alibi_slopes: Optional[torch.Tensor],
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    # Rows that belong to no sequence get no gradient.
    grads = (q.new_zeros(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape))
    triton_backward.launch(
        grad_out.unsqueeze(0),
        None if grad_lse is None else grad_lse.unsqueeze(0),
        q.unsqueeze(0),
        k.unsqueeze(0),
        v.unsqueeze(0),
        out.unsqueeze(0),
        lse.unsqueeze(0),
        alibi_slopes,
        softmax_scale,
        window_left,
        window_right,
        softcap,
        *(grad.unsqueeze(0) for grad in grads),
        triton_forward.Sequences(cu_seqlens_q, k_begins, k_lens, None, max_seqlen_q),
        max_seqlen_k,
    )
    return grads
