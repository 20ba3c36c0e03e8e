"""Arguments that do not fit are refused in Python, with a type that says what kind of mistake it is."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch


def operands(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "q": torch.randn(2, 5, 4, 16),
        "k": torch.randn(2, 7, 2, 16),
        "v": torch.randn(2, 7, 2, 16),
    }
    given.update(changes)
    return given


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"q": [1.0]}, TypeError, "q must be a torch.Tensor"),
        ({"q": torch.randn(5, 4, 16)}, ValueError, "4 dimensions"),
        ({"q": torch.randn(2, 5, 4, 16, dtype=torch.float64)}, TypeError, "float32, bfloat16 or float16"),
        ({"q": torch.ones(2, 5, 4, 16, dtype=torch.int32)}, TypeError, "float32, bfloat16 or float16"),
        ({"k": torch.randn(2, 7, 2, 16).bfloat16()}, TypeError, "element type"),
        ({"v": torch.randn(2, 7, 2, 8)}, ValueError, "head dimension"),
        ({"v": torch.randn(2, 6, 2, 16)}, ValueError, "one length"),
        ({"k": torch.randn(3, 7, 2, 16)}, ValueError, "one batch size"),
        ({"k": torch.randn(2, 7, 3, 16), "v": torch.randn(2, 7, 3, 16)}, ValueError, "multiple"),
        ({"k": torch.randn(2, 7, 0, 16), "v": torch.randn(2, 7, 0, 16)}, ValueError, "multiple"),
        ({"v": torch.randn(2, 7, 4, 16)}, ValueError, "heads"),
        ({"k": torch.empty(2, 7, 2, 16, device="meta")}, ValueError, "one device"),
        ({"dropout_p": 1.5}, ValueError, "dropout_p"),
        ({"softmax_scale": float("nan")}, ValueError, "softmax_scale"),
        ({"softmax_scale": "1"}, ValueError, "softmax_scale"),
        ({"softcap": -1.0}, ValueError, "softcap"),
        ({"softcap": float("inf")}, ValueError, "softcap"),
        ({"window_size": 3}, ValueError, "window_size"),
        ({"window_size": (1, 2, 3)}, ValueError, "window_size"),
        ({"window_size": (1.5, 2)}, ValueError, "window_size"),
        ({"alibi_slopes": torch.rand(3)}, ValueError, "alibi_slopes"),
        ({"alibi_slopes": torch.rand(3, 4)}, ValueError, "alibi_slopes"),
        ({"alibi_slopes": 0.5}, TypeError, "alibi_slopes"),
        ({"s_aux": torch.rand(2, 4)}, ValueError, "s_aux"),
    ],
)
def test_unfitting_arguments_are_refused(kernel: Any, changes: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        kernel.module.flash_attn_func(**operands(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dropout_p": 0.1}, "dropout"),
        (
            {"q": torch.randn(2, 5, 4, 264), "k": torch.randn(2, 7, 2, 264), "v": torch.randn(2, 7, 2, 264)},
            "head dimension",
        ),
        ({"alibi_slopes": torch.rand(4, requires_grad=True)}, "alibi_slopes"),
    ],
)
def test_unsupported_features_are_refused_and_never_ignored(kernel: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(kernel.module.UnsupportedFeatureError, match=message):
        kernel.module.flash_attn_func(**operands(**changes))


def test_an_input_with_a_gradient_is_accepted_where_none_is_recorded(kernel: Any) -> None:
    given = operands(q=torch.randn(2, 5, 4, 16, requires_grad=True))
    with torch.no_grad():
        out = kernel.call("flash_attn_func", given["q"], given["k"], given["v"])
    assert not out.requires_grad


@pytest.mark.parametrize(
    "arguments",
    [
        (torch.randn(2, 5, 4, 16), torch.randn(2, 7, 2, 16), torch.randn(2, 6, 2, 16)),
        (torch.randn(2, 5, 4, 16), torch.randn(2, 7, 3, 16), torch.randn(2, 7, 3, 16)),
        (torch.randn(2, 5, 4, 300), torch.randn(2, 7, 2, 300), torch.randn(2, 7, 2, 300)),
        (torch.randn(5, 4, 16), torch.randn(7, 2, 16), torch.randn(7, 2, 16)),
        (torch.randn(2, 5, 4, 16).long(), torch.randn(2, 7, 2, 16).long(), torch.randn(2, 7, 2, 16).long()),
    ],
    ids=["lengths", "heads", "head_dim", "dimensions", "type"],
)
def test_the_operator_itself_checks_what_would_crash_it(native: Any, arguments: tuple[torch.Tensor, ...]) -> None:
    with pytest.raises(RuntimeError, match="flash_attn"):
        native.ops.fwd(*arguments, None, None, 0.25, -1, -1, 0.0)


def test_the_signature_starts_as_flash_attention_2_does(kernel: Any) -> None:
    names = list(inspect.signature(kernel.module.flash_attn_func).parameters)
    assert names == [
        *("q", "k", "v", "dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes"),
        *("deterministic", "return_attn_probs", "s_aux"),
    ]


def test_a_window_wider_than_every_sequence_is_none(native: Any) -> None:
    widest = 2**63 - 1
    given = operands()
    unlimited = native.module.flash_attn_func(**given)
    for window in ((-1, widest), (widest, widest), (widest, -1)):
        assert torch.equal(native.module.flash_attn_func(**given, window_size=window), unlimited)
