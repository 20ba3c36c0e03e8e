"""The operators behind the public functions, whoever implements them.

The native build registers them when its library loads; elsewhere the Triton implementation does. The schemas are equal,
and so is everything registered here: shapes for tracing (fakes) and derivatives.
"""

from typing import Any, Optional, Tuple

import torch

from ._ops import add_op_namespace_prefix, ops
from .errors import UnsupportedFeatureError

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
    max_seqlen_k: int,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
) -> Tuple[torch.Tensor, torch.Tensor]:
    rows, heads, _ = q.shape
    return q.new_empty(q.shape), q.new_empty((heads, rows), dtype=torch.float32)


@torch.library.register_fake(add_op_namespace_prefix("bwd"))
def _bwd_fake(
    grad_out: torch.Tensor,
    grad_lse: Optional[torch.Tensor],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *others: Any,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


@torch.library.register_fake(add_op_namespace_prefix("varlen_bwd"))
def _varlen_bwd_fake(
    grad_out: torch.Tensor,
    grad_lse: Optional[torch.Tensor],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *others: Any,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _save(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, alibi_slopes, s_aux, *ctx.scalars = inputs
    ctx.save_for_backward(q, k, v, *output, alibi_slopes, s_aux)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad_out: Optional[torch.Tensor], grad_lse: Optional[torch.Tensor]) -> Tuple[Any, ...]:
    q, k, v, out, lse, alibi_slopes, s_aux = ctx.saved_tensors
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    grads = ops.bwd(grad_out, grad_lse, q, k, v, out, lse, alibi_slopes, *ctx.scalars)
    grad_sinks = None
    if ctx.needs_input_grad[4]:
        grad_sinks = _sink_gradient(grad_out, grad_lse, out, lse.transpose(1, 2), s_aux).sum((0, 1))
    return (*grads, None, grad_sinks, None, None, None, None)


def _save_varlen(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, cu_seqlens_q, k_begins, k_lens, block_table, alibi_slopes, s_aux, *ctx.scalars = inputs
    ctx.paged = block_table is not None
    ctx.save_for_backward(q, k, v, *output, cu_seqlens_q, k_begins, k_lens, alibi_slopes, s_aux)
    ctx.set_materialize_grads(False)


def _differentiate_varlen(
    ctx: Any, grad_out: Optional[torch.Tensor], grad_lse: Optional[torch.Tensor]
) -> Tuple[Any, ...]:
    if ctx.paged:
        raise UnsupportedFeatureError("keys in pages have no gradient")
    q, k, v, out, lse, cu_seqlens_q, k_begins, k_lens, alibi_slopes, s_aux = ctx.saved_tensors
    grad_out = torch.zeros_like(out) if grad_out is None else grad_out
    grads = ops.varlen_bwd(
        grad_out, grad_lse, q, k, v, out, lse, cu_seqlens_q, k_begins, k_lens, alibi_slopes, *ctx.scalars
    )
    grad_sinks = None
    if ctx.needs_input_grad[8]:
        grad_sinks = _sink_gradient(grad_out, grad_lse, out, lse.transpose(0, 1), s_aux)
        grad_sinks = grad_sinks[: cu_seqlens_q[-1]].sum(0)
    return (*grads, None, None, None, None, None, grad_sinks, *(None for _ in ctx.scalars))


def _sink_gradient(
    grad_out: torch.Tensor, grad_lse: Optional[torch.Tensor], out: torch.Tensor, lse: torch.Tensor, s_aux: torch.Tensor
) -> torch.Tensor:
    """Return each row's share, lse's shape being (..., rows, heads): a sink has a probability but no value."""
    delta = (grad_out.float() * out.float()).sum(-1)
    if grad_lse is not None:
        delta = delta - grad_lse.transpose(-1, -2)
    return -torch.exp(s_aux - lse) * delta


def _refuse_second_derivative(ctx: Any, *grads: Any) -> None:
    raise UnsupportedFeatureError("the gradient of attention has no gradient of its own here")


torch.library.register_autograd(add_op_namespace_prefix("fwd"), _differentiate, setup_context=_save)
torch.library.register_autograd(
    add_op_namespace_prefix("varlen_fwd"), _differentiate_varlen, setup_context=_save_varlen
)
torch.library.register_autograd(add_op_namespace_prefix("bwd"), _refuse_second_derivative)
torch.library.register_autograd(add_op_namespace_prefix("varlen_bwd"), _refuse_second_derivative)


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
    max_seqlen_k: int,
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
        max_seqlen_q: at least the length of the longest sequence in q; max_seqlen_k likewise.
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
        max_seqlen_k,
        softmax_scale,
        window_left,
        window_right,
        softcap,
    )
