"""Which implementation computes a call: never silently another, and as right as our own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from registry._harness import reference, tolerance

from . import cases

AMX = frozenset({"avx512f", "amx_tile", "amx_bf16", "amx_int8"})
PLAIN = cases.Case("", 1, 200, 200, 4, 2, 32)


@pytest.fixture
def torch_chosen(native: Any) -> Iterator[None]:
    assert native.module.use_implementation("torch") == "auto"
    yield
    native.module.use_implementation("auto")


def choice(native: Any, flags: frozenset[str], dtype: torch.dtype = torch.bfloat16, **changes: Any) -> str:
    """Who computes PLAIN on a CPU with these flags, but for the named changes."""
    case = cases.Case("", 1, changes.pop("q_len", 200), 200, 4, 2, 32)
    q, k, _ = case.tensors(dtype)
    asked = {"window": (-1, -1), "softcap": 0.0, "alibi_slopes": None, "deterministic": False}
    asked |= {"return_attn_probs": False, "s_aux": None} | changes
    return native.submodule("deferral").choose(q, k, flags=flags, **asked)


def test_without_amx_nothing_is_left_to_torch(native: Any) -> None:
    for flags in (frozenset(), AMX - {"amx_bf16"}, AMX - {"amx_tile"}):
        assert choice(native, flags) == "native"


def test_with_amx_long_bfloat16_attention_is_left_to_torch(native: Any) -> None:
    assert choice(native, AMX) == "torch"
    assert choice(native, AMX, window=(-1, 0)) == "torch"


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": torch.float32},
        {"dtype": torch.float16},
        {"q_len": 127},
        {"q_len": 150, "window": (-1, 0)},
        {"window": (9, -1)},
        {"window": (-1, 5)},
        {"softcap": 3.0},
        {"alibi_slopes": torch.ones(4)},
        {"s_aux": torch.ones(4)},
        {"deterministic": True},
        {"return_attn_probs": True},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_with_amx_what_torch_cannot_return_or_not_faster_stays_here(native: Any, changes: dict[str, Any]) -> None:
    assert choice(native, AMX, **changes) == "native"


def test_what_this_cpu_would_do_is_told_of_any_call(native: Any, triton: Any, torch_chosen: None) -> None:
    q, k, v = PLAIN.tensors(torch.float32)
    assert native.module.implementation(q, k, v, causal=True) == "torch"
    assert native.module.implementation(q, k, v, softcap=2.0) == "native"
    assert triton.module.implementation(q, k, v) == "triton"
    native.module.use_implementation("native")
    assert native.module.implementation(q, k, v, causal=True) == "native"
    native.module.use_implementation("auto")
    expected = "torch" if native.submodule("deferral").cpu_flags() >= {"amx_tile", "amx_bf16"} else "native"
    assert native.module.implementation(*PLAIN.tensors(torch.bfloat16)) == expected
    with pytest.raises(ValueError, match="abacus"):
        native.module.use_implementation("abacus")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"softmax_scale": 0.3}], ids=lambda options: "-".join(options)
)
def test_what_is_left_to_torch_is_as_right_as_our_own(
    native: Any, torch_chosen: None, dtype: torch.dtype, options: dict[str, Any]
) -> None:
    operands = [tensor.requires_grad_() for tensor in PLAIN.tensors(dtype)]
    assert native.module.implementation(*operands, **options) == "torch"
    out = native.call("flash_attn_func", *operands, **options)
    assert out.is_contiguous()
    truth, _ = reference.attention(*operands, **options)
    yardstick, _ = reference.attention(*operands, dtype=None, **options)
    tolerance.assert_close_to_truth(out.detach(), truth.detach(), yardstick.detach())
    grad_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    found = torch.autograd.grad(out, operands, grad_out)
    right = torch.autograd.grad(truth, operands, grad_out.double())
    plain = torch.autograd.grad(yardstick, operands, grad_out)
    for name, ours, exact, theirs in zip("qkv", found, right, plain):
        tolerance.assert_close_to_truth(ours, exact.double(), theirs, factor=3.0, what=f"gradient of {name}")


def test_the_first_call_that_is_left_to_torch_is_logged(
    native: Any, torch_chosen: None, caplog: pytest.LogCaptureFixture
) -> None:
    deferral = native.submodule("deferral")
    deferral._said.clear()
    with caplog.at_level(logging.WARNING, logger=deferral.LOGGER.name):
        for _ in range(2):
            native.call("flash_attn_func", *PLAIN.tensors(torch.bfloat16))
    assert [record.name for record in caplog.records] == [deferral.LOGGER.name]


def test_a_compiled_call_is_left_to_torch_without_a_graph_break_and_logged(
    native: Any, torch_chosen: None, caplog: pytest.LogCaptureFixture
) -> None:
    torch.use_deterministic_algorithms(False)
    deferral = native.submodule("deferral")
    deferral._said.clear()
    q, k, v = PLAIN.tensors(torch.float32)
    compiled = torch.compile(lambda *x: native.module.flash_attn_func(*x), fullgraph=True, backend="aot_eager")
    with caplog.at_level(logging.WARNING, logger=deferral.LOGGER.name):
        torch.testing.assert_close(compiled(q, k, v), native.module.flash_attn_func(q, k, v))
    assert len(caplog.records) == 1
