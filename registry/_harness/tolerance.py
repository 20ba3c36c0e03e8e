"""How far a kernel may be from the truth.

The truth is float64. The yardstick is the same mathematics done plainly in the operands' precision: a kernel may be at
most `factor` times as wrong, plus twice the noise that rounding at this magnitude makes (2 forward, 3 for gradients),
both at the worst element and on average. An absolute constant would be lax for small values and strict for large ones.
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
