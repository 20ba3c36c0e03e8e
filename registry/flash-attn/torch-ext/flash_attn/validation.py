"""Checks of everything the caller hands over, before any native code sees it."""

import math
import numbers
from typing import Optional, Tuple

import torch

from .errors import UnsupportedFeatureError

ELEMENT_TYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_HEAD_DIM = 256


def require_tensor(name: str, value: object, dimensions: int) -> None:
    """Require a tensor with the given number of dimensions."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if value.dim() != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimensions, got shape {tuple(value.shape)}")


def require_operands(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Require what q, k and v must share in every layout: element type, device, head dimension, head counts.

    The last two dimensions of each are (heads, head_dim).
    """
    if q.dtype not in ELEMENT_TYPES:
        raise TypeError(f"q must be float32, bfloat16 or float16, got {q.dtype}")
    for name, tensor in (("k", k), ("v", v)):
        if tensor.dtype != q.dtype:
            raise TypeError(f"{name} has element type {tensor.dtype}, q has {q.dtype}; they must be equal")
        if tensor.device != q.device:
            raise ValueError(f"{name} is on {tensor.device}, q is on {q.device}; they must be on one device")
        if tensor.shape[-1] != q.shape[-1]:
            raise ValueError(f"{name} has head dimension {tensor.shape[-1]}, q has {q.shape[-1]}; they must be equal")
    if not 1 <= q.shape[-1] <= MAX_HEAD_DIM:
        raise UnsupportedFeatureError(f"the head dimension must be 1 to {MAX_HEAD_DIM}, got {q.shape[-1]}")
    q_heads, k_heads = q.shape[-2], k.shape[-2]
    if v.shape[-2] != k_heads:
        raise ValueError(f"v has {v.shape[-2]} heads, k has {k_heads}; they must be equal")
    if k_heads < 1 or q_heads % k_heads != 0:
        raise ValueError(f"the {q_heads} heads of q must be a multiple of the {k_heads} heads of k and v")


def require_dropout_free(dropout_p: float) -> None:
    """Refuse dropout: neither build can draw the same mask again in a backward pass."""
    if not isinstance(dropout_p, numbers.Real) or not 0.0 <= dropout_p <= 1.0:
        raise ValueError(f"dropout_p must be a number from 0 to 1, got {dropout_p!r}")
    if dropout_p > 0.0:
        raise UnsupportedFeatureError("dropout is not supported; pass dropout_p=0.0 (as in evaluation mode)")


def softmax_scale_or_default(softmax_scale: Optional[float], head_dim: int) -> float:
    """Return the factor of q.k: the given one, or 1 / sqrt(head_dim)."""
    if softmax_scale is None:
        return head_dim**-0.5
    if not isinstance(softmax_scale, numbers.Real) or not math.isfinite(softmax_scale):
        raise ValueError(f"softmax_scale must be a finite number, got {softmax_scale!r}")
    return float(softmax_scale)


def softcap_or_error(softcap: float) -> float:
    """Return the soft cap of the logits; 0 means none."""
    if not isinstance(softcap, numbers.Real) or not math.isfinite(softcap) or softcap < 0.0:
        raise ValueError(f"softcap must be a finite number, 0 (none) or greater, got {softcap!r}")
    return float(softcap)


def window_of(window_size: Tuple[int, int], causal: bool) -> Tuple[int, int]:
    """Return (left, right) with -1 for unlimited; causal attention sees nothing to the right of the diagonal."""
    try:
        left, right = window_size
        left, right = int(left), int(right)
    except (TypeError, ValueError):
        raise ValueError(f"window_size must be two integers (left, right), got {window_size!r}") from None
    left = -1 if left < 0 else left
    right = -1 if right < 0 else right
    return left, 0 if causal else right


def require_per_head(name: str, value: Optional[torch.Tensor], q: torch.Tensor, batch: Optional[int]) -> None:
    """Require float32 values, one per query head: shape (heads,), or (batch, heads) where a batch is given."""
    if value is None:
        return
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if value.device != q.device:
        raise ValueError(f"{name} is on {value.device}, q is on {q.device}; they must be on one device")
    heads = q.shape[-2]
    shapes = [(heads,)] if batch is None else [(heads,), (batch, heads)]
    if tuple(value.shape) not in shapes:
        expected = " or ".join(str(shape) for shape in shapes)
        raise ValueError(f"{name} must have shape {expected}, got {tuple(value.shape)}")


def require_no_gradient(*tensors: Optional[torch.Tensor]) -> None:
    """Refuse a call whose result would have to carry a gradient."""
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        raise UnsupportedFeatureError(
            "this build has no backward pass; call it under torch.no_grad() or detach the inputs"
        )
