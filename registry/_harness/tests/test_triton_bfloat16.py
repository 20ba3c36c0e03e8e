"""The correction of Triton's interpreter, against torch's own bfloat16."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton
import triton.language as tl

from registry._harness import triton_bfloat16


@triton.jit
def arithmetic(a, b, total, product, larger, exponential, widened, N: tl.constexpr):
    index = tl.arange(0, N)
    x = tl.load(a + index)
    y = tl.load(b + index)
    tl.store(total + index, x + y)
    tl.store(product + index, x * y)
    tl.store(larger + index, tl.where(x > y, x, y))
    tl.store(exponential + index, tl.exp2(x.to(tl.float32)).to(tl.bfloat16))
    tl.store(widened + index, x.to(tl.float32))


@triton.jit
def product(a, b, out, N: tl.constexpr):
    row = tl.arange(0, N)[:, None]
    column = tl.arange(0, N)[None, :]
    value = tl.dot(tl.load(a + row * N + column), tl.load(b + row * N + column))
    tl.store(out + row * N + column, value)


def operands(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(count, generator=generator).bfloat16(),
        (torch.randn(count, generator=generator) * 3).bfloat16(),
    )


def test_elementwise_results_equal_those_of_torch() -> None:
    a, b = operands(256)
    results = [torch.empty_like(a) for _ in range(4)]
    widened = torch.empty(256)
    with triton_bfloat16.corrected_bfloat16():
        arithmetic[(1,)](a, b, *results, widened, N=256)
    assert torch.equal(results[0], a + b)
    assert torch.equal(results[1], a * b)
    assert torch.equal(results[2], torch.maximum(a, b))
    assert torch.equal(results[3], torch.exp2(a.float()).bfloat16())
    assert torch.equal(widened, a.float())


def test_a_dot_product_accumulates_in_float32() -> None:
    a, b = (tensor.view(16, 16) for tensor in operands(256))
    out = torch.empty(16, 16)
    with triton_bfloat16.corrected_bfloat16():
        product[(1,)](a, b, out, N=16)
    torch.testing.assert_close(out, a.float() @ b.float())


def test_without_the_correction_the_interpreter_is_wrong() -> None:
    a, b = (tensor.view(16, 16) for tensor in operands(256))
    out = torch.empty(16, 16)
    with np.errstate(all="ignore"):
        product[(1,)](a, b, out, N=16)
    assert float((out - a.float() @ b.float()).abs().max()) > 1e3


def test_rounding_is_to_nearest_even_for_every_kind_of_value() -> None:
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2**32, 100_000, dtype=np.uint32)
    ties = (generator.integers(0, 2**16, 1_000, dtype=np.uint32) << 16) | 0x8000
    values = np.concatenate([bits, ties]).view(np.float32)
    expected = torch.from_numpy(values.copy()).bfloat16()
    actual = torch.from_numpy(triton_bfloat16.narrow(values).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(actual.isnan(), expected.isnan())
    assert torch.equal(actual[~expected.isnan()], expected[~expected.isnan()])
    exact = triton_bfloat16.widen(triton_bfloat16.narrow(values))
    assert np.array_equal(np.isnan(exact), np.isnan(values))


def test_the_interpreter_is_restored_afterwards() -> None:
    from triton.runtime import interpreter

    before = interpreter.InterpreterBuilder.create_dot
    with triton_bfloat16.corrected_bfloat16():
        assert interpreter.InterpreterBuilder.create_dot is not before
    assert interpreter.InterpreterBuilder.create_dot is before
