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
