"""Checks of everything the caller hands over, before any native code sees it."""

import math
import numbers
from typing import Optional, Tuple

import torch

from .errors import UnsupportedFeatureError

ELEMENT_TYPES = (torch.float32, torch.bfloat16, torch.float16)
MAX_HEAD_DIM = 256
_WIDEST_WINDOW = 1 << 48


def require_tensor(name: str, value: object, dimensions: int) -> None:
    """Require a tensor with the given number of dimensions."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if value.dim() != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimensions, got shape {tuple(value.shape)}")


def require_packed(name: str, value: object, operands: int) -> None:
    """Require (batch, length, operands, heads, head_dim)."""
    require_tensor(name, value, 5)
    if value.shape[2] != operands:
        raise ValueError(f"{name} must have {operands} entries in dimension 2, got shape {tuple(value.shape)}")


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
        if isinstance(left, float) or isinstance(right, float):
            raise TypeError
        left, right = int(left), int(right)
    except (TypeError, ValueError):
        raise ValueError(f"window_size must be two integers (left, right), got {window_size!r}") from None
    # Added to a position, a wider one would leave the range of integers; no sequence is that long.
    left = -1 if left < 0 or left > _WIDEST_WINDOW else left
    right = -1 if right < 0 or right > _WIDEST_WINDOW else right
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


def values_are_visible(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's values can be looked at for free: not while tracing, and not on a GPU."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling() and not _is_fake(tensor)


def _is_fake(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch._subclasses.FakeTensor)


def require_integers(name: str, value: object, shape: Tuple[int, ...], device: torch.device) -> None:
    """Require an integer tensor of the given shape on the given device."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if value.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name} must be int32, got {value.dtype}")
    if tuple(value.shape) != shape:
        raise ValueError(f"{name} must have shape {shape}, got {tuple(value.shape)}")
    if value.device != device:
        raise ValueError(f"{name} is on {value.device}, q is on {device}; they must be on one device")


def require_offsets(name: str, value: torch.Tensor, sequences: int, rows: Optional[int], device: torch.device) -> None:
    """Require cumulative lengths: `sequences` + 1 integers that start at 0, never decrease and end within `rows`."""
    require_integers(name, value, (sequences + 1,), device)
    if not values_are_visible(value):
        return
    offsets = value.tolist()
    if offsets[0] != 0:
        raise ValueError(f"{name} must start at 0, got {offsets[0]}")
    if any(later < earlier for earlier, later in zip(offsets, offsets[1:])):
        raise ValueError(f"{name} must not decrease, got {offsets}")
    if rows is not None and offsets[-1] > rows:
        raise ValueError(f"{name} ends at {offsets[-1]}, beyond the {rows} rows there are")


def require_pages(block_table: torch.Tensor, lengths: torch.Tensor, page_size: int, pages: int, name: str) -> None:
    """Require that the pages of `lengths` rows exist in the table and in the cache."""
    if not values_are_visible(block_table) or not values_are_visible(lengths):
        return
    if block_table.numel():
        # Most tables are right as a whole, which two extremes show without a list of their entries.
        first, last = block_table.aminmax()
        if int(first) >= 0 and int(last) < pages and int(lengths.max()) <= block_table.shape[1] * page_size:
            return
    for sequence, (row, length) in enumerate(zip(block_table.tolist(), lengths.tolist())):
        needed = -(-length // page_size) if page_size else 0
        if length > 0 and (page_size == 0 or needed > len(row)):
            raise ValueError(f"{name}: sequence {sequence} of length {length} needs more than its {len(row)} pages")
        outside = [page for page in row[:needed] if not 0 <= page < pages]
        if outside:
            raise ValueError(f"{name}: sequence {sequence} names page {outside[0]}, the cache has {pages}")


def require_no_gradient(reason: str, *tensors: Optional[torch.Tensor]) -> None:
    """Refuse a call that would have to record a gradient for one of the tensors."""
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        raise UnsupportedFeatureError(f"{reason}; call under torch.no_grad() or detach the inputs")
