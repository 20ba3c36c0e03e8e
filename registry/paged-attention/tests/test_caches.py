"""Filling caches, copying pages, merging partial results."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from registry._harness import reference

TYPES = [torch.float32, torch.bfloat16, torch.float16]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_tokens_are_written_to_their_slots_and_nowhere_else(kernel: Any, dtype: torch.dtype, layout: str) -> None:
    wide = normal(5, 2, 3, 24, dtype=dtype)
    key, value = wide[:, 0], wide[:, 1]
    k_cache, v_cache = normal(4, 8, 3, 24, seed=1, dtype=dtype), normal(4, 8, 3, 24, seed=2, dtype=dtype)
    slots = torch.tensor([9, -1, 0, 31, -7], dtype=torch.int32)
    expected = [k_cache.clone(), v_cache.clone()]
    for token, slot in ((0, 9), (2, 0), (3, 31)):
        expected[0][slot // 8, slot % 8] = key[token]
        expected[1][slot // 8, slot % 8] = value[token]
    caches = [k_cache, v_cache] if layout == "NHD" else [x.transpose(1, 2).contiguous() for x in (k_cache, v_cache)]
    kernel.call("reshape_and_cache", key, value, *caches, slots, kv_layout=layout)
    for cache, right in zip(caches, expected):
        assert torch.equal(cache if layout == "NHD" else cache.transpose(1, 2), right)


def test_of_two_tokens_with_one_slot_the_later_stays(native: Any) -> None:
    key, cache = normal(40, 3, 8), normal(2, 4, 3, 8, seed=1)
    native.module.reshape_and_cache(key, key, cache, cache.clone(), torch.full((40,), 5))
    assert torch.equal(cache[1, 1], key[39])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_pages_are_copied_in_every_layer(kernel: Any, dtype: torch.dtype) -> None:
    caches = [normal(6, 4, 2, 8, seed=seed, dtype=dtype) for seed in range(4)]
    # Pages may be dense in another order of their dimensions.
    caches[1] = caches[1].transpose(1, 2)
    before = [cache.clone() for cache in caches]
    kernel.call("copy_blocks", caches[:2], caches[2:], torch.tensor([[0, 3], [0, 5], [2, 1]]))
    for cache, old in zip(caches, before):
        assert torch.equal(cache, old[[0, 2, 2, 0, 4, 0]])


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_merging_halves_gives_the_whole(kernel: Any, dtype: torch.dtype) -> None:
    q, k, v = normal(1, 5, 4, 32, dtype=dtype), normal(1, 40, 2, 32, seed=1), normal(1, 40, 2, 32, seed=2)
    parts = [reference.attention(q, k[:, keys], v[:, keys]) for keys in (slice(0, 13), slice(13, 40))]
    (o1, lse1), (o2, lse2) = ((out[0].to(dtype), lse[0].t().float()) for out, lse in parts)
    out, lse = kernel.call("merge_state", o1, lse1, o2, lse2)
    truth, truth_lse = reference.attention(q, k, v)
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    torch.testing.assert_close(out.double(), truth[0], atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.double(), truth_lse[0].t(), atol=1e-5, rtol=1e-6)


def test_a_part_without_keys_counts_for_nothing(kernel: Any) -> None:
    o1, o2 = normal(3, 2, 8), torch.full((3, 2, 8), float("nan"))
    some, none = normal(3, 2, seed=1), torch.full((3, 2), float("-inf"))
    for first, second in (((o1, some), (o2, none)), ((o2, none), (o1, some))):
        out, lse = kernel.call("merge_state", *first, *second)
        torch.testing.assert_close(out, o1, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(lse, some, atol=1e-6, rtol=1e-6)
    out, lse = kernel.call("merge_state", o2, none, o2, none)
    assert bool((out == 0).all()) and bool(torch.isneginf(lse).all())


def test_nan_in_a_log_sum_exp_spreads(kernel: Any) -> None:
    o, lse1, lse2 = normal(2, 1, 8), torch.tensor([[float("nan")], [0.5]]), torch.tensor([[1.0], [0.5]])
    for pair in ((lse1, lse2), (lse2, lse1)):
        out, lse = kernel.call("merge_state", o, pair[0], o, pair[1])
        assert bool(out[0].isnan().all()) and bool(lse[0].isnan().all())
        torch.testing.assert_close(out[1], o[1])


def test_merging_takes_any_leading_dimensions(kernel: Any) -> None:
    o, lse = normal(2, 3, 4, 8), normal(2, 3, 4, seed=1)
    out, total = kernel.call("merge_state", o, lse, o, lse)
    torch.testing.assert_close(out, o, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(total, lse + torch.tensor(2.0).log(), atol=1e-6, rtol=1e-6)


def test_a_chunked_prompt_equals_the_whole_one(kernel: Any) -> None:
    q, k, v = normal(30, 4, 16), normal(30, 2, 16, seed=1), normal(30, 2, 16, seed=2)
    k_cache, v_cache = (torch.full((10, 4, 2, 16), float("nan")) for _ in "kv")
    table = torch.tensor([[7, 2, 9, 0, 4, 5, 1, 3]], dtype=torch.int32)
    outs = []
    for begin, end in ((0, 13), (13, 29), (29, 30)):
        positions = torch.arange(begin, end)
        slots = table[0, positions // 4].long() * 4 + positions % 4
        kernel.call("reshape_and_cache", k[begin:end], v[begin:end], k_cache, v_cache, slots)
        lens, cu = torch.tensor([end]), torch.tensor([0, end - begin])
        outs.append(kernel.call("paged_attention", q[begin:end], k_cache, v_cache, table, lens, cu_seqlens_q=cu))
    truth, _ = reference.attention(q[None], k[None], v[None], causal=True)
    torch.testing.assert_close(torch.cat(outs).double(), truth[0], atol=1e-5, rtol=1e-5)
