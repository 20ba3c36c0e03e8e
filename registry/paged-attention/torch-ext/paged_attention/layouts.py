"""The two orders of a page's dimensions, and checks of arguments that only this kernel has."""

from typing import Optional, Tuple

import torch

from . import validation

LAYOUTS = ("NHD", "HND")


def tokens_first(kv_layout: str, k_cache: torch.Tensor, v_cache: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """Return both caches as (pages, page_size, k_heads, head_dim), views of the same memory.

    Raises:
        TypeError, ValueError: no such layout, not tensors of four dimensions, not one shape, or not contiguous along the
            head dimension.
    """
    if kv_layout not in LAYOUTS:
        raise ValueError(f"kv_layout must be one of {', '.join(LAYOUTS)}, got {kv_layout!r}")
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        validation.require_tensor(name, cache, 4)
        if cache.stride(-1) != 1 and cache.shape[-1] > 1:
            raise ValueError(f"{name} must be contiguous along the head dimension, got strides {cache.stride()}")
    if k_cache.shape != v_cache.shape:
        raise ValueError(
            f"k_cache and v_cache must have one shape, got {tuple(k_cache.shape)} and {tuple(v_cache.shape)}"
        )
    if kv_layout == "HND":
        return k_cache.transpose(1, 2), v_cache.transpose(1, 2)
    return k_cache, v_cache


def result_or_new(out: Optional[torch.Tensor], q: torch.Tensor) -> torch.Tensor:
    """Return the tensor that receives the output: the given one, checked, or a new one."""
    if out is None:
        return q.new_empty(q.shape)
    validation.require_tensor("out", out, q.dim())
    if out.shape != q.shape or out.dtype != q.dtype or out.device != q.device:
        raise ValueError(
            f"out must be like q, {tuple(q.shape)} {q.dtype} on {q.device}, got {tuple(out.shape)} {out.dtype} on {out.device}"
        )
    if out.stride(-1) != 1 and out.shape[-1] > 1:
        raise ValueError(f"out must be contiguous along the head dimension, got strides {out.stride()}")
    validation.require_no_gradient("out cannot record a gradient", out)
    return out


def splits_or_error(num_splits: int) -> int:
    """Return the number of splits, 0 for any."""
    if isinstance(num_splits, bool) or not isinstance(num_splits, int) or num_splits < 0:
        raise ValueError(f"num_splits must be 0 (any) or a positive integer, got {num_splits!r}")
    return num_splits
