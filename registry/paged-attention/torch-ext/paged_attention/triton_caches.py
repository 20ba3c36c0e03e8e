"""Filling and merging in Triton: what moves keys and values into pages, copies pages, and joins partial results."""

import torch
import triton
import triton.language as tl

# Elements that one program moves at a time; a power of two.
ELEMENTS = 1024


@triton.jit
def write_kernel(
    key_pointer,
    value_pointer,
    k_cache_pointer,
    v_cache_pointer,
    slots_pointer,
    key_row_stride,
    key_head_stride,
    value_row_stride,
    value_head_stride,
    k_page_stride,
    k_token_stride,
    k_head_stride,
    v_page_stride,
    v_token_stride,
    v_head_stride,
    page_size,
    heads,
    head_dim,
    BLOCK: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_pointer + token)
    if slot < 0:
        return
    page = slot // page_size
    at = slot % page_size
    for first in range(0, heads * head_dim, BLOCK):
        element = first + tl.arange(0, BLOCK)
        inside = element < heads * head_dim
        head = (element // head_dim).to(tl.int64)
        column = element % head_dim
        key = tl.load(key_pointer + token * key_row_stride + head * key_head_stride + column, mask=inside)
        value = tl.load(value_pointer + token * value_row_stride + head * value_head_stride + column, mask=inside)
        k_at = k_cache_pointer + page * k_page_stride + at * k_token_stride + head * k_head_stride + column
        v_at = v_cache_pointer + page * v_page_stride + at * v_token_stride + head * v_head_stride + column
        tl.store(k_at, key, mask=inside)
        tl.store(v_at, value, mask=inside)


@triton.jit
def copy_kernel(cache_pointer, pairs_pointer, page_stride, page_elements, parts, BLOCK: tl.constexpr):
    pair = tl.program_id(0) // parts
    element = (tl.program_id(0) % parts) * BLOCK + tl.arange(0, BLOCK)
    inside = element < page_elements
    source = tl.load(pairs_pointer + 2 * pair)
    destination = tl.load(pairs_pointer + 2 * pair + 1)
    values = tl.load(cache_pointer + source * page_stride + element, mask=inside)
    tl.store(cache_pointer + destination * page_stride + element, values, mask=inside)


@triton.jit
def merge_kernel(
    first_pointer,
    first_lse_pointer,
    second_pointer,
    second_lse_pointer,
    out_pointer,
    lse_pointer,
    head_dim,
    BLOCK_D: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_D)
    first_lse = tl.load(first_lse_pointer + row)
    second_lse = tl.load(second_lse_pointer + row)
    has_first = first_lse != float("-inf")
    has_second = second_lse != float("-inf")
    # A comparison with NaN is false, so a NaN in the second is taken here, and one in the first on the next line.
    maximum = tl.where(first_lse >= second_lse, first_lse, second_lse)
    maximum = tl.where(first_lse != first_lse, first_lse, maximum)
    first_weight = tl.where(has_first, tl.exp(first_lse - tl.where(has_first, maximum, 0.0)), 0.0)
    second_weight = tl.where(has_second, tl.exp(second_lse - tl.where(has_second, maximum, 0.0)), 0.0)
    total = first_weight + second_weight
    # NaN is not 0 either. The larger weight is 1, so 0 means that neither part saw a key.
    some = total != 0.0
    inverse = tl.where(some, 1.0 / tl.where(some, total, 1.0), 0.0)
    inside = columns < head_dim
    first = tl.load(first_pointer + row * head_dim + columns, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(second_pointer + row * head_dim + columns, mask=inside, other=0.0).to(tl.float32)
    # A part that saw no key counts for nothing, whatever its rows hold.
    merged = tl.where(has_first, first * (first_weight * inverse), 0.0)
    merged += tl.where(has_second, second * (second_weight * inverse), 0.0)
    tl.store(out_pointer + row * head_dim + columns, merged.to(out_pointer.dtype.element_ty), mask=inside)
    tl.store(lse_pointer + row, tl.where(some, maximum + tl.log(tl.where(some, total, 1.0)), float("-inf")))


def write(
    key: torch.Tensor, value: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slots: torch.Tensor
) -> None:
    """Launch reshape_and_cache; shapes as in operators.reshape_and_cache."""
    tokens, heads, head_dim = key.shape
    if tokens * heads * head_dim == 0 or k_cache.numel() == 0:
        return
    write_kernel[(tokens,)](
        key,
        value,
        k_cache,
        v_cache,
        slots,
        key.stride(0),
        key.stride(1),
        value.stride(0),
        value.stride(1),
        k_cache.stride(0),
        k_cache.stride(1),
        k_cache.stride(2),
        v_cache.stride(0),
        v_cache.stride(1),
        v_cache.stride(2),
        k_cache.shape[1],
        heads,
        head_dim,
        BLOCK=min(ELEMENTS, triton.next_power_of_2(heads * head_dim)),
        num_warps=4,
    )


def copy(cache: torch.Tensor, pairs: torch.Tensor) -> None:
    """Launch copy_blocks; every page is one run of memory."""
    page_elements = cache.shape[1] * cache.shape[2] * cache.shape[3]
    if page_elements * pairs.shape[0] == 0:
        return
    block = min(ELEMENTS, triton.next_power_of_2(page_elements))
    parts = triton.cdiv(page_elements, block)
    copy_kernel[(pairs.shape[0] * parts,)](
        cache, pairs, cache.stride(0), page_elements, parts, BLOCK=block, num_warps=4
    )


def merge(
    first: torch.Tensor,
    first_lse: torch.Tensor,
    second: torch.Tensor,
    second_lse: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """Launch merge_state; everything is contiguous, shapes as in operators.merge_state."""
    rows, heads, head_dim = first.shape
    if rows * heads == 0:
        return
    merge_kernel[(rows * heads,)](
        first,
        first_lse,
        second,
        second_lse,
        out,
        lse,
        head_dim,
        BLOCK_D=max(16, triton.next_power_of_2(max(1, head_dim))),
        num_warps=1,
    )
