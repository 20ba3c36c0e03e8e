"""Attention over pages against float64, sequence by sequence: decoding, chunked prefill, and both in one batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from . import cases

SAMPLE = [pytest.param(*pair, id=pair[0].name) for pair in cases.SAMPLE]
LONG = [
    cases.Problem("decode", (1, 1, 1, 1), (3000, 257, 256, 1), heads=(8, 2), head_dim=128),
    cases.Problem("decode_heads_first", (1, 1), (1500, 700), heads=(8, 2), head_dim=128, layout="HND"),
    cases.Problem("decode_many_heads", (1, 1), (900, 300), heads=(48, 4), head_dim=64),
    cases.Problem("decode_window", (1, 1), (2000, 90), options={"window_size": (700, 0)}),
    cases.Problem("one_token_pages", (1, 2), (600, 300), page_size=1, sinks=True),
    cases.Problem("chunk", (130, 1, 37), (700, 900, 37), heads=(4, 1), slopes="head"),
    cases.Problem("head_dim_256", (1, 3), (400, 300), head_dim=256, page_size=33),
    cases.Problem("head_dim_odd", (1, 3), (400, 300), head_dim=37, options={"softcap": 8.0}),
]


def run(kernel: Any, problem: cases.Problem, dtype: torch.dtype) -> None:
    drawn = cases.draw(problem, dtype)
    lens = torch.tensor(problem.k_lens, dtype=torch.int32)
    tensors = (drawn.q, drawn.k_cache, drawn.v_cache, drawn.block_table, lens)
    out, lse = kernel.call("paged_attention", *tensors, return_lse=True, **cases.arguments(problem))
    cases.check(problem, drawn, out, lse)


@pytest.mark.parametrize(("problem", "dtype"), SAMPLE)
def test_native_matches_float64(native: Any, problem: cases.Problem, dtype: torch.dtype) -> None:
    run(native, problem, dtype)


@pytest.mark.parametrize(("problem", "dtype"), SAMPLE)
def test_triton_matches_float64(triton: Any, problem: cases.Problem, dtype: torch.dtype) -> None:
    run(triton, problem, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("problem", LONG, ids=lambda problem: problem.name)
def test_native_matches_float64_over_several_blocks(native: Any, problem: cases.Problem, dtype: torch.dtype) -> None:
    run(native, problem, dtype)


@pytest.mark.parametrize("name", ["avx512", "avx2", "portable"])
def test_other_instruction_sets_match_float64(native: Any, name: str) -> None:
    before = native.ops.cpu_capability("")
    try:
        native.ops.cpu_capability(name)
    except RuntimeError:
        pytest.skip(f"this CPU does not run {name}")
    try:
        for problem in (LONG[0], LONG[5], LONG[7]):
            run(native, problem, torch.bfloat16)
    finally:
        native.ops.cpu_capability(before)


def test_every_two_values_of_two_options_are_tried_together() -> None:
    small = {"a": [1, 2, 3], "b": "xy", "c": [False, True]}
    rows = cases.pairwise({name: list(values) for name, values in small.items()}, 0)
    for first, second in (("a", "b"), ("a", "c"), ("b", "c")):
        pairs = {(row[first], row[second]) for row in rows}
        assert len(pairs) == len(small[first]) * len(small[second])


def test_the_number_of_threads_and_of_splits_changes_no_bit(native: Any) -> None:
    problem = LONG[0]
    drawn = cases.draw(problem, torch.bfloat16)
    lens = torch.tensor(problem.k_lens, dtype=torch.int32)
    threads = torch.get_num_threads()
    results = []
    try:
        for count, splits in ((1, 0), (2, 0), (2, 7)):
            torch.set_num_threads(count)
            tensors = (drawn.q, drawn.k_cache, drawn.v_cache, drawn.block_table, lens)
            results.append(native.call("paged_attention", *tensors, num_splits=splits))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_the_output_may_be_given_and_strided(kernel: Any) -> None:
    problem = cases.Problem("", (1, 1), (20, 9))
    drawn = cases.draw(problem, torch.float32)
    lens = torch.tensor(problem.k_lens, dtype=torch.int32)
    wide = torch.full((2, 9, 70), 7.0)
    out = wide[:, 2:6, 3:67]
    tensors = (drawn.q, drawn.k_cache, drawn.v_cache, drawn.block_table, lens)
    returned, lse = kernel.call("paged_attention", *tensors, out=out, return_lse=True)
    assert returned is out
    cases.check(problem, drawn, out, lse)
    out.fill_(7.0)
    assert bool((wide == 7.0).all())


def test_rows_after_the_last_sequence_are_zero(kernel: Any) -> None:
    for splits in (1, 2):
        problem = cases.Problem("", (2, 3), (70, 40), sinks=True, num_splits=splits)
        drawn = cases.draw(problem, torch.float32)
        given = cases.arguments(problem) | {"cu_seqlens_q": torch.tensor([0, 2, 3], dtype=torch.int32)}
        lens = torch.tensor(problem.k_lens, dtype=torch.int32)
        tensors = (drawn.q, drawn.k_cache, drawn.v_cache, drawn.block_table, lens)
        out, lse = kernel.call("paged_attention", *tensors, return_lse=True, **given)
        assert bool((out[3:] == 0).all()) and bool(torch.isneginf(lse[3:]).all())
        assert bool((out[:3] != 0).any())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinite_values_spread_as_in_a_plain_softmax(kernel: Any, value: float) -> None:
    problem = cases.Problem("", (1, 1, 1), (20, 9, 33), num_splits=2)
    drawn = cases.draw(problem, torch.float32)
    page = int(drawn.block_table[0, 0])
    drawn.v_cache[page, 3, 0, 5] = value
    drawn.q[1, 0, 0] = float("nan")
    lens = torch.tensor(problem.k_lens, dtype=torch.int32)
    tensors = (drawn.q, drawn.k_cache, drawn.v_cache, drawn.block_table, lens)
    out = kernel.call("paged_attention", *tensors, num_splits=2)
    bad = ~torch.isfinite(out)
    assert bool(bad[0, :2, 5].all()) and int(bad[0].sum()) == 2
    assert bool(bad[1, 0].all()) and int(bad[1].sum()) == 64
    assert not bool(bad[2].any())
