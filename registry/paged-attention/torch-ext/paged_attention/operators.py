"""The operators behind the public functions, whoever implements them.

The native build registers them when its library loads; elsewhere the Triton implementation does. The schemas are equal,
and so is what tracing needs to know: every operator writes into tensors that it is given and returns nothing.
"""

from typing import Any, Optional, Tuple

import torch

from ._ops import add_op_namespace_prefix, ops

NATIVE = hasattr(ops, "paged_fwd")

if not NATIVE:
    from . import triton_operators as _triton_operators

    DEVICE_TYPES = _triton_operators.DEVICE_TYPES
else:
    DEVICE_TYPES = ("cpu",)


@torch.library.register_fake(add_op_namespace_prefix("paged_fwd"))
def _paged_fwd_fake(*operands: Any) -> None:
    return None


@torch.library.register_fake(add_op_namespace_prefix("reshape_and_cache"))
def _reshape_and_cache_fake(*operands: Any) -> None:
    return None


@torch.library.register_fake(add_op_namespace_prefix("copy_blocks"))
def _copy_blocks_fake(*operands: Any) -> None:
    return None


@torch.library.register_fake(add_op_namespace_prefix("merge_state"))
def _merge_state_fake(*operands: Any) -> None:
    return None


def paged_fwd(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    k_begins: torch.Tensor,
    k_lens: torch.Tensor,
    alibi_slopes: Optional[torch.Tensor],
    s_aux: Optional[torch.Tensor],
    max_seqlen_q: int,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
    num_splits: int,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """Attend over pages.

    Args:
        q: (rows, q_heads, head_dim), the sequences one after the other.
        k_cache: (pages, page_size, k_heads, head_dim), any strides but 1 along the last; v_cache likewise.
        block_table: (sequences, pages of a sequence), int32: where each sequence's pages lie.
        cu_seqlens_q: (sequences + 1,), int32: where each sequence starts in q.
        k_begins: (sequences,), int32: the first key of each sequence, counted in its own pages.
        k_lens: (sequences,), int32: how many keys each sequence has from there.
        alibi_slopes: None, (q_heads,) or (sequences, q_heads), float32.
        s_aux: None or (q_heads,), float32: the logit of a key without a value.
        max_seqlen_q: at least the length of the longest sequence in q.
        softmax_scale: factor of q.k.
        window_left: keys seen to the left of the diagonal; -1 for all.
        window_right: keys seen to the right of it; 0 for causal attention.
        softcap: 0 for none.
        num_splits: parts that the keys of a sequence are divided into; 0 lets the build choose.
        out: like q; receives the output.
        lse: (rows, q_heads), float32; receives the natural logarithm of each row's sum of exponentials, -inf for a row
            that sees no key.
    """
    ops.paged_fwd(
        q,
        k_cache,
        v_cache,
        block_table,
        cu_seqlens_q,
        k_begins,
        k_lens,
        alibi_slopes,
        s_aux,
        max_seqlen_q,
        softmax_scale,
        window_left,
        window_right,
        softcap,
        num_splits,
        out,
        lse,
    )


def varlen_fwd(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    k_begins: torch.Tensor,
    k_lens: torch.Tensor,
    block_table: torch.Tensor,
    alibi_slopes: Optional[torch.Tensor],
    s_aux: Optional[torch.Tensor],
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Attend over pages as `paged_fwd` does, into new tensors: the output, and the log-sum-exp as (q_heads, rows)."""
    out = q.new_empty(q.shape)
    lse = q.new_empty(q.shape[:2], dtype=torch.float32)
    paged_fwd(
        q,
        k_cache,
        v_cache,
        block_table,
        cu_seqlens_q,
        k_begins,
        k_lens,
        alibi_slopes,
        s_aux,
        max_seqlen_q,
        softmax_scale,
        window_left,
        window_right,
        softcap,
        0,
        out,
        lse,
    )
    return out, lse.t().contiguous()


def reshape_and_cache(
    key: torch.Tensor, value: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor
) -> None:
    """Write key and value, (tokens, k_heads, head_dim), to slots (page * page_size + token of the page) of the caches."""
    ops.reshape_and_cache(key, value, k_cache, v_cache, slot_mapping)


def copy_blocks(cache: torch.Tensor, block_pairs: torch.Tensor) -> None:
    """Copy pages of a cache, (pages, page_size, k_heads, head_dim), as (pairs, 2) int64 of source and destination say."""
    ops.copy_blocks(cache, block_pairs)


def merge_state(
    first: torch.Tensor,
    first_lse: torch.Tensor,
    second: torch.Tensor,
    second_lse: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """Merge partial results (rows, heads, head_dim), log-sum-exps (rows, heads) float32, everything contiguous."""
    ops.merge_state(first, first_lse, second, second_lse, out, lse)
