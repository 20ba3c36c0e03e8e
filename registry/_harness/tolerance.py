"""How far a kernel may be from the truth.

The truth is float64. The yardstick is the same mathematics done plainly in the operands' precision: a kernel may be at
most `factor` times as wrong, plus twice the noise that rounding at this magnitude makes (2 forward, 3 for gradients),
both at the worst element and on average. An absolute constant would be lax for small values and strict for large ones.

Quantised operands are another matter: the error that matters is spread over all elements, and the worst element is that of
the quantiser. A kernel is held to the rule above against the truth of the dequantised operands, and here to that of the
operands before they were quantised, by direction (cosine) and by size (relative L1).
"""

from __future__ import annotations

import torch


def rounding_noise(truth: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return, for each element, what adding and subtracting 0.3 in `dtype` changes."""
    rounded = truth.to(dtype)
    return (rounded + 0.3 - 0.3 - rounded).abs().double()


def assert_close_to_truth(
    actual: torch.Tensor,
    truth: torch.Tensor,
    yardstick: torch.Tensor,
    *,
    factor: float = 2.0,
    absolute: float = 0.0,
    what: str = "output",
) -> None:
    """Require the error of `actual` to be within `factor` times that of `yardstick` plus noise plus `absolute`.

    `absolute` is for results that are differences of larger terms, where even the truth may be exactly zero.
    """
    assert actual.shape == truth.shape, f"{what}: shape {tuple(actual.shape)}, expected {tuple(truth.shape)}"
    if truth.numel() == 0:
        return
    assert bool(torch.isfinite(actual).all()), f"{what}: {int((~torch.isfinite(actual)).sum())} elements are not finite"
    error = (actual.double() - truth).abs()
    allowed = (yardstick.double() - truth).abs()
    noise = rounding_noise(truth, actual.dtype)
    for name, reduce in (("worst", torch.max), ("mean", torch.mean)):
        measured = float(reduce(error))
        limit = factor * float(reduce(allowed)) + 2.0 * float(reduce(noise)) + absolute
        assert measured <= limit, f"{what}: {name} error {measured:.3e} exceeds {limit:.3e}"


def assert_lse_close(actual: torch.Tensor, truth: torch.Tensor, *, absolute: float, relative: float = 1e-6) -> None:
    """Require equal -inf positions and otherwise a small difference."""
    assert actual.dtype == torch.float32
    assert actual.shape == truth.shape, f"lse: shape {tuple(actual.shape)}, expected {tuple(truth.shape)}"
    assert bool((torch.isneginf(actual) == torch.isneginf(truth)).all()), "lse: -inf in the wrong rows"
    finite = torch.isfinite(truth)
    difference = (actual.double() - truth)[finite].abs()
    limit = absolute + relative * truth[finite].abs()
    assert bool((difference <= limit).all()), f"lse: differs by up to {float(difference.max()):.3e}"


def cosine(actual: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the cosine of the angle between two tensors seen as vectors; 1 for two zero vectors."""
    a, b = actual.double().flatten(), truth.double().flatten()
    lengths = float(a.norm() * b.norm())
    return float(a @ b) / lengths if lengths > 0 else float(torch.equal(a, b))


def relative_l1(actual: torch.Tensor, truth: torch.Tensor) -> float:
    """Return the sum of absolute differences over the sum of absolute values of the truth."""
    difference, whole = (actual.double() - truth.double()).abs().sum(), truth.double().abs().sum()
    return float(difference / whole) if whole > 0 else float("inf") if difference > 0 else 0.0


def assert_close_to_unquantised(
    actual: torch.Tensor,
    truth: torch.Tensor,
    *,
    least_cosine: float = 0.999,
    most_relative_l1: float = 0.02,
    what: str = "output",
) -> None:
    """Require that quantisation changed neither the direction nor the size of a result by much."""
    assert actual.shape == truth.shape, f"{what}: shape {tuple(actual.shape)}, expected {tuple(truth.shape)}"
    assert bool(torch.isfinite(actual).all()), f"{what}: {int((~torch.isfinite(actual)).sum())} elements are not finite"
    found = cosine(actual, truth)
    assert found >= least_cosine, f"{what}: cosine {found:.6f} is below {least_cosine}"
    error = relative_l1(actual, truth)
    assert error <= most_relative_l1, f"{what}: relative L1 error {error:.3e} exceeds {most_relative_l1}"
