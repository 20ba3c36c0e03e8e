"""Filling a paged cache, copying its pages, and merging partial results of attention."""

from typing import Sequence, Tuple, Union

import torch

from . import layouts, operands, operators, validation


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    kv_layout: str = "NHD",
) -> None:
    """Write the keys and values of new tokens into the caches, in place.

    Args:
        key: (tokens, k_heads, head_dim), of the caches' element type; value likewise.
        k_cache: (pages, page_size, k_heads, head_dim) with `kv_layout` "NHD", (pages, k_heads, page_size, head_dim) with
            "HND"; v_cache likewise.
        slot_mapping: (tokens,), integers: token i goes to token slot_mapping[i] % page_size of page
            slot_mapping[i] // page_size. Tokens with a negative slot are skipped. If two name one slot, the later stays on
            CPUs, either on GPUs.

    Raises:
        TypeError, ValueError: operands that do not fit together, or (on CPUs, outside of compilation) a slot beyond the
            cache.
        UnsupportedFeatureError: a device this build does not serve, or a gradient to record.
    """
    for name, tensor in (("key", key), ("value", value)):
        validation.require_tensor(name, tensor, 3)
    keys, values = layouts.tokens_first(kv_layout, k_cache, v_cache)
    validation.require_operands(key, keys, values)
    operands.require_device(key)
    expected = (key.shape[0], *keys.shape[2:])
    for name, tensor in (("key", key), ("value", value)):
        if tuple(tensor.shape) != expected:
            raise ValueError(f"{name} must have shape {expected}, got {tuple(tensor.shape)}")
    if value.dtype != key.dtype or value.device != key.device:
        raise ValueError(f"value is {value.dtype} on {value.device}, key is {key.dtype} on {key.device}")
    validation.require_integers("slot_mapping", slot_mapping, (key.shape[0],), key.device)
    validation.require_no_gradient("writing to a cache has no gradient", key, value, k_cache, v_cache)
    capacity = keys.shape[0] * keys.shape[1]
    if validation.values_are_visible(slot_mapping) and slot_mapping.numel() and int(slot_mapping.max()) >= capacity:
        raise ValueError(f"slot_mapping names slot {int(slot_mapping.max())}, the cache has {capacity}")
    operators.reshape_and_cache(
        operands.rows_dense(key),
        operands.rows_dense(value),
        keys,
        values,
        slot_mapping.to(torch.int64).contiguous(),
    )


def copy_blocks(
    k_caches: Union[torch.Tensor, Sequence[torch.Tensor]],
    v_caches: Union[torch.Tensor, Sequence[torch.Tensor]],
    block_pairs: torch.Tensor,
) -> None:
    """Copy whole pages within caches, in place: what sharing pages between sequences needs before one of them writes.

    Args:
        k_caches: a cache of four dimensions, pages first, or several (one a layer); every page must be one run of memory.
        v_caches: likewise.
        block_pairs: (pairs, 2), integers: page block_pairs[i, 0] is copied onto page block_pairs[i, 1]. No page may be the
            destination of two pairs, nor both a source and a destination.

    Raises:
        TypeError, ValueError: operands that do not fit together, or (on CPUs, outside of compilation) pages beyond the
            cache or used twice.
        UnsupportedFeatureError: a device this build does not serve, or a gradient to record.
    """
    caches = [
        *([k_caches] if isinstance(k_caches, torch.Tensor) else k_caches),
        *([v_caches] if isinstance(v_caches, torch.Tensor) else v_caches),
    ]
    validation.require_tensor("block_pairs", block_pairs, 2)
    for cache in caches:
        validation.require_tensor("a cache", cache, 4)
        if cache.dtype not in validation.ELEMENT_TYPES:
            raise TypeError(f"a cache must be float32, bfloat16 or float16, got {cache.dtype}")
        operands.require_device(cache)
        validation.require_integers("block_pairs", block_pairs, (block_pairs.shape[0], 2), cache.device)
        validation.require_no_gradient("copying pages has no gradient", cache)
        page = cache.shape[1] * cache.shape[2] * cache.shape[3]
        span = 1 + sum((size - 1) * stride for size, stride in zip(cache.shape[1:], cache.stride()[1:]))
        if page and span != page:
            raise ValueError(f"every page of a cache must be one run of memory, got strides {cache.stride()}")
        _require_pairs(block_pairs, cache.shape[0])
    pairs = block_pairs.to(torch.int64).contiguous()
    for cache in caches:
        operators.copy_blocks(cache, pairs)


