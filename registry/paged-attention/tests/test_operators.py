"""The operators as torch sees them: what they write, shapes without computing, compilation in one graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from . import cases

PROBLEM = cases.Problem("", (1, 1), (20, 9), slopes="head", sinks=True)


@pytest.fixture(autouse=True)
def ordinary_memory(poisoned_memory: None) -> None:
    torch.use_deterministic_algorithms(False)


def operands(dtype: torch.dtype) -> dict[str, tuple[Any, ...]]:
    drawn = cases.draw(PROBLEM, dtype)
    lens, starts, zero = (torch.tensor(x, dtype=torch.int32) for x in ([20, 9], [0, 1, 2], [0, 0]))
    table = drawn.block_table.clamp(min=0)
    caches = [cache.nan_to_num() for cache in (drawn.k_cache, drawn.v_cache)]
    biases = PROBLEM.biases()
    scalars = (1, 0.25, 9, 0, 4.0, 2)
    out, lse = torch.zeros_like(drawn.q), torch.zeros(2, 4)
    rows = torch.randn(3, 2, 64).to(dtype)
    return {
        "paged_fwd": (drawn.q, *caches, table, starts, zero, lens, biases["alibi_slopes"], biases["s_aux"], *scalars, out, lse),
        "reshape_and_cache": (rows, rows.clone(), *caches, torch.tensor([3, -1, 40])),
        "copy_blocks": (caches[0], torch.tensor([[0, 1]])),
        "merge_state": (drawn.q, lse, drawn.q.clone(), lse.clone(), out, lse.clone()),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["paged_fwd", "reshape_and_cache", "copy_blocks", "merge_state"])
def test_opcheck_passes(native: Any, name: str, dtype: torch.dtype) -> None:
    torch.library.opcheck(getattr(native.ops, name).default, operands(dtype)[name])


@pytest.mark.parametrize("name", ["paged_fwd", "reshape_and_cache", "copy_blocks", "merge_state"])
def test_opcheck_passes_on_triton(triton: Any, name: str) -> None:
    arguments = operands(torch.float32)[name]
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    with triton.interpreting(arguments):
        torch.library.opcheck(getattr(triton.ops, name).default, arguments, test_utils=checks)


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_decoding_step_compiles_without_a_graph_break(native: Any, dynamic: bool) -> None:
    module = native.module

    def step(q: Any, k: Any, k_cache: Any, v_cache: Any, table: Any, lens: Any, slots: Any) -> Any:
        module.reshape_and_cache(k, k * 2, k_cache, v_cache, slots)
        module.copy_blocks(k_cache, v_cache, torch.tensor([[0, 3]]))
        out, lse = module.paged_attention(q * 2, k_cache, v_cache, table, lens, softcap=4.0, return_lse=True)
        return module.merge_state(out, lse, out, lse)

    compiled = torch.compile(step, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for batch in (2, 3):
        tensors = torch.randn(batch, 4, 16), torch.randn(batch, 2, 16)
        table = torch.tensor([[0, 1], [2, 0], [1, 2]], dtype=torch.int32)[:batch]
        lens = torch.tensor([5, 7, 3], dtype=torch.int32)[:batch]
        slots = torch.tensor([1, 8, 6])[:batch]
        caches = [
            [torch.randn(4, 4, 2, 16, generator=torch.Generator().manual_seed(s)) for s in "ab".encode()] for _ in "12"
        ]
        for (out, lse), (right, right_lse) in [
            (compiled(*tensors, *caches[0], table, lens, slots), step(*tensors, *caches[1], table, lens, slots))
        ]:
            torch.testing.assert_close(out, right)
            torch.testing.assert_close(lse, right_lse)
        for ours, theirs in zip(*caches):
            assert torch.equal(ours, theirs)


def test_meta_tensors_get_shapes_without_computing(native: Any) -> None:
    q = torch.empty(3, 4, 64, dtype=torch.bfloat16, device="meta")
    cache = torch.empty(9, 16, 2, 64, dtype=torch.bfloat16, device="meta")
    table, lens = (torch.empty(shape, dtype=torch.int32, device="meta") for shape in ((3, 5), (3,)))
    out, lse = native.module.paged_attention(q, cache, cache, table, lens, return_lse=True)
    assert out.shape == q.shape and out.dtype == torch.bfloat16
    assert lse.shape == (3, 4) and lse.dtype == torch.float32
