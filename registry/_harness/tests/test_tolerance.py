"""The rules that kernels are held to accept what rounding does and refuse what it does not."""

from __future__ import annotations

import pytest
import torch

from registry._harness import shapes, tolerance


def drawn(seed: int = 0) -> torch.Tensor:
    return torch.randn(8, 64, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def quantised(values: torch.Tensor, steps: int) -> torch.Tensor:
    scale = values.abs().amax(-1, keepdim=True) / steps
    return (values / scale).round() * scale


def test_rounding_to_the_element_type_is_within_the_rule() -> None:
    truth = drawn()
    tolerance.assert_close_to_truth(truth.bfloat16(), truth, truth.bfloat16())


def test_one_wrong_element_is_outside_the_rule() -> None:
    truth = drawn()
    wrong = truth.float()
    wrong[3, 5] += 1e-4
    with pytest.raises(AssertionError, match="worst error"):
        tolerance.assert_close_to_truth(wrong, truth, truth.float())


def test_an_error_of_all_elements_below_the_worst_is_outside_the_rule() -> None:
    truth = drawn()
    yardstick = truth.float()
    yardstick[0, 0] += 1e-3
    with pytest.raises(AssertionError, match="mean error"):
        tolerance.assert_close_to_truth(truth.float() + 1e-4, truth, yardstick)


def test_a_nan_is_outside_every_rule() -> None:
    truth = drawn()
    wrong = truth.clone()
    wrong[0, 0] = float("nan")
    with pytest.raises(AssertionError, match="not finite"):
        tolerance.assert_close_to_truth(wrong, truth, truth)
    with pytest.raises(AssertionError, match="not finite"):
        tolerance.assert_close_to_unquantised(wrong, truth)


def test_eight_bits_are_close_to_the_unquantised_and_four_are_not() -> None:
    truth = drawn()
    tolerance.assert_close_to_unquantised(quantised(truth, 127), truth)
    with pytest.raises(AssertionError, match="cosine|relative L1"):
        tolerance.assert_close_to_unquantised(quantised(truth, 7), truth)


def test_a_wrong_scale_keeps_its_direction_and_is_refused_by_its_size() -> None:
    truth = drawn()
    assert tolerance.cosine(truth * 1.1, truth) == pytest.approx(1.0)
    with pytest.raises(AssertionError, match="relative L1"):
        tolerance.assert_close_to_unquantised(truth * 1.1, truth)


def test_a_wrong_sign_is_refused_by_its_direction() -> None:
    truth = drawn()
    with pytest.raises(AssertionError, match="cosine"):
        tolerance.assert_close_to_unquantised(-truth, truth, most_relative_l1=10.0)


def test_zero_results_are_close_to_zero_alone() -> None:
    zero = torch.zeros(4)
    tolerance.assert_close_to_unquantised(zero, zero)
    with pytest.raises(AssertionError, match="cosine"):
        tolerance.assert_close_to_unquantised(torch.ones(4), zero)


def test_every_shape_says_which_model_it_comes_from_and_has_a_name_of_its_own() -> None:
    found = [*shapes.PREFILL, *shapes.WINDOW, *shapes.SCORES, *shapes.BACKWARD, *shapes.DECODE]
    assert all(shape.origin for shape in found)
    assert len({shape.name for shape in found}) == len(found)


def test_the_work_of_a_window_counts_the_keys_that_are_seen() -> None:
    shape = shapes.Shape("", "", 4, 6, 2, 1, 8, True, 3)
    seen = sum(min(3, row + 1 + 2) for row in range(4))
    assert shape.forward_flops() == 4.0 * 2 * 8 * seen


def test_slopes_of_linear_biases_halve_from_head_to_head_for_eight_heads() -> None:
    slopes = shapes.alibi_slopes(8)
    assert slopes[0] == 0.5
    torch.testing.assert_close(slopes[1:] / slopes[:-1], torch.full((7,), 0.5))
