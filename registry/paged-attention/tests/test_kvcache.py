"""FlashAttention-2's function over a growing cache, which here shares its source with flash-attn and not its operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from registry._harness import reference, tolerance


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_new_keys_are_appended_before_attending(kernel: Any, dtype: torch.dtype, paged: bool) -> None:
    lens, new, page_size = [5, 30], 3, 8
    q, k, v = draw(2, new, 4, 16, dtype=dtype), *(draw(2, new, 2, 16, seed=seed, dtype=dtype) for seed in (1, 2))
    whole = [draw(2, 40, 2, 16, seed=seed, dtype=dtype) for seed in (3, 4)]
    table = torch.tensor([[7, 2, 9, 0, 4], [5, 1, 3, 8, 6]], dtype=torch.int32) if paged else None
    caches = [cache.clone() for cache in whole]
    if table is not None:
        caches = [torch.empty(10, page_size, 2, 16, dtype=dtype) for _ in whole]
        for cache, rows in zip(caches, whole):
            cache[table.long()] = rows.view(2, 5, page_size, 2, 16)
    out, lse = kernel.call(
        "flash_attn_with_kvcache",
        q,
        *caches,
        k,
        v,
        cache_seqlens=torch.tensor(lens, dtype=torch.int32),
        block_table=table,
        causal=True,
        s_aux=torch.tensor([0.5, -1.0, 0.0, 2.0]),
        return_softmax_lse=True,
    )
    for b, length in enumerate(lens):
        keys, values = (torch.cat([rows[b, :length], x[b]])[None] for rows, x in zip(whole, (k, v)))
        options = {"causal": True, "s_aux": torch.tensor([0.5, -1.0, 0.0, 2.0])}
        truth, truth_lse = reference.attention(q[b : b + 1], keys, values, **options)
        yardstick, _ = reference.attention(q[b : b + 1], keys, values, dtype=None, **options)
        tolerance.assert_close_to_truth(out[b : b + 1], truth, yardstick)
        tolerance.assert_lse_close(lse[b : b + 1], truth_lse, absolute=1e-4)
        held = caches[0][b] if table is None else caches[0][table[b].long()].flatten(0, 1)
        assert torch.equal(held[: length + new], keys[0])


def test_a_table_out_of_range_is_refused(kernel: Any) -> None:
    cache = draw(4, 8, 2, 16)
    with pytest.raises(ValueError, match="names page 4"):
        kernel.module.flash_attn_with_kvcache(
            draw(1, 1, 4, 16), cache, cache, cache_seqlens=9, block_table=torch.tensor([[0, 4]], dtype=torch.int32)
        )
