"""Sequences of different lengths, one after the other or in pages, against the dense reference sequence by sequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from registry._harness import reference, tolerance

from . import cases


@dataclass(frozen=True)
class Batch:
    """Lengths of the sequences and the options of the call."""

    name: str
    q_lens: tuple[int, ...]
    k_lens: tuple[int, ...]
    heads: tuple[int, int] = (4, 2)
    head_dim: int = 32
    options: dict[str, Any] = field(default_factory=dict)
    slopes: str = ""
    sinks: bool = False

    def draw(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(5)
        shapes = [
            (sum(self.q_lens), self.heads[0]),
            (sum(self.k_lens), self.heads[1]),
            (sum(self.k_lens), self.heads[1]),
        ]
        return tuple(torch.randn(*shape, self.head_dim, generator=generator).to(dtype) for shape in shapes)

    def arguments(self) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(6)
        arguments = dict(self.options)
        if self.slopes:
            shape = (self.heads[0],) if self.slopes == "head" else (len(self.q_lens), self.heads[0])
            arguments["alibi_slopes"] = torch.rand(shape, generator=generator) * 0.4
        if self.sinks:
            arguments["s_aux"] = torch.randn(self.heads[0], generator=generator)
        return arguments


def offsets(lens: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([0, *lens]).cumsum(0).to(torch.int32)


def check(
    batch: Batch, out: torch.Tensor, lse: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> None:
    """Compare each sequence with the reference; k and v lie one after the other."""
    q_at, k_at = offsets(batch.q_lens).tolist(), offsets(batch.k_lens).tolist()
    truths, yardsticks, truth_lses = [], [], []
    for i in range(len(batch.q_lens)):
        arguments = batch.arguments()
        if batch.slopes == "batch":
            arguments["alibi_slopes"] = arguments["alibi_slopes"][i]
        part = (q[None, q_at[i] : q_at[i + 1]], k[None, k_at[i] : k_at[i + 1]], v[None, k_at[i] : k_at[i + 1]])
        truth, truth_lse = reference.attention(*part, **arguments)
        truths.append(truth[0])
        truth_lses.append(truth_lse[0])
        yardsticks.append(reference.attention(*part, dtype=None, **arguments)[0][0])
    tolerance.assert_close_to_truth(out, torch.cat(truths), torch.cat(yardsticks))
    tolerance.assert_lse_close(lse, torch.cat(truth_lses, -1), absolute=1e-5 if q.dtype == torch.float32 else 1e-4)


BATCHES = [
    Batch("plain", (5, 33, 1), (7, 40, 65)),
    Batch("causal", (20, 1, 37), (20, 50, 37), options={"causal": True}),
    Batch("empty_sequences", (0, 9, 0, 4), (5, 0, 0, 12)),
    Batch("window_softcap", (30, 41), (44, 30), options={"window_size": (9, 4), "softcap": 6.0}),
    Batch("alibi_by_sequence", (12, 30), (30, 44), options={"causal": True}, slopes="batch"),
    Batch("sinks", (12, 30), (30, 44), options={"causal": True}, sinks=True),
    Batch("decoding", (1, 1, 2, 1), (70, 1, 33, 129), heads=(8, 2), head_dim=64, options={"causal": True}),
]

LONG = [
    Batch("several_blocks", (37, 515, 130), (600, 515, 900), heads=(4, 1), head_dim=64, options={"causal": True}),
    Batch(
        "decoding_long", (1, 3, 1), (1000, 3000, 17), heads=(4, 2), head_dim=128, options={"causal": True}, sinks=True
    ),
]


def paged(
    lens: tuple[int, ...], k: torch.Tensor, v: torch.Tensor, page_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (k_cache, v_cache, block_table): the rows of k and v scattered over pages in random order."""
    counts = [-(-length // page_size) for length in lens]
    order = torch.randperm(sum(counts) + 3, generator=torch.Generator().manual_seed(7))
    k_cache, v_cache = (torch.full((len(order), page_size, *k.shape[1:]), float("nan"), dtype=k.dtype) for _ in "kv")
    table = torch.zeros(len(lens), max(1, *counts), dtype=torch.int32)
    start = taken = 0
    for sequence, (length, count) in enumerate(zip(lens, counts)):
        pages = order[taken : taken + count]
        table[sequence, :count] = pages.to(torch.int32)
        for row in range(length):
            k_cache[pages[row // page_size], row % page_size] = k[start + row]
            v_cache[pages[row // page_size], row % page_size] = v[start + row]
        start, taken = start + length, taken + count
    return k_cache, v_cache, table


def run(kernel: Any, batch: Batch, dtype: torch.dtype, page_size: int | None) -> None:
    q, k, v = batch.draw(dtype)
    keys, values, table = (k, v, None) if page_size is None else paged(batch.k_lens, k, v, page_size)
    out, lse, _ = kernel.call(
        "flash_attn_varlen_func",
        q,
        keys,
        values,
        offsets(batch.q_lens),
        offsets(batch.k_lens),
        max(batch.q_lens),
        max(batch.k_lens),
        return_attn_probs=True,
        block_table=table,
        **batch.arguments(),
    )
    check(batch, out, lse, q, k, v)


@pytest.mark.parametrize(("batch", "dtype"), cases.sampled(BATCHES, 1) + cases.sampled(LONG, 9))
def test_native_sequences_match_float64(native: Any, batch: Batch, dtype: torch.dtype) -> None:
    run(native, batch, dtype, None)


@pytest.mark.parametrize(("batch", "dtype"), cases.sampled(BATCHES, 4))
def test_triton_sequences_match_float64(triton: Any, batch: Batch, dtype: torch.dtype) -> None:
    run(triton, batch, dtype, None)


@pytest.mark.parametrize("page_size", [1, 48, 256])
@pytest.mark.parametrize("batch", [BATCHES[1], BATCHES[6]], ids=lambda batch: batch.name)
def test_pages_of_any_size_in_any_order_give_the_same(kernel: Any, batch: Batch, page_size: int) -> None:
    run(kernel, batch, torch.float32, page_size)
    run(kernel, batch, torch.bfloat16, page_size)


def test_rows_after_the_last_sequence_are_zero(kernel: Any) -> None:
    q, k, v = Batch("", (9,), (9,)).draw(torch.float32)
    out, lse, _ = kernel.call(
        "flash_attn_varlen_func", q, k, v, offsets((6,)), offsets((9,)), 6, 9, return_attn_probs=True
    )
    assert bool((out[6:] == 0).all()) and bool(torch.isneginf(lse[:, 6:]).all())
    assert bool((out[:6] != 0).any())


def test_maximum_lengths_may_be_tensors_and_offsets_64_bit(kernel: Any) -> None:
    batch = BATCHES[0]
    q, k, v = batch.draw(torch.float32)
    lens = (offsets(batch.q_lens).long(), offsets(batch.k_lens).long(), torch.tensor(33), torch.tensor(65))
    out, lse, _ = kernel.call("flash_attn_varlen_func", q, k, v, *lens, return_attn_probs=True)
    check(batch, out, lse, q, k, v)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"cu_seqlens_q": torch.tensor([0, 5, 3, 9], dtype=torch.int32)}, ValueError, "must not decrease"),
        ({"cu_seqlens_q": torch.tensor([1, 5, 9], dtype=torch.int32)}, ValueError, "start at 0"),
        ({"cu_seqlens_q": torch.tensor([0, 5, 10], dtype=torch.int32)}, ValueError, "beyond"),
        ({"cu_seqlens_q": torch.tensor([0.0, 5.0, 9.0])}, TypeError, "int32"),
        ({"cu_seqlens_q": torch.zeros(2, 2, dtype=torch.int32)}, ValueError, "1 dimensions"),
        ({"cu_seqlens_q": torch.zeros(0, dtype=torch.int32)}, ValueError, "shape"),
        ({"cu_seqlens_k": torch.tensor([0, 9], dtype=torch.int32)}, ValueError, "shape"),
        ({"cu_seqlens_k": torch.tensor([0, -3, 9], dtype=torch.int32)}, ValueError, "must not decrease"),
        ({"max_seqlen_q": 2}, ValueError, "max_seqlen_q"),
        ({"dropout_p": 0.5}, NotImplementedError, "dropout"),
        ({"q": torch.randn(1, 9, 4, 32)}, ValueError, "3 dimensions"),
    ],
)
def test_unfitting_sequences_are_refused(kernel: Any, changes: dict[str, Any], error: type, message: str) -> None:
    q, k, v = Batch("", (9,), (9,)).draw(torch.float32)
    cu = torch.tensor([0, 5, 9], dtype=torch.int32)
    given = {"q": q, "k": k, "v": v, "cu_seqlens_q": cu, "cu_seqlens_k": cu, "max_seqlen_q": 5, "max_seqlen_k": 5}
    with pytest.raises(error, match=message):
        kernel.module.flash_attn_varlen_func(**{**given, **changes})


@pytest.mark.parametrize(
    ("table", "message"),
    [([[0, 1], [2, 9]], "names page 9"), ([[0, -1], [2, 3]], "names page -1"), ([[0], [1]], "more than its 1 pages")],
)
def test_a_block_table_out_of_range_is_refused(kernel: Any, table: list[list[int]], message: str) -> None:
    cache = torch.randn(4, 4, 2, 32)
    cu = torch.tensor([0, 5, 12], dtype=torch.int32)
    arguments = (torch.randn(12, 4, 32), cache, cache, cu, cu, 7, 7)
    with pytest.raises(ValueError, match=message):
        kernel.module.flash_attn_varlen_func(*arguments, block_table=torch.tensor(table, dtype=torch.int32))


def test_the_operator_itself_checks_lengths_and_pages(native: Any) -> None:
    q, cache = torch.randn(4, 2, 16), torch.randn(3, 4, 2, 16)
    cu, zero = torch.tensor([0, 4], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)

    def call(starts: Any, begins: Any, lens: Any, table: Any) -> None:
        native.ops.varlen_fwd(q, cache, cache, starts, begins, lens, table, None, None, 4, 8, 0.25, -1, -1, 0.0)

    table = torch.tensor([[0, 2]], dtype=torch.int32)
    call(cu, zero, zero + 8, table)
    for wrong in (
        (cu + 1, zero, zero + 8, table),
        (cu * 2, zero, zero + 8, table),
        (cu, zero - 1, zero + 8, table),
        (cu, zero, zero + 9, table),
        (cu, zero, zero + 8, table + 1),
        (cu, zero, zero + 8, table - 1),
        (cu.long(), zero, zero + 8, table),
    ):
        with pytest.raises(RuntimeError, match="flash_attn"):
            call(*wrong)


def test_opcheck_passes_for_sequences(native: Any) -> None:
    torch.use_deterministic_algorithms(False)
    q, k, v = BATCHES[0].draw(torch.float32)
    lens = offsets(BATCHES[0].k_lens)
    arguments = (q, k, v, offsets(BATCHES[0].q_lens), lens[:-1].contiguous(), lens.diff(), None, None, None)
    torch.library.opcheck(native.ops.varlen_fwd.default, (*arguments, 33, 65, 0.25, -1, 0, 0.0))