def _require_pairs(block_pairs: torch.Tensor, pages: int) -> None:
    if not validation.values_are_visible(block_pairs) or not block_pairs.numel():
        return
    first, last = block_pairs.aminmax()
    if int(first) < 0 or int(last) >= pages:
        outside = int(first) if int(first) < 0 else int(last)
        raise ValueError(f"block_pairs names page {outside}, the cache has {pages}")
    sources, destinations = (column.tolist() for column in block_pairs.unbind(1))
    if len(set(destinations)) != len(destinations) or set(destinations) & set(sources):
        raise ValueError("block_pairs copies onto a page that another pair uses too")


def merge_state(
    o1: torch.Tensor, lse1: torch.Tensor, o2: torch.Tensor, lse2: torch.Tensor
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Merge the attention of the same queries over two sets of keys into that over both.

    Args:
        o1: (..., heads, head_dim), the output over the first keys, float32, bfloat16 or float16; o2 likewise.
        lse1: (..., heads), float32, natural logarithm, as `paged_attention` returns it; -inf where a row saw no key, which
            then counts for nothing whatever o1 holds there; lse2 likewise.

    Returns:
        The output and its log-sum-exp, of the same shapes; 0 and -inf where neither saw a key.

    Raises:
        TypeError, ValueError: operands that do not fit together.
        UnsupportedFeatureError: a device this build does not serve, or a gradient to record.
    """
    for name, tensor in (("o1", o1), ("lse1", lse1), ("o2", o2), ("lse2", lse2)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
        if tensor.device != o1.device:
            raise ValueError(f"{name} is on {tensor.device}, o1 is on {o1.device}; they must be on one device")
    if o1.dtype not in validation.ELEMENT_TYPES:
        raise TypeError(f"o1 must be float32, bfloat16 or float16, got {o1.dtype}")
    if o1.dim() < 2:
        raise ValueError(f"o1 must have at least 2 dimensions, got shape {tuple(o1.shape)}")
    if o2.shape != o1.shape or o2.dtype != o1.dtype:
        raise ValueError(f"o1 and o2 must be alike, got {tuple(o1.shape)} {o1.dtype} and {tuple(o2.shape)} {o2.dtype}")
    for name, tensor in (("lse1", lse1), ("lse2", lse2)):
        if tensor.shape != o1.shape[:-1] or tensor.dtype != torch.float32:
            raise ValueError(
                f"{name} must be float32 of shape {tuple(o1.shape[:-1])}, got {tensor.dtype} {tuple(tensor.shape)}"
            )
    operands.require_device(o1)
    validation.require_no_gradient("merging has no gradient", o1, lse1, o2, lse2)
    heads, head_dim = o1.shape[-2:]
    rows = o1.numel() // max(1, heads * head_dim)
    out = o1.new_empty((rows, heads, head_dim))
    lse = o1.new_empty((rows, heads), dtype=torch.float32)
    operators.merge_state(
        o1.reshape(rows, heads, head_dim).contiguous(),
        lse1.reshape(rows, heads).contiguous(),
        o2.reshape(rows, heads, head_dim).contiguous(),
        lse2.reshape(rows, heads).contiguous(),
        out,
        lse,
    )
    return out.view(o1.shape), lse.view(lse1.shape)
