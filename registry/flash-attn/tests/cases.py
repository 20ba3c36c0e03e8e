"""Problems that the tests share, each with what it is there for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from registry._harness import reference, tolerance


@dataclass(frozen=True)
class Case:
    """One problem; `options` go to the function and to the reference alike."""

    name: str
    batch: int
    q_len: int
    k_len: int
    q_heads: int
    k_heads: int
    head_dim: int
    options: dict[str, Any] = field(default_factory=dict)
    slopes: str = ""  # "", "head" or "batch"
    sinks: bool = False

    def tensors(self, dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)

        def draw(length: int, heads: int) -> torch.Tensor:
            return torch.randn(self.batch, length, heads, self.head_dim, generator=generator).to(dtype)

        return draw(self.q_len, self.q_heads), draw(self.k_len, self.k_heads), draw(self.k_len, self.k_heads)

    def arguments(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(1)
        arguments = dict(self.options)
        if self.slopes:
            shape = (self.q_heads,) if self.slopes == "head" else (self.batch, self.q_heads)
            arguments["alibi_slopes"] = torch.rand(shape, generator=generator) * 0.5
        if self.sinks:
            arguments["s_aux"] = torch.randn(self.q_heads, generator=generator)
        return arguments


def check_forward(kernel: Any, case: Case, dtype: torch.dtype, operands: Any = None) -> None:
    """Run the case and compare output and log-sum-exp with the float64 truth."""
    q, k, v = case.tensors(dtype) if operands is None else operands
    arguments = case.arguments()
    out, lse, probabilities = kernel.call("flash_attn_func", q, k, v, return_attn_probs=True, **arguments)
    assert probabilities is None
    assert out.dtype == dtype
    truth, truth_lse = reference.attention(q, k, v, **arguments)
    yardstick, _ = reference.attention(q, k, v, dtype=None, **arguments)
    tolerance.assert_close_to_truth(out, truth, yardstick)
    tolerance.assert_lse_close(lse, truth_lse, absolute=1e-5 if dtype == torch.float32 else 1e-4)


def sampled(problems: list[Any], half_every: int) -> list[Any]:
    """Pair problems with element types for a parametrisation: float32 and bfloat16 each, float16 with every n-th.

    The plain reference in float16 is what takes the time here: this CPU has no such arithmetic.
    """
    pairs = []
    for index, problem in enumerate(problems):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            if dtype != torch.float16 or index % half_every == 0:
                pairs.append(pytest.param(problem, dtype, id=f"{problem.name}-{str(dtype).removeprefix('torch.')}"))
    return pairs


PLAIN = Case("one_tile", 1, 12, 32, 1, 1, 64)

SMALL = [
    PLAIN,
    Case("odd_everything", 2, 37, 53, 3, 3, 40),
    Case("one_query", 1, 1, 67, 2, 1, 64),
    Case("one_key", 1, 5, 1, 2, 2, 16),
    Case("grouped_heads", 1, 33, 65, 6, 2, 32),
    Case("one_key_head", 2, 17, 33, 4, 1, 64),
    Case("causal_square", 1, 70, 70, 2, 2, 64, {"causal": True}),
    Case("causal_more_keys", 1, 35, 90, 2, 2, 32, {"causal": True}),
    Case("causal_more_queries_leaves_rows_empty", 1, 90, 35, 2, 1, 32, {"causal": True}),
    Case("window_both_sides", 1, 80, 80, 2, 2, 32, {"window_size": (7, 5)}),
    Case("window_left_with_causal", 1, 75, 75, 2, 1, 64, {"window_size": (16, 16), "causal": True}),
    Case("window_leaves_rows_empty", 1, 90, 40, 1, 1, 32, {"window_size": (3, 3)}),
    Case("window_zero_sees_only_the_diagonal", 1, 40, 40, 1, 1, 16, {"window_size": (0, 0)}),
    Case("window_right_only", 1, 40, 60, 1, 1, 16, {"window_size": (-1, 4)}),
    Case("softcap", 1, 40, 40, 2, 2, 64, {"softcap": 3.0, "softmax_scale": 0.7}),
    Case("softcap_causal", 1, 40, 70, 2, 1, 32, {"softcap": 50.0, "causal": True}),
    Case("alibi", 2, 40, 70, 2, 2, 32, {}, slopes="head"),
    Case("alibi_by_batch_causal", 2, 40, 70, 4, 2, 32, {"causal": True}, slopes="batch"),
    Case("alibi_softcap_window", 1, 40, 50, 2, 2, 32, {"softcap": 5.0, "window_size": (20, 3)}, slopes="head"),
    Case("sinks", 1, 40, 40, 4, 2, 32, {}, sinks=True),
    Case("sinks_causal_window", 1, 60, 40, 2, 2, 64, {"causal": True, "window_size": (9, 0)}, sinks=True),
    Case("scale_negative", 1, 20, 30, 1, 1, 32, {"softmax_scale": -0.3}),
    Case("scale_zero_averages", 1, 20, 30, 1, 1, 32, {"softmax_scale": 0.0}),
    Case("scale_large_makes_it_a_lookup", 1, 20, 30, 1, 1, 32, {"softmax_scale": 8.0}),
    Case("head_dim_8", 1, 20, 30, 1, 1, 8),
    Case("head_dim_odd", 1, 20, 30, 1, 1, 33),
    Case("head_dim_256", 1, 20, 40, 1, 1, 256, {"causal": True}),
]

# Problems that only the native build computes in a reasonable time.
LARGE = [
    Case("several_blocks", 1, 300, 700, 2, 2, 64),
    Case("several_blocks_causal_grouped", 2, 515, 515, 4, 2, 128, {"causal": True}),
    Case("window_across_blocks", 1, 900, 900, 2, 1, 80, {"window_size": (300, 0), "causal": True}),
    Case("window_far_from_the_start", 1, 3, 3000, 2, 2, 64, {"window_size": (100, 100)}),
    Case("one_query_many_keys", 2, 1, 5000, 8, 2, 128),
    Case("many_queries_few_keys", 1, 2000, 17, 2, 2, 64),
    Case("head_dim_256_blocks", 1, 130, 600, 2, 1, 256, {"causal": True}),
    Case("alibi_softcap_sinks", 1, 270, 530, 4, 2, 96, {"softcap": 20.0, "causal": True}, slopes="head", sinks=True),
    Case("many_heads", 3, 20, 280, 48, 6, 64, {"causal": True}),
]
