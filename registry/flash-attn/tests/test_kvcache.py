"""The cache that grows, and operands packed into one tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from registry._harness import reference, tolerance

from .test_varlen import paged


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def expect(out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> None:
    truth, _ = reference.attention(q, k, v, **options)
    yardstick, _ = reference.attention(q, k, v, dtype=None, **options)
    tolerance.assert_close_to_truth(out, truth, yardstick)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("q_len", [1, 4])
def test_a_cache_is_read_up_to_its_lengths(kernel: Any, dtype: torch.dtype, q_len: int) -> None:
    q = draw(3, q_len, 4, 32, dtype=dtype)
    k_cache, v_cache = draw(3, 70, 2, 32, seed=1, dtype=dtype), draw(3, 70, 2, 32, seed=2, dtype=dtype)
    lens = torch.tensor([70, 1, 33], dtype=torch.int32)
    out, lse = kernel.call(
        "flash_attn_with_kvcache", q, k_cache, v_cache, cache_seqlens=lens, causal=True, return_softmax_lse=True
    )
    assert lse.shape == (3, 4, q_len)
    for b, length in enumerate(lens.tolist()):
        part = (q[b : b + 1], k_cache[b : b + 1, :length], v_cache[b : b + 1, :length])
        expect(out[b : b + 1], *part, causal=True)
        truth = reference.attention(*part, causal=True)[1]
        tolerance.assert_lse_close(lse[b : b + 1], truth, absolute=1e-4)


def test_new_keys_are_appended_in_place_before_attending(kernel: Any) -> None:
    q, k, v = draw(2, 3, 4, 16), draw(2, 3, 2, 16, seed=1), draw(2, 3, 2, 16, seed=2)
    k_cache, v_cache = draw(2, 40, 2, 16, seed=3), draw(2, 40, 2, 16, seed=4)
    before = k_cache.clone()
    lens = torch.tensor([5, 30], dtype=torch.int32)
    out = kernel.call("flash_attn_with_kvcache", q, k_cache, v_cache, k, v, cache_seqlens=lens, causal=True)
    for b, length in enumerate(lens.tolist()):
        assert torch.equal(k_cache[b, length : length + 3], k[b])
        assert torch.equal(v_cache[b, length : length + 3], v[b])
        assert torch.equal(k_cache[b, :length], before[b, :length])
        assert torch.equal(k_cache[b, length + 3 :], before[b, length + 3 :])
        held = slice(0, length + 3)
        expect(out[b : b + 1], q[b : b + 1], k_cache[b : b + 1, held], v_cache[b : b + 1, held], causal=True)


@pytest.mark.parametrize("page_size", [1, 16])
def test_new_keys_are_appended_to_pages(kernel: Any, page_size: int) -> None:
    lens = (17, 5)
    rows = draw(sum(lens), 2, 16, seed=1), draw(sum(lens), 2, 16, seed=2)
    k_cache, v_cache, table = paged((32, 16), *(torch.cat([x[:17], x[:15], x[17:], x[:11]]) for x in rows), page_size)
    q, k, v = draw(2, 2, 4, 16), draw(2, 2, 2, 16, seed=3), draw(2, 2, 2, 16, seed=4)
    out = kernel.call(
        "flash_attn_with_kvcache",
        q,
        k_cache,
        v_cache,
        k,
        v,
        cache_seqlens=torch.tensor(lens, dtype=torch.int32),
        block_table=table,
        causal=True,
    )
    for b, part in enumerate((slice(0, 17), slice(17, 22))):
        keys, values = (torch.cat([x[part], new[b]])[None] for x, new in zip(rows, (k, v)))
        expect(out[b : b + 1], q[b : b + 1], keys, values, causal=True)


def test_cache_entries_are_chosen_by_index_and_left_padding_is_skipped(kernel: Any) -> None:
    q = draw(2, 1, 2, 16)
    k_cache, v_cache = draw(5, 30, 1, 16, seed=1), draw(5, 30, 1, 16, seed=2)
    out = kernel.call(
        "flash_attn_with_kvcache",
        q,
        k_cache,
        v_cache,
        cache_seqlens=torch.tensor([20, 30], dtype=torch.int32),
        cache_batch_idx=torch.tensor([3, 1], dtype=torch.int32),
        cache_leftpad=torch.tensor([4, 0], dtype=torch.int32),
    )
    expect(out[:1], q[:1], k_cache[3:4, 4:20], v_cache[3:4, 4:20])
    expect(out[1:], q[1:], k_cache[1:2], v_cache[1:2])


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_rotation_is_that_of_complex_numbers(kernel: Any, interleaved: bool, causal: bool) -> None:
    q, k, v = draw(1, 2, 2, 16), draw(1, 2, 1, 16, seed=1), draw(1, 2, 1, 16, seed=2)
    k_cache, v_cache = draw(1, 20, 1, 16, seed=3), draw(1, 20, 1, 16, seed=4)
    angles = torch.arange(20.0)[:, None] * 0.3 ** torch.arange(4.0)[None, :]

    def rotate(x: torch.Tensor, positions: list[int]) -> torch.Tensor:
        pairs = x[..., :8].double()
        pairs = pairs.unflatten(-1, (4, 2)) if interleaved else pairs.unflatten(-1, (2, 4)).transpose(-1, -2)
        turn = torch.polar(torch.ones(len(positions), 4).double(), angles[positions].double())[None, :, None, :]
        turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turn)
        turned = turned.flatten(-2) if interleaved else turned.transpose(-1, -2).flatten(-2)
        return torch.cat([turned, x[..., 8:].double()], -1)

    expected_k = torch.cat([k_cache[:, :7].double(), rotate(k, [7, 8])], 1)
    expected_q = rotate(q, [7, 8] if causal else [7, 7])
    truth, _ = reference.attention(expected_q, expected_k, torch.cat([v_cache[:, :7], v], 1), causal=causal)
    out = kernel.call(
        "flash_attn_with_kvcache",
        q,
        k_cache,
        v_cache,
        k,
        v,
        angles.cos(),
        angles.sin(),
        cache_seqlens=7,
        causal=causal,
        rotary_interleaved=interleaved,
    )
    torch.testing.assert_close(out.double(), truth, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(k_cache[:, 7:9].double(), expected_k[:, 7:], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"cache_seqlens": 41}, ValueError, "room for 40"),
        ({"cache_seqlens": -1}, ValueError, "cache_seqlens"),
        ({"cache_seqlens": torch.tensor([1, 2, 3])}, ValueError, "shape"),
        ({"cache_seqlens": torch.tensor([1.0, 2.0])}, TypeError, "int32"),
        ({"k": draw(2, 3, 2, 16), "v": draw(2, 3, 2, 16), "cache_seqlens": 38}, ValueError, "more than its 1 pages"),
        ({"k": draw(2, 3, 2, 16)}, TypeError, "v must be"),
        ({"k": draw(2, 3, 1, 16), "v": draw(2, 3, 1, 16), "cache_seqlens": 1}, ValueError, "appended"),
        ({"cache_batch_idx": torch.tensor([0, 2])}, ValueError, "names page 2"),
        ({"rotary_cos": draw(40, 4), "rotary_sin": draw(40, 4)}, ValueError, "new keys"),
        ({"q": draw(3, 1, 4, 16)}, ValueError, "batch of 3"),
        ({"block_table": torch.zeros(2, 1).int(), "cache_batch_idx": torch.zeros(2).int()}, ValueError, "exclude"),
        ({"cache_leftpad": torch.tensor([-1, 0])}, ValueError, "cache_leftpad"),
    ],
)
def test_unfitting_caches_are_refused(kernel: Any, changes: dict[str, Any], error: type, message: str) -> None:
    cache = draw(2, 40, 2, 16)
    given = {"q": draw(2, 1, 4, 16), "k_cache": cache, "v_cache": cache.clone()}
    with pytest.raises(error, match=message):
        kernel.module.flash_attn_with_kvcache(**{**given, **changes})


def test_packed_operands_are_their_parts(kernel: Any) -> None:
    qkv = draw(2, 20, 3, 2, 16)
    out = kernel.call("flash_attn_qkvpacked_func", qkv, causal=True)
    expect(out, *qkv.unbind(2), causal=True)
    q, kv = draw(2, 9, 4, 16), draw(2, 20, 2, 2, 16, seed=1)
    out, lse, _ = kernel.call("flash_attn_kvpacked_func", q, kv, softcap=2.0, return_attn_probs=True)
    expect(out, q, *kv.unbind(2), softcap=2.0)
    assert lse.shape == (2, 4, 9)
    with pytest.raises(ValueError, match="3 entries"):
        kernel.module.flash_attn_qkvpacked_func(kv)
