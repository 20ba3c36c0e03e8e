"""The forward pass against float64, for every build, element type and instruction set."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from registry._harness import reference, tolerance

from . import cases

TYPES = [torch.float32, torch.bfloat16, torch.float16]
INSTRUCTION_SETS = ["avx512bf16", "avx512", "avx2", "portable"]


def by_name(values: list[Any]) -> dict[str, Any]:
    return {"argvalues": values, "ids": [getattr(value, "name", str(value).removeprefix("torch.")) for value in values]}


@pytest.fixture
def instruction_set(native: Any, request: pytest.FixtureRequest) -> Any:
    before = native.ops.cpu_capability("")
    try:
        native.ops.cpu_capability(request.param)
    except ValueError:
        pytest.skip(f"this CPU does not have {request.param}")
    yield request.param
    native.ops.cpu_capability(before)


@pytest.mark.parametrize(("case", "dtype"), cases.sampled(cases.SMALL, 1) + cases.sampled(cases.LARGE, 4))
def test_native_output_and_lse_match_float64(native: Any, case: cases.Case, dtype: torch.dtype) -> None:
    cases.check_forward(native, case, dtype)


@pytest.mark.parametrize(("case", "dtype"), cases.sampled(cases.SMALL, 3))
def test_triton_output_and_lse_match_float64(triton: Any, case: cases.Case, dtype: torch.dtype) -> None:
    cases.check_forward(triton, case, dtype)


@pytest.mark.parametrize("instruction_set", INSTRUCTION_SETS, indirect=True)
@pytest.mark.parametrize("dtype", **by_name(TYPES))
def test_every_instruction_set_matches_float64(native: Any, instruction_set: str, dtype: torch.dtype) -> None:
    assert native.ops.cpu_capability("") == instruction_set
    for case in (cases.SMALL[1], cases.SMALL[8], cases.SMALL[18], cases.SMALL[21], cases.LARGE[0], cases.LARGE[7]):
        cases.check_forward(native, case, dtype)


def test_an_unknown_instruction_set_is_refused(native: Any) -> None:
    with pytest.raises(ValueError, match="abacus"):
        native.ops.cpu_capability("abacus")


@pytest.mark.parametrize("dtype", **by_name(TYPES))
def test_non_contiguous_operands_are_read_by_their_strides(kernel: Any, dtype: torch.dtype) -> None:
    case = cases.Case("", 2, 21, 35, 4, 2, 32, {"causal": True})
    q, k, v = case.tensors(dtype)
    heads_first = tuple(tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v))
    assert not heads_first[0].is_contiguous()
    cases.check_forward(kernel, case, dtype, heads_first)
    packed = torch.randn(2, 21, 3, 4, 32, generator=torch.Generator().manual_seed(3)).to(dtype)
    cases.check_forward(kernel, cases.Case("", 2, 21, 21, 4, 4, 32), dtype, packed.unbind(2))
    last_strided = tuple(tensor.transpose(1, 3).contiguous().transpose(1, 3) for tensor in (q, k, v))
    assert last_strided[0].stride(-1) != 1
    cases.check_forward(kernel, case, dtype, last_strided)
    broadcast = (q, k[:, :, :1].expand(-1, -1, 2, -1), v[:1].expand(2, -1, -1, -1))
    cases.check_forward(kernel, case, dtype, broadcast)


@pytest.mark.parametrize(
    "shape", [(0, 5, 7, 2, 2, 16), (2, 0, 7, 2, 1, 16), (2, 5, 0, 2, 2, 16), (2, 5, 7, 0, 2, 16)], ids=str
)
def test_empty_dimensions_give_empty_or_zero_results(kernel: Any, shape: tuple[int, ...]) -> None:
    batch, q_len, k_len, q_heads, k_heads, head_dim = shape
    q = torch.randn(batch, q_len, q_heads, head_dim)
    k = torch.randn(batch, k_len, k_heads, head_dim)
    out, lse, _ = kernel.call("flash_attn_func", q, k, k, causal=True, return_attn_probs=True)
    assert out.shape == q.shape
    assert lse.shape == (batch, q_heads, q_len)
    assert bool((out == 0).all())
    assert bool(torch.isneginf(lse).all())


def test_results_do_not_vary_between_runs_or_thread_counts(native: Any) -> None:
    q, k, v = cases.LARGE[1].tensors(torch.bfloat16)
    expected = native.call("flash_attn_func", q, k, v, causal=True)
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            assert torch.equal(native.call("flash_attn_func", q, k, v, causal=True), expected)
    finally:
        torch.set_num_threads(threads)


def test_a_nan_or_infinity_spreads_as_in_torch(kernel: Any) -> None:
    q, k, v = cases.Case("", 1, 9, 40, 1, 1, 16).tensors(torch.float32)
    q[0, 2, 0, 3] = float("nan")
    k[0, 5, 0, 1] = float("inf")
    v[0, 6, 0, 2] = float("inf")
    out = kernel.call("flash_attn_func", q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
    assert torch.equal(out.isnan(), expected.isnan())
    finite = expected.isfinite()
    assert torch.equal(out.isfinite(), finite)
    torch.testing.assert_close(out[finite], expected[finite], atol=1e-5, rtol=1e-5)


def test_masked_future_values_do_not_leak_into_earlier_rows(kernel: Any) -> None:
    q, k, v = cases.Case("", 1, 64, 64, 1, 1, 16).tensors(torch.float32)
    expected = kernel.call("flash_attn_func", q, k, v, causal=True)
    k[:, 40:] = 1e4
    v[:, 40:] = -1e4
    assert torch.equal(kernel.call("flash_attn_func", q, k, v, causal=True)[:, :40], expected[:, :40])


def test_the_output_alone_is_the_default_return(kernel: Any) -> None:
    q, k, v = cases.PLAIN.tensors(torch.float32)
    out = kernel.call("flash_attn_func", q, k, v)
    assert isinstance(out, torch.Tensor)
    truth, _ = reference.attention(q, k, v)
    yardstick, _ = reference.attention(q, k, v, dtype=None)
    tolerance.assert_close_to_truth(out, truth, yardstick)
