"""Arguments that do not fit are refused in Python, with a type that says what kind of mistake it is."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

INT = torch.int32


def given(**changes: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "q": torch.randn(2, 4, 16),
        "k_cache": torch.randn(5, 8, 2, 16),
        "v_cache": torch.randn(5, 8, 2, 16),
        "block_table": torch.tensor([[0, 1], [4, -9]], dtype=INT),
        "seq_lens": torch.tensor([16, 3], dtype=INT),
    }
    return {**arguments, **changes}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"q": [1.0]}, TypeError, "q must be a torch.Tensor"),
        ({"q": torch.randn(2, 1, 4, 16)}, ValueError, "3 dimensions"),
        ({"q": torch.randn(3, 4, 16)}, ValueError, "one row per sequence"),
        ({"q": torch.randn(2, 3, 16)}, ValueError, "multiple"),
        ({"q": torch.randn(2, 4, 8)}, ValueError, "head dimension"),
        ({"q": torch.randn(2, 4, 16).double()}, TypeError, "float32, bfloat16 or float16"),
        ({"q": torch.randn(2, 4, 16).bfloat16()}, TypeError, "element type"),
        ({"k_cache": torch.randn(5, 8, 1, 16)}, ValueError, "one shape"),
        ({"k_cache": torch.randn(5, 8, 32)}, ValueError, "4 dimensions"),
        ({"k_cache": torch.randn(5, 8, 16, 2).transpose(2, 3)}, ValueError, "contiguous along the head dimension"),
        ({"v_cache": torch.empty(5, 8, 2, 16, device="meta")}, ValueError, "one device"),
        ({"kv_layout": "NDH"}, ValueError, "kv_layout"),
        ({"kv_layout": "HND"}, ValueError, "multiple"),
        ({"block_table": torch.tensor([[0, 5], [4, 0]], dtype=INT)}, ValueError, "names page 5"),
        ({"block_table": torch.tensor([[0, 1], [-1, 0]], dtype=INT)}, ValueError, "names page -1"),
        ({"block_table": torch.tensor([[0.0, 1.0], [4.0, 0.0]])}, TypeError, "int32"),
        ({"block_table": torch.tensor([[0, 1]], dtype=INT)}, ValueError, "shape"),
        ({"block_table": torch.tensor([0, 1], dtype=INT)}, ValueError, "2 dimensions"),
        ({"seq_lens": torch.tensor([17, 3], dtype=INT)}, ValueError, "more than its 2 pages"),
        ({"seq_lens": torch.tensor([-1, 3], dtype=INT)}, ValueError, "negative"),
        ({"seq_lens": torch.tensor([16.0, 3.0])}, TypeError, "int32"),
        ({"seq_lens": torch.tensor([[16, 3]], dtype=INT)}, ValueError, "1 dimensions"),
        ({"cu_seqlens_q": torch.tensor([0, 2, 1], dtype=INT)}, ValueError, "must not decrease"),
        ({"cu_seqlens_q": torch.tensor([1, 1, 2], dtype=INT)}, ValueError, "start at 0"),
        ({"cu_seqlens_q": torch.tensor([0, 1, 3], dtype=INT)}, ValueError, "beyond"),
        ({"cu_seqlens_q": torch.tensor([0, 2], dtype=INT)}, ValueError, "shape"),
        ({"cu_seqlens_q": torch.tensor([0, 2, 2], dtype=INT), "max_seqlen_q": 1}, ValueError, "max_seqlen_q"),
        ({"softmax_scale": float("nan")}, ValueError, "softmax_scale"),
        ({"softcap": -1.0}, ValueError, "softcap"),
        ({"window_size": 3}, ValueError, "window_size"),
        ({"alibi_slopes": torch.rand(3)}, ValueError, "alibi_slopes"),
        ({"s_aux": torch.rand(2, 4)}, ValueError, "s_aux"),
        ({"num_splits": -1}, ValueError, "num_splits"),
        ({"num_splits": 1.5}, ValueError, "num_splits"),
        ({"out": torch.empty(2, 4, 8)}, ValueError, "out must be like q"),
        ({"out": torch.empty(2, 4, 16).bfloat16()}, ValueError, "out must be like q"),
        ({"out": torch.empty(2, 16, 4).transpose(1, 2)}, ValueError, "out must be contiguous"),
    ],
)
def test_unfitting_arguments_are_refused(kernel: Any, changes: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        kernel.module.paged_attention(**given(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": torch.randn(2, 4, 264), "k_cache": torch.randn(5, 8, 2, 264), "v_cache": torch.randn(5, 8, 2, 264)}, "head"),
        ({"q": torch.randn(2, 4, 16, requires_grad=True)}, "gradient"),
    ],
    ids=["head_dim", "gradient"],
)  # fmt: skip
def test_unsupported_features_are_refused_and_never_ignored(kernel: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(kernel.module.UnsupportedFeatureError, match=message):
        kernel.module.paged_attention(**given(**changes))


@pytest.mark.parametrize("changes", [{"q": torch.randn(0, 4, 16), "rows": 0}, {"q": torch.randn(2, 0, 16)}])
def test_nothing_to_compute_gives_an_empty_result(kernel: Any, changes: dict[str, Any]) -> None:
    arguments = given(q=changes["q"])
    if "rows" in changes:
        arguments |= {"block_table": torch.zeros(0, 2, dtype=INT), "seq_lens": torch.zeros(0, dtype=INT)}
    out, lse = kernel.call("paged_attention", *arguments.values(), return_lse=True)
    assert out.shape == changes["q"].shape and lse.shape == out.shape[:2]


def slots(**changes: Any) -> dict[str, Any]:
    cache = torch.randn(5, 8, 2, 16)
    return {
        "key": torch.randn(3, 2, 16),
        "value": torch.randn(3, 2, 16),
        "k_cache": cache,
        "v_cache": cache.clone(),
        "slot_mapping": torch.tensor([0, 9, -1]),
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"slot_mapping": torch.tensor([0, 40, 1])}, ValueError, "slot 40"),
        ({"slot_mapping": torch.tensor([0, 1])}, ValueError, "shape"),
        ({"slot_mapping": torch.tensor([0.0, 1.0, 2.0])}, TypeError, "int32"),
        ({"key": torch.randn(3, 1, 16)}, ValueError, "key must have shape|multiple"),
        ({"value": torch.randn(2, 2, 16)}, ValueError, "value must have shape"),
        ({"value": torch.randn(3, 2, 16).half()}, ValueError, "value is"),
        ({"key": torch.randn(3, 2, 16).half()}, TypeError, "element type"),
        ({"key": torch.randn(3, 2, 16, requires_grad=True)}, NotImplementedError, "gradient"),
        ({"kv_layout": "nhd"}, ValueError, "kv_layout"),
    ],
)
def test_unfitting_tokens_are_not_written(kernel: Any, changes: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        kernel.module.reshape_and_cache(**slots(**changes))


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([[0, 5]], ValueError, "names page 5"),
        ([[-1, 2]], ValueError, "names page -1"),
        ([[0, 1], [2, 1]], ValueError, "another pair"),
        ([[0, 1], [1, 2]], ValueError, "another pair"),
        ([[0, 1, 2]], ValueError, "shape"),
        ([[0.0, 1.0]], TypeError, "int32"),
    ],
)
def test_unfitting_pages_are_not_copied(kernel: Any, pairs: list[Any], error: type, message: str) -> None:
    cache = torch.randn(5, 8, 2, 16)
    before = cache.clone()
    with pytest.raises(error, match=message):
        kernel.module.copy_blocks(cache, cache.clone(), torch.tensor(pairs))
    assert torch.equal(cache, before)


def test_pages_with_holes_are_not_copied(kernel: Any) -> None:
    cache = torch.randn(5, 8, 2, 20)[..., :16]
    with pytest.raises(ValueError, match="one run of memory"):
        kernel.module.copy_blocks(cache, [], torch.tensor([[0, 1]]))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"o2": torch.randn(3, 2, 9)}, ValueError),
        ({"o2": torch.randn(3, 2, 8).half()}, ValueError),
        ({"lse1": torch.randn(3, 3)}, ValueError),
        ({"lse2": torch.randn(3, 2).double()}, ValueError),
        ({"o1": torch.randn(8), "o2": torch.randn(8)}, ValueError),
        ({"o1": torch.randn(3, 2, 8).double()}, TypeError),
        ({"lse1": 3.0}, TypeError),
        ({"o1": torch.randn(3, 2, 8, requires_grad=True)}, NotImplementedError),
    ],
)
def test_unfitting_states_are_not_merged(kernel: Any, changes: dict[str, Any], error: type) -> None:
    state = {
        "o1": torch.randn(3, 2, 8),
        "lse1": torch.randn(3, 2),
        "o2": torch.randn(3, 2, 8),
        "lse2": torch.randn(3, 2),
    }
    with pytest.raises(error):
        kernel.module.merge_state(**{**state, **changes})


def test_the_operator_itself_checks_what_would_crash_it(native: Any) -> None:
    q, cache = torch.randn(4, 2, 16), torch.randn(3, 4, 2, 16)
    cu, zero, lens = (torch.tensor(values, dtype=INT) for values in ([0, 4], [0], [8]))
    table = torch.tensor([[0, 2]], dtype=INT)

    def call(starts: Any, begins: Any, count: Any, pages: Any, out: Any = None) -> None:
        out = torch.empty_like(q) if out is None else out
        native.ops.paged_fwd(
            q, cache, cache, pages, starts, begins, count, None, None, 4, 0.25, -1, -1, 0.0, 0, out, torch.empty(4, 2)
        )

    call(cu, zero, lens, table)
    for wrong in (
        (cu + 1, zero, lens, table),
        (cu * 2, zero, lens, table),
        (cu, zero - 1, lens, table),
        (cu, zero, lens + 1, table),
        (cu, zero, lens - 9, table),
        (cu, zero, lens, table + 1),
        (cu, zero, lens, table - 1),
        (cu.long(), zero, lens, table),
        (cu, zero, lens, table, torch.empty(4, 2, 8)),
        (cu, zero, lens, table, torch.empty(4, 16, 2).transpose(1, 2)),
    ):
        with pytest.raises(RuntimeError, match="paged_attention"):
            call(*wrong)
    with pytest.raises(RuntimeError, match="slot 12"):
        native.ops.reshape_and_cache(q, q, cache, cache, torch.tensor([0, 1, 12, 2]))
    with pytest.raises(RuntimeError, match="names page 3"):
        native.ops.copy_blocks(cache, torch.tensor([[0, 3]]))


def test_the_signatures_are_those_that_callers_look_for(kernel: Any) -> None:
    names = list(inspect.signature(kernel.module.flash_attn_with_kvcache).parameters)
    assert names == [
        *("q", "k_cache", "v_cache", "k", "v", "rotary_cos", "rotary_sin", "cache_seqlens", "cache_batch_idx"),
        *("cache_leftpad", "block_table", "softmax_scale", "causal", "window_size", "softcap", "rotary_interleaved"),
        *("alibi_slopes", "num_splits", "return_softmax_lse", "s_aux"),
    ]
