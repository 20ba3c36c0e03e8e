"""The public functions, with FlashAttention-2's signatures and semantics.

Sources: arXiv 2205.14135 and 2307.08691 for the algorithm. Two choices where implementations differ: the log-sum-exp of
a row without keys is -inf (so that partial results can be merged), and with sinks it includes the sink.
"""

from typing import Optional, Tuple, Union

import torch

from . import operators, validation
from .errors import UnsupportedFeatureError


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    s_aux: Optional[torch.Tensor] = None,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor, None]]:
    """Attend: softmax(q k^T * softmax_scale + bias) v, without materialising the scores.

    Args:
        q: (batch, q_len, q_heads, head_dim), float32, bfloat16 or float16.
        k: (batch, k_len, k_heads, head_dim). q_heads is a multiple of k_heads; query head h reads key head
            h // (q_heads // k_heads).
        v: like k.
        dropout_p: must be 0.
        softmax_scale: defaults to head_dim ** -0.5.
        causal: query i sees keys up to i + k_len - q_len (aligned to the bottom right).
        window_size: (left, right), inclusive: query i sees keys from i + k_len - q_len - left to
            i + k_len - q_len + right; -1 is unlimited.
        softcap: if positive, logits become softcap * tanh(logit / softcap).
        alibi_slopes: (q_heads,) or (batch, q_heads): adds -slope * |i + k_len - q_len - j|.
        deterministic: accepted for compatibility; results never vary from run to run.
        return_attn_probs: also return the log-sum-exp.
        s_aux: (q_heads,): the logit of an extra key that has no value (an attention sink).

    Returns:
        The output, (batch, q_len, q_heads, head_dim); a row that sees no key is 0. With `return_attn_probs` the tuple
        (output, lse, None), lse (batch, q_heads, q_len) float32, natural logarithm, -inf for a row that sees no key.

    Raises:
        TypeError, ValueError: operands that do not fit together.
        UnsupportedFeatureError: dropout, a head dimension above 256, a device this build does not serve, or a result
            that would need a gradient.
    """
    del deterministic
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        validation.require_tensor(name, tensor, 4)
    validation.require_operands(q, k, v)
    if k.shape[0] != q.shape[0] or v.shape[0] != q.shape[0]:
        raise ValueError(f"q, k and v must have one batch size, got {q.shape[0]}, {k.shape[0]} and {v.shape[0]}")
    if k.shape[1] != v.shape[1]:
        raise ValueError(f"k and v must have one length, got {k.shape[1]} and {v.shape[1]}")
    _require_device(q)
    validation.require_dropout_free(dropout_p)
    validation.require_per_head("alibi_slopes", alibi_slopes, q, q.shape[0])
    validation.require_per_head("s_aux", s_aux, q, None)
    validation.require_no_gradient(q, k, v, s_aux)
    left, right = validation.window_of(window_size, causal)
    out, lse = operators.fwd(
        _rows_dense(q),
        _rows_dense(k),
        _rows_dense(v),
        _per_head_floats(alibi_slopes),
        _per_head_floats(s_aux),
        validation.softmax_scale_or_default(softmax_scale, q.shape[-1]),
        left,
        right,
        validation.softcap_or_error(softcap),
    )
    return (out, lse, None) if return_attn_probs else out


def _require_device(q: torch.Tensor) -> None:
    if q.device.type not in operators.DEVICE_TYPES and q.device.type != "meta":
        served = " or ".join(operators.DEVICE_TYPES)
        raise UnsupportedFeatureError(f"this build computes on {served} tensors, got {q.device}")


def _rows_dense(tensor: torch.Tensor) -> torch.Tensor:
    """The kernels step freely over every dimension but the last."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _per_head_floats(tensor: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return None if tensor is None else tensor.detach().to(torch.float32).contiguous()
