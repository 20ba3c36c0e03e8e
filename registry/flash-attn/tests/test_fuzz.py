"""Random problems: whatever is accepted is right, whatever is not raises a typed error; nothing crashes."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from registry._harness import reference

LENGTHS = st.one_of(st.integers(0, 40), st.sampled_from([255, 256, 257, 300]))
SETTINGS = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@st.composite
def problems(draw: Any) -> dict[str, Any]:
    k_heads = draw(st.integers(1, 3))
    return {
        "batch": draw(st.integers(0, 2)),
        "q_len": draw(LENGTHS),
        "k_len": draw(LENGTHS),
        "k_heads": k_heads,
        "q_heads": k_heads * draw(st.integers(1, 4)),
        "head_dim": draw(st.one_of(st.integers(1, 40), st.sampled_from([64, 100, 128, 256]))),
        "dtype": draw(st.sampled_from([torch.float32, torch.bfloat16])),
        "seed": draw(st.integers(0, 100)),
        "options": {
            "causal": draw(st.booleans()),
            "window_size": (draw(st.integers(-1, 50)), draw(st.integers(-1, 50))),
            "softcap": draw(st.sampled_from([0.0, 4.0])),
        },
        "layout": draw(st.sampled_from(["rows", "heads", "strided"])),
    }


def lay_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "heads":
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "strided":
        wide = torch.full((*tensor.shape[:-1], tensor.shape[-1] + 3), float("nan"), dtype=tensor.dtype)
        wide[..., : tensor.shape[-1]] = tensor
        return wide[..., : tensor.shape[-1]]
    return tensor


@SETTINGS
@given(problem=problems())
def test_random_problems_are_computed_rightly(native: Any, problem: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(problem["seed"])

    def tensor(length: int, heads: int) -> torch.Tensor:
        shape = (problem["batch"], length, heads, problem["head_dim"])
        return lay_out(torch.randn(shape, generator=generator).to(problem["dtype"]), problem["layout"])

    q = tensor(problem["q_len"], problem["q_heads"])
    k, v = tensor(problem["k_len"], problem["k_heads"]), tensor(problem["k_len"], problem["k_heads"])
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    out, lse, _ = native.module.flash_attn_func(*inputs, return_attn_probs=True, **problem["options"])
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    truth, truth_lse = reference.attention(*exact, **problem["options"])
    tolerance = {torch.float32: 1e-4, torch.bfloat16: 6e-2}[problem["dtype"]]
    torch.testing.assert_close(out.double(), truth, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.double(), truth_lse, atol=1e-3, rtol=1e-3)
    if out.numel():
        grads = torch.autograd.grad(out.float().sum(), inputs)
        for actual, expected in zip(grads, torch.autograd.grad(truth.sum(), exact)):
            scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
            torch.testing.assert_close(actual.double(), expected, atol=2 * tolerance * scale, rtol=2 * tolerance)


SMALL = st.integers(0, 5)


@SETTINGS
@given(
    shapes=st.lists(st.lists(SMALL, min_size=2, max_size=5), min_size=3, max_size=3),
    starts=st.lists(st.integers(-3, 9), max_size=5),
    table=st.one_of(st.none(), st.lists(st.lists(st.integers(-2, 6), min_size=2, max_size=2), max_size=4)),
    longest=st.integers(-1, 9),
)
def test_hostile_arguments_raise_typed_errors_or_are_computed(
    native: Any, shapes: list[list[int]], starts: list[int], table: list[list[int]] | None, longest: int
) -> None:
    q, k, v = (torch.randn(shape) for shape in shapes)
    offsets = torch.tensor(starts, dtype=torch.int32)
    block_table = None if table is None else torch.tensor(table, dtype=torch.int32)
    calls = [
        lambda: native.module.flash_attn_func(q, k, v),
        lambda: native.module.flash_attn_varlen_func(
            q, k, v, offsets, offsets, longest, longest, block_table=block_table
        ),
        lambda: native.module.flash_attn_with_kvcache(q, k, v, cache_seqlens=longest, block_table=block_table),
        lambda: native.ops.varlen_fwd(
            q, k, v, offsets, offsets[:-1].contiguous(), offsets.diff(), block_table, None, None, 9, 9, 1.0, -1, -1, 0.0
        ),
    ]
    for call in calls:
        try:
            result = call()
        except (TypeError, ValueError, NotImplementedError, RuntimeError):
            continue
        assert isinstance(result, torch.Tensor | tuple)
