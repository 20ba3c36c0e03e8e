"""Attention over a key/value cache that grows, FlashAttention-2's `flash_attn_with_kvcache`.

New keys and values are written into the cache with ordinary tensor operations, rotary embedding included; the attention
itself is the operator for sequences in pages, for which an unpaged cache is one page a sequence.
"""

from typing import Optional, Tuple, Union

import torch

from . import operands, operators, validation


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: Optional[torch.Tensor] = None,
    v: Optional[torch.Tensor] = None,
    rotary_cos: Optional[torch.Tensor] = None,
    rotary_sin: Optional[torch.Tensor] = None,
    cache_seqlens: Optional[Union[int, torch.Tensor]] = None,
    cache_batch_idx: Optional[torch.Tensor] = None,
    cache_leftpad: Optional[torch.Tensor] = None,
    block_table: Optional[torch.Tensor] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Optional[torch.Tensor] = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    s_aux: Optional[torch.Tensor] = None,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Append k and v to the cache, in place, and attend over what it then holds.

    Args:
        q: (batch, q_len, q_heads, head_dim).
        k_cache: (cache_batch, cache_len, k_heads, head_dim), or with `block_table` (pages, page_size, k_heads,
            head_dim), any page size; v_cache likewise.
        k: None or (batch, new, k_heads, head_dim), written at cache_seqlens; v likewise.
        rotary_cos: (positions, rotary_dim / 2): rotates k at its positions, and q at the same (each row at its own if
            causal or windowed, all at cache_seqlens otherwise); rotary_sin likewise. Needs k.
        cache_seqlens: (batch,) or one integer: how many keys the cache holds before this call; None: it is full.
        cache_batch_idx: (batch,): which entry of the cache each sequence uses. Not together with `block_table`.
        cache_leftpad: (batch,): how many keys at the start of the cache are to be ignored.
        block_table: (batch, pages of a sequence), int32.
        rotary_interleaved: rotate dimensions (0, 1), (2, 3) ...; otherwise halves.
        num_splits: accepted for compatibility; the split over keys is chosen here and does not change results.
        return_softmax_lse: also return the log-sum-exp, (batch, q_heads, q_len).

    softmax_scale, causal, window_size, softcap, alibi_slopes and s_aux mean what they mean everywhere: causal and windowed
    queries are aligned with the last keys of their sequence. No gradient is ever recorded.

    Raises:
        TypeError, ValueError: operands that do not fit together, lengths or pages outside the cache.
        UnsupportedFeatureError: a head dimension above 256, a device this build does not serve, or a gradient to record.
    """
    del num_splits
    for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        validation.require_tensor(name, tensor, 4)
    validation.require_operands(q, k_cache, v_cache)
    if k_cache.shape != v_cache.shape:
        raise ValueError(
            f"k_cache and v_cache must have one shape, got {tuple(k_cache.shape)} and {tuple(v_cache.shape)}"
        )
    operands.require_device(q)
    validation.require_no_gradient("attention over a cache has no gradient", q, k, v, k_cache, v_cache, s_aux)
    batch, q_len, q_heads, head_dim = q.shape
    validation.require_per_head("alibi_slopes", alibi_slopes, q, batch)
    validation.require_per_head("s_aux", s_aux, q, None)
    if k_cache.stride(-1) != 1 or v_cache.stride(-1) != 1:
        raise ValueError("k_cache and v_cache must be contiguous along the head dimension")
    page_size = k_cache.shape[1]
    table = _table(q, k_cache, cache_batch_idx, block_table)
    held = _held(cache_seqlens, batch, table.shape[1] * page_size, q.device)
    total = held
    left, right = validation.window_of(window_size, causal)
    if k is not None or v is not None:
        new = _require_new(q, k_cache, k, v)
        total = held + new
        validation.require_pages(table, total, page_size, k_cache.shape[0], "the cache")
        positions = held[:, None] + torch.arange(new, device=q.device)[None, :]
        if rotary_cos is not None or rotary_sin is not None:
            q_positions = held[:, None].expand(batch, q_len)
            if left >= 0 or right >= 0:
                q_positions = held[:, None] + torch.arange(q_len, device=q.device)[None, :]
            k = _rotate(k, rotary_cos, rotary_sin, positions, rotary_interleaved)
            q = _rotate(q, rotary_cos, rotary_sin, q_positions, rotary_interleaved)
        pages = table.gather(1, positions // max(page_size, 1))
        k_cache[pages, positions % max(page_size, 1)] = k
        v_cache[pages, positions % max(page_size, 1)] = v
    elif rotary_cos is not None or rotary_sin is not None:
        raise ValueError("rotary_cos and rotary_sin rotate new keys, but k and v are None")
    else:
        validation.require_pages(table, total, page_size, k_cache.shape[0], "the cache")
    begins = torch.zeros_like(total)
    if cache_leftpad is not None:
        validation.require_integers("cache_leftpad", cache_leftpad, (batch,), q.device)
        begins = torch.minimum(cache_leftpad.to(torch.int64), total)
        if validation.values_are_visible(begins) and bool((cache_leftpad < 0).any()):
            raise ValueError("cache_leftpad must not be negative")
    out, lse = operators.varlen_fwd(
        operands.rows_dense(q.reshape(batch * q_len, q_heads, head_dim)),
        k_cache,
        v_cache,
        torch.arange(batch + 1, device=q.device, dtype=torch.int32) * q_len,
        operands.int32(begins),
        operands.int32(total - begins),
        operands.int32(table),
        operands.per_head_floats(alibi_slopes),
        operands.per_head_floats(s_aux),
        q_len,
        table.shape[1] * page_size,
        validation.softmax_scale_or_default(softmax_scale, head_dim),
        left,
        right,
        validation.softcap_or_error(softcap),
    )
    out = out.view(batch, q_len, q_heads, head_dim)
    if not return_softmax_lse:
        return out
    return out, lse.view(q_heads, batch, q_len).transpose(0, 1).contiguous()


def _table(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    cache_batch_idx: Optional[torch.Tensor],
    block_table: Optional[torch.Tensor],
) -> torch.Tensor:
    batch = q.shape[0]
    if block_table is not None:
        if cache_batch_idx is not None:
            raise ValueError("cache_batch_idx and block_table exclude each other")
        validation.require_tensor("block_table", block_table, 2)
        validation.require_integers("block_table", block_table, (batch, block_table.shape[1]), q.device)
        return block_table.to(torch.int64)
    if cache_batch_idx is not None:
        validation.require_integers("cache_batch_idx", cache_batch_idx, (batch,), q.device)
        return cache_batch_idx.to(torch.int64)[:, None]
    if k_cache.shape[0] < batch:
        raise ValueError(f"the cache has {k_cache.shape[0]} entries for a batch of {batch}")
    return torch.arange(batch, device=q.device)[:, None]


def _held(
    cache_seqlens: Optional[Union[int, torch.Tensor]], batch: int, capacity: int, device: torch.device
) -> torch.Tensor:
    if cache_seqlens is None:
        return torch.full((batch,), capacity, device=device, dtype=torch.int64)
    if isinstance(cache_seqlens, int):
        cache_seqlens = torch.full((batch,), cache_seqlens, device=device, dtype=torch.int64)
    validation.require_integers("cache_seqlens", cache_seqlens, (batch,), device)
    if validation.values_are_visible(cache_seqlens):
        outside = [length for length in cache_seqlens.tolist() if not 0 <= length <= capacity]
        if outside:
            raise ValueError(f"cache_seqlens holds {outside[0]}, the cache has room for {capacity}")
    return cache_seqlens.to(torch.int64)


def _require_new(q: torch.Tensor, k_cache: torch.Tensor, k: Optional[torch.Tensor], v: Optional[torch.Tensor]) -> int:
    for name, tensor in (("k", k), ("v", v)):
        validation.require_tensor(name, tensor, 4)
    if k.shape != v.shape:
        raise ValueError(f"k and v must have one shape, got {tuple(k.shape)} and {tuple(v.shape)}")
    expected = (q.shape[0], k.shape[1], *k_cache.shape[2:])
    if tuple(k.shape) != expected:
        raise ValueError(f"k must have shape {expected} to be appended, got {tuple(k.shape)}")
    if k.dtype != k_cache.dtype or v.dtype != k_cache.dtype or k.device != q.device or v.device != q.device:
        raise ValueError("k and v must have the element type and device of the cache")
    return k.shape[1]


def _rotate(
    tensor: torch.Tensor,
    cos: Optional[torch.Tensor],
    sin: Optional[torch.Tensor],
    positions: torch.Tensor,
    interleaved: bool,
) -> torch.Tensor:
    """Rotate the first dimensions of (batch, length, heads, head_dim) by the angles of their positions."""
    if cos is None or sin is None:
        raise ValueError("rotary_cos and rotary_sin must be given together")
    for name, table in (("rotary_cos", cos), ("rotary_sin", sin)):
        validation.require_tensor(name, table, 2)
    half = cos.shape[1]
    if sin.shape != cos.shape or 2 * half > tensor.shape[-1]:
        raise ValueError(
            f"rotary_cos and rotary_sin must have one shape (positions, at most {tensor.shape[-1] // 2}), "
            f"got {tuple(cos.shape)} and {tuple(sin.shape)}"
        )
    if validation.values_are_visible(positions) and positions.numel() and int(positions.max()) >= cos.shape[0]:
        raise ValueError(f"rotary_cos has {cos.shape[0]} positions, position {int(positions.max())} is needed")
    cosine, sine = (table[positions].float()[:, :, None, :] for table in (cos, sin))
    turned, rest = tensor[..., : 2 * half].float(), tensor[..., 2 * half :]
    if interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned[..., :half], turned[..., half:]
    rotated = (first * cosine - second * sine, first * sine + second * cosine)
    joined = torch.stack(rotated, dim=-1).flatten(-2) if interleaved else torch.cat(rotated, dim=-1)
    return torch.cat([joined.to(tensor.dtype), rest], dim=-1)
