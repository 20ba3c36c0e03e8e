"""The operators behind the public functions, whoever implements them.

The native build registers them when its library loads; elsewhere the Triton implementation does. The schemas are equal,
and so is everything registered here: shapes for tracing (fakes).
"""

from typing import Optional, Tuple

import torch

from ._ops import add_op_namespace_prefix, ops

NATIVE = hasattr(ops, "fwd")

if not NATIVE:
    from . import triton_operators as _triton_operators

    DEVICE_TYPES = _triton_operators.DEVICE_TYPES
else:
    DEVICE_TYPES = ("cpu",)


@torch.library.register_fake(add_op_namespace_prefix("fwd"))
def _fwd_fake(
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
    return q.new_empty(q.shape), q.new_empty((batch, heads, q_len), dtype=torch.float32)


@torch.library.register_fake(add_op_namespace_prefix("varlen_fwd"))
def _varlen_fwd_fake(
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
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
) -> Tuple[torch.Tensor, torch.Tensor]:
    rows, heads, _ = q.shape
    return q.new_empty(q.shape), q.new_empty((heads, rows), dtype=torch.float32)


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
    """Attend over a batch of equally long sequences.

    Args:
        q: (batch, q_len, q_heads, head_dim).
        k: (batch, k_len, k_heads, head_dim); v likewise.
        alibi_slopes: None, (q_heads,) or (batch, q_heads), float32.
        s_aux: None or (q_heads,), float32: the logit of a key without a value.
        softmax_scale: factor of q.k.
        window_left: keys seen to the left of the diagonal; -1 for all.
        window_right: keys seen to the right of it; 0 for causal attention.
        softcap: 0 for none.

    Returns:
        The output, contiguous, and the natural logarithm of each row's sum of exponentials, (batch, q_heads, q_len),
        float32; -inf for a row that sees no key.
    """
    return ops.fwd(q, k, v, alibi_slopes, s_aux, softmax_scale, window_left, window_right, softcap)


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
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Attend over sequences of different lengths, whose keys may lie in pages.

    Args:
        q: (rows, q_heads, head_dim), the sequences one after the other.
        k: (rows, k_heads, head_dim), or with a block table (pages, page_size, k_heads, head_dim); v likewise.
        cu_seqlens_q: (sequences + 1,), int32: where each sequence starts in q.
        k_begins: (sequences,), int32: where each sequence's keys start in k (in its own rows, if paged).
        k_lens: (sequences,), int32: how many keys each sequence has.
        block_table: None or (sequences, pages of a sequence), int32.
        max_seqlen_q: at least the length of the longest sequence in q.
        alibi_slopes, s_aux, softmax_scale, window_left, window_right, softcap: as in `fwd`, batch being sequences.

    Returns:
        The output, contiguous, and the log-sum-exp, (q_heads, rows).
    """
    return ops.varlen_fwd(
        q,
        k,
        v,
        cu_seqlens_q,
        k_begins,
        k_lens,
        block_table,
        alibi_slopes,
        s_aux,
        max_seqlen_q,
        softmax_scale,
        window_left,
        window_right,
        softcap,
    )
