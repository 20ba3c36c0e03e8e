"""Random problems: whatever is accepted is right, whatever is not raises a typed error; nothing crashes."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from . import cases

SETTINGS = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@st.composite
def problems(draw: Any) -> tuple[cases.Problem, torch.dtype]:
    k_heads = draw(st.integers(1, 3))
    lens = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 300)), min_size=1, max_size=4))
    problem = cases.Problem(
        "random",
        tuple(q for q, _ in lens),
        tuple(k for _, k in lens),
        draw(st.integers(1, 70)),
        (k_heads * draw(st.integers(1, 4)), k_heads),
        draw(st.one_of(st.integers(1, 40), st.sampled_from([64, 100, 256]))),
        draw(st.sampled_from(["NHD", "HND"])),
        {
            "causal": draw(st.booleans()),
            "window_size": (draw(st.integers(-1, 50)), draw(st.integers(-1, 50))),
            "softcap": draw(st.sampled_from([0.0, 4.0])),
        },
        draw(st.sampled_from(["", "head", "sequence"])),
        draw(st.booleans()),
    )
    return problem, draw(st.sampled_from([torch.float32, torch.bfloat16]))


@SETTINGS
@given(drawn=problems())
def test_random_problems_are_computed_rightly(native: Any, drawn: tuple[cases.Problem, torch.dtype]) -> None:
    problem, dtype = drawn
    tensors = cases.draw(problem, dtype)
    lens = torch.tensor(problem.k_lens, dtype=torch.int32)
    operands = (tensors.q, tensors.k_cache, tensors.v_cache, tensors.block_table, lens)
    out, lse = native.module.paged_attention(*operands, return_lse=True, **cases.arguments(problem))
    truth, truth_lse = cases.truth_of(problem, tensors, torch.float64)
    tolerance = {torch.float32: 1e-4, torch.bfloat16: 6e-2}[dtype]
    torch.testing.assert_close(out.double(), truth, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.double(), truth_lse.double(), atol=1e-3, rtol=1e-3)


SIZE = st.integers(0, 5)
INTEGERS = st.lists(st.integers(-3, 9), max_size=5)


@SETTINGS
@given(
    shapes=st.lists(st.lists(SIZE, min_size=2, max_size=5), min_size=3, max_size=3),
    starts=st.one_of(st.none(), INTEGERS),
    lens=INTEGERS,
    table=st.lists(st.lists(st.integers(-2, 6), min_size=2, max_size=2), max_size=4),
    longest=st.one_of(st.none(), st.integers(-1, 9)),
    layout=st.sampled_from(["NHD", "HND"]),
)
def test_hostile_arguments_raise_typed_errors_or_are_computed(
    native: Any,
    shapes: list[list[int]],
    starts: list[int] | None,
    lens: list[int],
    table: list[list[int]],
    longest: int | None,
    layout: str,
) -> None:
    q, k, v = (torch.randn(shape) for shape in shapes)
    cu = None if starts is None else torch.tensor(starts, dtype=torch.int32)
    seq_lens, pages = torch.tensor(lens, dtype=torch.int32), torch.tensor(table, dtype=torch.int32)
    options = {"cu_seqlens_q": cu, "max_seqlen_q": longest, "kv_layout": layout}
    plain = torch.zeros(2, dtype=torch.int32) if cu is None else cu
    calls = [
        lambda: native.module.paged_attention(q, k, v, pages, seq_lens, **options),
        lambda: native.module.paged_attention(q, k, k, pages, seq_lens, **options),
        lambda: native.module.reshape_and_cache(q, q, k, v, seq_lens, kv_layout=layout),
        lambda: native.module.copy_blocks(k, v, pages),
        lambda: native.module.merge_state(q, q, k, v),
        lambda: native.module.flash_attn_with_kvcache(q, k, v, cache_seqlens=longest, block_table=pages),
        lambda: native.ops.paged_fwd(
            q, k, k, pages, plain, plain[:-1].contiguous(), seq_lens, None, None, 9, 1.0, -1, 0, 0.0, 0,
            torch.empty_like(q), torch.empty(q.shape[:2]),
        ),
        lambda: native.ops.reshape_and_cache(q, q, k, v, seq_lens.long()),
        lambda: native.ops.copy_blocks(k, pages.long()),
    ]  # fmt: skip
    for call in calls:
        try:
            result = call()
        except (TypeError, ValueError, NotImplementedError, RuntimeError):
            continue
        assert result is None or isinstance(result, torch.Tensor | tuple)
