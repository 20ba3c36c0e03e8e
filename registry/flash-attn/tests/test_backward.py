"""Gradients against those of the float64 reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from registry._harness import reference, tolerance

from . import cases
from .test_varlen import BATCHES, LONG, Batch, offsets

# A row with one key has a gradient of exactly zero, which a kernel reaches as a difference of two dot products.
CANCELLATION = 2e-6

TYPES = [torch.float32, torch.bfloat16, torch.float16]
NAMES = ["float32", "bfloat16", "float16"]


def leaves(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.detach().clone().requires_grad_() for tensor in tensors]


def reference_gradients(
    operands: tuple[torch.Tensor, ...], grad_out: torch.Tensor, arguments: dict[str, Any], dtype: torch.dtype | None
) -> list[torch.Tensor]:
    inputs = leaves(*(operands if dtype is None else (tensor.to(dtype) for tensor in operands)))
    out, _ = reference.attention(*inputs, dtype=dtype, **arguments)
    return list(torch.autograd.grad(out, inputs, grad_out.to(out.dtype)))


def check_backward(kernel: Any, case: cases.Case, dtype: torch.dtype) -> None:
    operands = case.tensors(dtype)
    arguments = case.arguments()
    grad_out = torch.randn(operands[0].shape, generator=torch.Generator().manual_seed(9)).to(dtype)
    inputs = leaves(*operands)
    out, lse, _ = kernel.call("flash_attn_func", *inputs, return_attn_probs=True, **arguments)
    actual = kernel.gradients(out, inputs, grad_out)
    # Probabilities are recomputed from a log-sum-exp that was rounded to float32, which matters where logits are large.
    recomputation = 2.0**-23 * float(lse.detach().abs().nan_to_num(posinf=0.0).max()) * float(grad_out.abs().max())
    truth = reference_gradients(operands, grad_out, arguments, torch.float64)
    yardstick = reference_gradients(operands, grad_out, arguments, None)
    for name, *grads in zip("qkv", actual, truth, yardstick):
        absolute = CANCELLATION + recomputation
        tolerance.assert_close_to_truth(*grads, factor=3.0, absolute=absolute, what=f"gradient of {name}")


@pytest.mark.parametrize(("case", "dtype"), cases.sampled(cases.SMALL, 3) + cases.sampled(cases.LARGE, 9))
def test_native_gradients_match_float64(native: Any, case: cases.Case, dtype: torch.dtype) -> None:
    check_backward(native, case, dtype)


@pytest.mark.parametrize(("case", "dtype"), cases.sampled(cases.SMALL, 5))
def test_triton_gradients_match_float64(triton: Any, case: cases.Case, dtype: torch.dtype) -> None:
    check_backward(triton, case, dtype)


@pytest.mark.parametrize("name", ["avx512bf16", "avx512", "avx2", "portable"])
@pytest.mark.parametrize("dtype", TYPES, ids=NAMES)
def test_every_instruction_set_gives_the_gradients(native: Any, name: str, dtype: torch.dtype) -> None:
    before = native.ops.cpu_capability("")
    try:
        native.ops.cpu_capability(name)
    except ValueError:
        pytest.skip(f"this CPU does not have {name}")
    try:
        for case in (cases.SMALL[1], cases.SMALL[18], cases.LARGE[0]):
            check_backward(native, case, dtype)
    finally:
        native.ops.cpu_capability(before)


def varlen_gradients(kernel: Any, batch: Batch, dtype: torch.dtype) -> None:
    q, k, v = batch.draw(dtype)
    grad_out = torch.randn(q.shape, generator=torch.Generator().manual_seed(9)).to(dtype)
    inputs = leaves(q, k, v)
    lens = (offsets(batch.q_lens), offsets(batch.k_lens), max(batch.q_lens), max(batch.k_lens))
    actual = kernel.gradients(
        kernel.call("flash_attn_varlen_func", *inputs, *lens, **batch.arguments()), inputs, grad_out
    )
    q_at, k_at = lens[0].tolist(), lens[1].tolist()
    expected: list[list[torch.Tensor]] = [[], [], [], [], [], []]
    for i in range(len(batch.q_lens)):
        arguments = batch.arguments()
        if batch.slopes == "batch":
            arguments["alibi_slopes"] = arguments["alibi_slopes"][i]
        rows, keys = slice(q_at[i], q_at[i + 1]), slice(k_at[i], k_at[i + 1])
        part = (q[None, rows], k[None, keys], v[None, keys])
        for half, kind in enumerate((torch.float64, None)):
            for n, grad in enumerate(reference_gradients(part, grad_out[None, rows], arguments, kind)):
                expected[3 * half + n].append(grad[0])
    joined = [torch.cat(grads) for grads in expected]
    for name, grad, truth, yardstick in zip("qkv", actual, joined[:3], joined[3:]):
        tolerance.assert_close_to_truth(
            grad, truth, yardstick, factor=3.0, absolute=CANCELLATION, what=f"gradient of {name}"
        )


@pytest.mark.parametrize(("batch", "dtype"), cases.sampled(BATCHES, 3) + cases.sampled(LONG, 9))
def test_native_gradients_of_sequences_match_float64(native: Any, batch: Batch, dtype: torch.dtype) -> None:
    varlen_gradients(native, batch, dtype)


@pytest.mark.parametrize(("batch", "dtype"), cases.sampled(BATCHES, 7))
def test_triton_gradients_of_sequences_match_float64(triton: Any, batch: Batch, dtype: torch.dtype) -> None:
    varlen_gradients(triton, batch, dtype)


def test_the_log_sum_exp_and_the_sinks_have_gradients(kernel: Any) -> None:
    case = cases.Case("", 2, 30, 40, 4, 2, 32, {"causal": True}, sinks=True)
    operands = case.tensors(torch.float32)
    sinks = case.arguments()["s_aux"]

    def gradients(function: Any, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        inputs = leaves(*(tensor.to(dtype) for tensor in (*operands, sinks)))
        out, lse = function(*inputs)
        loss = (out * torch.arange(32).to(dtype).cos()).sum() + (lse * torch.arange(30).to(dtype).sin()).sum()
        return torch.autograd.grad(loss, inputs)

    actual = gradients(
        lambda q, k, v, s: kernel.module.flash_attn_func(q, k, v, causal=True, s_aux=s, return_attn_probs=True)[:2],
        torch.float32,
    )
    truth = gradients(lambda q, k, v, s: reference.attention(q, k, v, causal=True, s_aux=s), torch.float64)
    for ours, exact in zip(actual, truth):
        torch.testing.assert_close(ours.double(), exact, atol=2e-5, rtol=2e-5)


def test_sinks_of_sequences_have_gradients(native: Any) -> None:
    batch = BATCHES[5]
    q, k, v = batch.draw(torch.float32)
    sinks = batch.arguments()["s_aux"].requires_grad_()
    lens = (offsets(batch.q_lens), offsets(batch.k_lens), max(batch.q_lens), max(batch.k_lens))
    out = native.module.flash_attn_varlen_func(q, k, v, *lens, causal=True, s_aux=sinks)
    (actual,) = torch.autograd.grad(out.square().sum(), [sinks])
    exact = sinks.detach().double().requires_grad_()
    loss = torch.zeros((), dtype=torch.float64)
    for (a, b), (c, d) in zip(((0, 12), (12, 42)), ((0, 30), (30, 74))):
        loss = (
            loss
            + reference.attention(q[None, a:b], k[None, c:d], v[None, c:d], causal=True, s_aux=exact)[0].square().sum()
        )
    (truth,) = torch.autograd.grad(loss, [exact])
    torch.testing.assert_close(actual.double(), truth, atol=1e-4, rtol=1e-4)


def test_gradients_do_not_vary_between_runs_or_thread_counts(native: Any) -> None:
    operands = cases.LARGE[1].tensors(torch.bfloat16)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            inputs = leaves(*operands)
            out = native.module.flash_attn_func(*inputs, causal=True, deterministic=True)
            results.append(torch.autograd.grad(out.float().square().sum(), inputs))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


def test_compiles_with_its_backward(native: Any) -> None:
    torch.use_deterministic_algorithms(False)
    operands = cases.SMALL[7].tensors(torch.float32)

    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return native.module.flash_attn_func(q, k, v, causal=True).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(loss(*(inputs := leaves(*operands))), inputs)
    actual = torch.autograd.grad(compiled(*(inputs := leaves(*operands))), inputs)
    for ours, eager in zip(actual, expected):
        torch.testing.assert_close(ours, eager)


def test_opcheck_passes_with_gradients(native: Any) -> None:
    torch.use_deterministic_algorithms(False)
    q, k, v = leaves(*cases.SMALL[6].tensors(torch.float32))
    torch.library.opcheck(native.ops.fwd.default, (q, k, v, None, None, 0.25, 9, 0, 0.0))
    lens = offsets((70,))
    arguments = (*(x[0].detach().requires_grad_() for x in (q, k, v)), lens, lens[:-1], lens.diff(), None, None, None)
    torch.library.opcheck(native.ops.varlen_fwd.default, (*arguments, 70, 70, 0.25, -1, 0, 0.0))


def test_what_has_no_gradient_is_refused(native: Any) -> None:
    q, k, v = cases.PLAIN.tensors(torch.float32)
    unsupported = native.module.UnsupportedFeatureError
    with pytest.raises(unsupported, match="alibi_slopes"):
        native.module.flash_attn_func(q, k, v, alibi_slopes=torch.rand(1, requires_grad=True))
    with pytest.raises(unsupported, match="cache"):
        native.module.flash_attn_with_kvcache(q.requires_grad_(), k, v)
    grad = torch.autograd.grad(native.module.flash_attn_func(q, k, v).sum(), q, create_graph=True)[0]
    with pytest.raises(unsupported, match="gradient of its own"):
        grad.sum().backward()


def test_the_operator_itself_checks_shapes_of_gradients(native: Any) -> None:
    q, k, v = cases.PLAIN.tensors(torch.float32)
    out, lse, _ = native.module.flash_attn_func(q, k, v, return_attn_probs=True)
    for wrong in (
        (out[:, 1:], None, out, lse),
        (out, None, out[..., 1:], lse),
        (out, None, out, lse[..., 1:]),
        (out, lse[0], out, lse),
    ):
        grad_out, grad_lse, given_out, given_lse = wrong
        with pytest.raises(RuntimeError, match="flash_attn"):
            native.ops.bwd(grad_out, grad_lse, q, k, v, given_out, given_lse, None, 0.25, -1, -1, 0.0)
