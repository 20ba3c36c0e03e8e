"""Problems over pages, their float64 truth, and a sample of all options in which every pair of values occurs."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import torch

from registry._harness import reference, tolerance


@dataclass(frozen=True)
class Problem:
    """Sequences of `q_lens` queries over `k_lens` keys, each in its own pages; `options` go to kernel and reference alike."""

    name: str
    q_lens: tuple[int, ...]
    k_lens: tuple[int, ...]
    page_size: int = 16
    heads: tuple[int, int] = (4, 2)
    head_dim: int = 64
    layout: str = "NHD"
    options: dict[str, Any] = field(default_factory=dict)
    slopes: str = ""  # "", "head" or "sequence"
    sinks: bool = False
    num_splits: int = 0

    def biases(self) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(6)
        biases = {}
        if self.slopes:
            shape = (self.heads[0],) if self.slopes == "head" else (len(self.q_lens), self.heads[0])
            biases["alibi_slopes"] = torch.rand(shape, generator=generator) * 0.4
        if self.sinks:
            biases["s_aux"] = torch.randn(self.heads[0], generator=generator)
        return biases


@dataclass(frozen=True)
class Drawn:
    """The tensors of a problem: queries one after the other, keys and values of each sequence, and the pages of both."""

    q: torch.Tensor
    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_table: torch.Tensor


def draw(problem: Problem, dtype: torch.dtype) -> Drawn:
    """Scatter each sequence over pages in random order. What no sequence uses is NaN, as are table entries out of range."""
    generator = torch.Generator().manual_seed(5)
    q_heads, k_heads = problem.heads

    def normal(length: int, heads: int) -> torch.Tensor:
        return torch.randn(length, heads, problem.head_dim, generator=generator).to(dtype)

    q = normal(sum(problem.q_lens), q_heads)
    keys, values = ([normal(length, k_heads) for length in problem.k_lens] for _ in "kv")
    counts = [-(-length // problem.page_size) for length in problem.k_lens]
    order = torch.randperm(sum(counts) + 3, generator=generator).tolist()
    shape = (len(order), problem.page_size, k_heads, problem.head_dim)
    caches = [torch.full(shape, float("nan"), dtype=dtype) for _ in "kv"]
    # Entries that belong to no key are never looked at.
    table = torch.full((len(counts), max(counts, default=0) + 1), -(10**6), dtype=torch.int32)
    for sequence, count in enumerate(counts):
        pages = [order.pop() for _ in range(count)]
        table[sequence, :count] = torch.tensor(pages, dtype=torch.int32)
        for cache, rows in zip(caches, (keys[sequence], values[sequence])):
            for index, page in enumerate(pages):
                part = rows[index * problem.page_size : (index + 1) * problem.page_size]
                cache[page, : len(part)] = part
    if problem.layout == "HND":
        caches = [cache.transpose(1, 2).contiguous() for cache in caches]
    return Drawn(q, keys, values, *caches, table)


def offsets(lens: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([0, *lens]).cumsum(0).to(torch.int32)


def arguments(problem: Problem) -> dict[str, Any]:
    """Return the keyword arguments of paged_attention."""
    given = {"kv_layout": problem.layout, "num_splits": problem.num_splits, **problem.options, **problem.biases()}
    if any(length != 1 for length in problem.q_lens):
        given |= {"cu_seqlens_q": offsets(problem.q_lens), "max_seqlen_q": max(problem.q_lens)}
    return given


def truth_of(problem: Problem, drawn: Drawn, dtype: torch.dtype | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output (rows, heads, head_dim) and log-sum-exp (rows, heads), sequence by sequence."""
    outs, lses = [], []
    for i, q in enumerate(drawn.q.split(list(problem.q_lens))):
        options = {"causal": True, **problem.options, **problem.biases()}
        if problem.slopes == "sequence":
            options["alibi_slopes"] = options["alibi_slopes"][i]
        out, lse = reference.attention(q[None], drawn.keys[i][None], drawn.values[i][None], dtype=dtype, **options)
        outs.append(out[0])
        lses.append(lse[0].t())
    return torch.cat(outs), torch.cat(lses)


def check(problem: Problem, drawn: Drawn, out: torch.Tensor, lse: torch.Tensor) -> None:
    """Compare with float64; the yardstick is the same done plainly in the operands' precision."""
    truth, truth_lse = truth_of(problem, drawn, torch.float64)
    yardstick, _ = truth_of(problem, drawn, None)
    assert out.dtype == drawn.q.dtype
    tolerance.assert_close_to_truth(out, truth, yardstick)
    tolerance.assert_lse_close(lse, truth_lse, absolute=1e-5 if drawn.q.dtype == torch.float32 else 1e-4)


AXES: dict[str, list[Any]] = {
    "lens": [
        ((1, 1, 1), (70, 1, 33)),
        ((1, 1), (0, 17)),
        ((5, 1, 12), (40, 9, 12)),
        ((20, 3), (7, 65)),
        ((0, 4, 0), (5, 30, 0)),
    ],
    "page_size": [1, 7, 16, 64],
    "heads": [(2, 2), (4, 2), (8, 1), (6, 2)],
    "head_dim": [16, 40, 64, 128],
    "layout": ["NHD", "HND"],
    "causal": [True, False],
    "window": [(-1, -1), (9, 0), (6, 4)],
    "softcap": [0.0, 5.0],
    "slopes": ["", "head", "sequence"],
    "sinks": [False, True],
    "num_splits": [0, 3],
    "dtype": [torch.float32, torch.bfloat16, torch.float16],
}


def pairwise(axes: dict[str, list[Any]], seed: int) -> list[dict[str, Any]]:
    """Return combinations in which every two values of two axes occur together, chosen greedily."""
    names = list(axes)
    wanted = {
        ((a, i), (b, j))
        for a, b in itertools.combinations(names, 2)
        for i in range(len(axes[a]))
        for j in range(len(axes[b]))
    }
    chosen, shuffle = [], random.Random(seed)
    while wanted:
        best: tuple[set[Any], dict[str, int]] = (set(), {})
        for _ in range(30):
            candidate = {name: shuffle.randrange(len(axes[name])) for name in names}
            covered = wanted & {((a, candidate[a]), (b, candidate[b])) for a, b in itertools.combinations(names, 2)}
            if len(covered) > len(best[0]):
                best = covered, candidate
        if best[1]:
            wanted -= best[0]
            chosen.append({name: axes[name][index] for name, index in best[1].items()})
    return chosen


def sampled(seed: int = 0) -> list[tuple[Problem, torch.dtype]]:
    """Return the pairwise sample as problems."""
    problems = []
    for number, values in enumerate(pairwise(AXES, seed)):
        q_lens, k_lens = values["lens"]
        options = {"causal": values["causal"], "window_size": values["window"], "softcap": values["softcap"]}
        problem = Problem(
            f"pair{number}",
            q_lens,
            k_lens,
            values["page_size"],
            values["heads"],
            values["head_dim"],
            values["layout"],
            options,
            values["slopes"],
            values["sinks"],
            values["num_splits"],
        )
        problems.append((problem, values["dtype"]))
    return problems


SAMPLE = sampled()
