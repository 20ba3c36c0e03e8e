"""Attention over pages in Triton (online softmax; arXiv 2307.08691, split over keys as in Flash-Decoding).

A program computes rows of one key head: row r is query r // group of its sequence, head r % group of the group, so that
decoding reads every key once for all heads that share it. With splits each program sees a part of the keys and leaves
float32 results, which join_kernel puts together in a fixed order. Configurations come from tables, not from an autotuner.
"""

from typing import Dict, NamedTuple, Optional

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634

# A split of fewer keys than this costs more in joining than it gains.
SPLIT_KEYS = 256
MAX_SPLITS = 128


@triton.jit
def tanh(x):
    # Near zero the quotient would lose its relative accuracy, where four terms of the series are exact enough.
    square = x * x
    series = x * (1.0 + square * (-1.0 / 3 + square * (2.0 / 15 + square * (-17.0 / 315))))
    quotient = 1.0 - 2.0 / (tl.exp2(tl.abs(x) * 2.8853900817779268) + 1.0)
    return tl.where(tl.abs(x) < 0.2, series, tl.where(x < 0, -quotient, quotient))


@triton.jit
def attend_kernel(
    q_pointer,
    k_pointer,
    v_pointer,
    slopes_pointer,
    sinks_pointer,
    out_pointer,
    lse_pointer,
    q_starts_pointer,
    k_begins_pointer,
    k_lens_pointer,
    pages_pointer,
    pages_stride,
    page_size,
    q_row_stride,
    q_head_stride,
    k_page_stride,
    k_row_stride,
    k_head_stride,
    v_page_stride,
    v_row_stride,
    v_head_stride,
    out_split_stride,
    out_row_stride,
    out_head_stride,
    lse_split_stride,
    lse_row_stride,
    lse_head_stride,
    slopes_batch_stride,
    blocks,
    k_heads,
    group,
    splits,
    head_dim,
    scale_log2,
    softcap_log2,
    window_left,
    window_right,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    HAS_LEFT: tl.constexpr,
    HAS_RIGHT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WHOLE_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    # One grid axis, because the others end at 65535 on NVIDIA.
    program = tl.program_id(0)
    split = program % splits
    block = program // splits % blocks
    k_head = (program // splits // blocks % k_heads).to(tl.int64)
    sequence = (program // splits // blocks // k_heads).to(tl.int64)
    q_start = tl.load(q_starts_pointer + sequence).to(tl.int64)
    q_len = (tl.load(q_starts_pointer + sequence + 1) - q_start).to(tl.int32)
    k_begin = tl.load(k_begins_pointer + sequence)
    k_len = tl.load(k_lens_pointer + sequence)
    first_row = block * BLOCK_M
    if first_row >= q_len * group:
        return
    pages_pointer += sequence * pages_stride
    rows = first_row + tl.arange(0, BLOCK_M)
    inside = rows < q_len * group
    position = rows // group
    head = k_head * group + rows % group
    columns = tl.arange(0, BLOCK_D)
    diagonals = position + k_len - q_len

    q_pointers = q_pointer + ((q_start + position) * q_row_stride + head * q_head_stride)[:, None] + columns[None, :]
    if WHOLE_D:
        q = tl.load(q_pointers, mask=inside[:, None], other=0.0)
    else:
        q = tl.load(q_pointers, mask=inside[:, None] & (columns[None, :] < head_dim), other=0.0)

    # The keys that any row of this block sees, and of those the part of this split, in whole blocks.
    begin = 0
    end = k_len
    last_position = tl.minimum((first_row + BLOCK_M - 1) // group, q_len - 1)
    if HAS_LEFT:
        begin = tl.minimum(tl.maximum(first_row // group + k_len - q_len - window_left, 0), k_len)
        begin = begin // BLOCK_N * BLOCK_N
    if HAS_RIGHT:
        end = tl.minimum(tl.maximum(last_position + k_len - q_len + window_right + 1, 0), k_len)
    part = tl.cdiv(tl.cdiv(tl.maximum(end - begin, 0), splits), BLOCK_N) * BLOCK_N
    begin += split * part
    end = tl.minimum(begin + part, end)

    slope_log2 = tl.zeros([BLOCK_M], tl.float32)
    if HAS_SLOPES:
        slopes = tl.load(slopes_pointer + sequence * slopes_batch_stride + head, mask=inside, other=0.0)
        slope_log2 = slopes * 1.4426950408889634
    maximum = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    if HAS_SINKS:
        maximum = tl.load(sinks_pointer + head, mask=inside, other=0.0) * 1.4426950408889634
        total = tl.where(maximum == float("-inf"), 0.0, 1.0)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    k_base = k_pointer + k_head * k_head_stride
    v_base = v_pointer + k_head * v_head_stride

    for start in tl.range(begin, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        at = k_begin + keys
        page = tl.load(pages_pointer + at // page_size, mask=keys < k_len, other=0).to(tl.int64)
        row = (at % page_size).to(tl.int64)
        k_pointers = k_base + (page * k_page_stride + row * k_row_stride)[None, :] + columns[:, None]
        v_pointers = v_base + (page * v_page_stride + row * v_row_stride)[:, None] + columns[None, :]
        if WHOLE_D:
            k = tl.load(k_pointers, mask=keys[None, :] < k_len, other=0.0)
            v = tl.load(v_pointers, mask=keys[:, None] < k_len, other=0.0)
        else:
            k = tl.load(k_pointers, mask=(keys[None, :] < k_len) & (columns[:, None] < head_dim), other=0.0)
            v = tl.load(v_pointers, mask=(keys[:, None] < k_len) & (columns[None, :] < head_dim), other=0.0)
        logits = tl.dot(q, k, input_precision=PRECISION)
        if HAS_SOFTCAP:
            logits = tanh(logits * scale_log2) * softcap_log2
        else:
            logits = logits * scale_log2
        if HAS_SLOPES:
            logits -= slope_log2[:, None] * tl.abs(diagonals[:, None] - keys[None, :]).to(tl.float32)
        visible = keys[None, :] < end
        if HAS_LEFT:
            visible = visible & (keys[None, :] >= diagonals[:, None] - window_left)
        if HAS_RIGHT:
            visible = visible & (keys[None, :] <= diagonals[:, None] + window_right)
        logits = tl.where(visible, logits, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(logits, 1))
        # Rows that have seen nothing yet subtract 0 and not -inf from -inf.
        offset = tl.where(new_maximum == float("-inf"), 0.0, new_maximum)
        probabilities = tl.exp2(logits - offset[:, None])
        shrink = tl.exp2(maximum - offset)
        total = total * shrink + tl.sum(probabilities, 1)
        acc = acc * shrink[:, None]
        acc = tl.dot(probabilities.to(v.dtype), v, acc, input_precision=PRECISION)
        maximum = new_maximum

    # A row without keys is 0 by definition; one whose logits are all -inf is 0/0, as in a plain softmax.
    row_begin = tl.zeros([BLOCK_M], tl.int32) + begin
    row_end = tl.zeros([BLOCK_M], tl.int32) + end
    if HAS_LEFT:
        row_begin = tl.maximum(row_begin, diagonals - window_left)
    if HAS_RIGHT:
        row_end = tl.minimum(row_end, diagonals + window_right + 1)
    empty = row_begin >= row_end
    lse = tl.where(total == 0.0, float("-inf"), (maximum + tl.log2(total)) * 0.6931471805599453)
    out = tl.where(empty[:, None], 0.0, acc / tl.where(empty, 1.0, total)[:, None])
    row_index = q_start + position
    lse_pointers = lse_pointer + split.to(tl.int64) * lse_split_stride + row_index * lse_row_stride
    tl.store(lse_pointers + head * lse_head_stride, lse, mask=inside)
    out_pointers = out_pointer + split.to(tl.int64) * out_split_stride + row_index * out_row_stride
    out_pointers += head * out_head_stride
    tl.store(
        out_pointers[:, None] + columns[None, :],
        out.to(out_pointer.dtype.element_ty),
        mask=inside[:, None] & (columns[None, :] < head_dim),
    )


@triton.jit
def join_kernel(
    parts_pointer,
    part_lse_pointer,
    sinks_pointer,
    q_starts_pointer,
    out_pointer,
    lse_pointer,
    sequences,
    rows,
    heads,
    splits,
    head_dim,
    out_row_stride,
    out_head_stride,
    lse_row_stride,
    lse_head_stride,
    HAS_SINKS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    row = (tl.program_id(0) // heads).to(tl.int64)
    head = (tl.program_id(0) % heads).to(tl.int64)
    columns = tl.arange(0, BLOCK_D)
    inside = columns < head_dim
    out_pointers = out_pointer + row * out_row_stride + head * out_head_stride + columns
    lse_pointers = lse_pointer + row * lse_row_stride + head * lse_head_stride
    # Rows after the last sequence were written by no program.
    if row >= tl.load(q_starts_pointer + sequences):
        tl.store(out_pointers, tl.zeros([BLOCK_D], tl.float32).to(out_pointer.dtype.element_ty), mask=inside)
        tl.store(lse_pointers, float("-inf"))
        return
    maximum = float("-inf")
    if HAS_SINKS:
        sink = tl.load(sinks_pointer + head)
        maximum = sink
    for split in range(splits):
        lse = tl.load(part_lse_pointer + (split * rows + row) * heads + head)
        maximum = tl.where((lse > maximum) | (lse != lse), lse, maximum)
    offset = tl.where(maximum == float("-inf"), 0.0, maximum)
    total = 0.0
    if HAS_SINKS:
        total = tl.exp(sink - offset)
    acc = tl.zeros([BLOCK_D], tl.float32)
    # Parts that count for nothing hold 0, or NaN where logits were -inf; the latter must show if no part counts.
    rest = tl.zeros([BLOCK_D], tl.float32)
    for split in range(splits):
        at = (split * rows + row) * heads + head
        lse = tl.load(part_lse_pointer + at)
        values = tl.load(parts_pointer + at * head_dim + columns, mask=inside, other=0.0)
        weight = tl.exp(lse - offset)
        counts = lse != float("-inf")
        total += tl.where(counts, weight, 0.0)
        acc += tl.where(counts, weight * values, 0.0)
        rest += tl.where(counts, 0.0, values)
    some = total != 0.0
    out = tl.where(some, acc / tl.where(some, total, 1.0), rest)
    tl.store(out_pointers, out.to(out_pointer.dtype.element_ty), mask=inside)
    tl.store(lse_pointers, tl.where(some, maximum + tl.log(tl.where(some, total, 1.0)), float("-inf")))


class Configuration(NamedTuple):
    """How a kernel is cut: rows and keys of a block, warps of a program, depth of software pipelining."""

    block_m: int
    block_n: int
    warps: int
    stages: int


# By family, few or many rows of a head, and largest head dimension, for 16-bit elements. Chosen so that compilation for
# sm_80 to sm_120, gfx942 and gfx950 spills no register and stays within shared memory; the tests compile them all.
TABLE = {
    ("other", "few"): {64: Configuration(16, 64, 4, 2), 128: Configuration(16, 64, 4, 2), 256: Configuration(16, 32, 4, 2)},
    ("other", "many"): {64: Configuration(64, 64, 4, 2), 128: Configuration(64, 32, 8, 2), 256: Configuration(64, 32, 8, 2)},
    ("amd", "few"): {64: Configuration(16, 64, 4, 1), 128: Configuration(16, 32, 4, 1), 256: Configuration(16, 32, 4, 1)},
    ("amd", "many"): {64: Configuration(64, 64, 4, 1), 128: Configuration(64, 32, 4, 1), 256: Configuration(64, 32, 8, 1)},
}  # fmt: skip

# 32-bit elements are multiplied without matrix instructions; small blocks keep them in registers.
FLOAT32 = {256: Configuration(16, 32, 4, 1)}


def configuration(block_d: int, element_bytes: int, gpu_family: str, rows: int) -> Configuration:
    """Return the configuration for a head dimension rounded up to a power of two and this many rows of a head."""
    table: Dict[int, Configuration] = FLOAT32
    if element_bytes < 4:
        table = TABLE[(gpu_family, "few" if rows <= 16 else "many")]
    return table[min(largest for largest in table if block_d <= largest)]


def family() -> str:
    """Return the family of GPUs that torch was built for."""
    return "amd" if torch.version.hip is not None else "other"


def splits_for(programs: int, processors: int, keys: int) -> int:
    """Return how many parts keys are divided into so that every processor has work, 1 where there is enough already."""
    wanted = -(-2 * processors // max(1, programs))
    return max(1, min(wanted, keys // SPLIT_KEYS, MAX_SPLITS))


def _processors(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count
    if device.type == "xpu":
        return torch.xpu.get_device_properties(device).gpu_subslice_count
    return 1


def launch(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    k_begins: torch.Tensor,
    k_lens: torch.Tensor,
    alibi_slopes: Optional[torch.Tensor],
    s_aux: Optional[torch.Tensor],
    max_seqlen_q: int,
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
    num_splits: int,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    """Fill `out` and `lse`; shapes as in operators.paged_fwd."""
    rows, q_heads, head_dim = q.shape
    sequences, k_heads = k_lens.shape[0], k_cache.shape[2]
    group = q_heads // k_heads
    if rows * q_heads == 0:
        return
    block_d = max(16, triton.next_power_of_2(head_dim))
    cut = configuration(block_d, q.element_size(), family(), max_seqlen_q * group)
    blocks = triton.cdiv(max_seqlen_q * group, cut.block_m)
    programs = blocks * sequences * k_heads
    keys = block_table.shape[1] * k_cache.shape[1]
    splits = num_splits or splits_for(programs, _processors(q.device), keys)
    splits = max(1, min(splits, triton.cdiv(keys, cut.block_n), MAX_SPLITS))
    if splits == 1 or programs == 0:
        # Rows after the last sequence are written by no program.
        out.zero_()
        lse.fill_(float("-inf"))
        if programs == 0:
            return
        parts, part_lse = out.unsqueeze(0), lse.unsqueeze(0)
    else:
        parts = q.new_empty((splits, rows, q_heads, head_dim), dtype=torch.float32)
        part_lse = q.new_empty((splits, rows, q_heads), dtype=torch.float32)
    sinks = s_aux if splits == 1 else None
    attend_kernel[(programs * splits,)](
        q,
        k_cache,
        v_cache,
        alibi_slopes,
        sinks,
        parts,
        part_lse,
        cu_seqlens_q,
        k_begins,
        k_lens,
        block_table,
        block_table.stride(0),
        max(1, k_cache.shape[1]),
        q.stride(0),
        q.stride(1),
        k_cache.stride(0),
        k_cache.stride(1),
        k_cache.stride(2),
        v_cache.stride(0),
        v_cache.stride(1),
        v_cache.stride(2),
        parts.stride(0),
        parts.stride(1),
        parts.stride(2),
        part_lse.stride(0),
        part_lse.stride(1),
        part_lse.stride(2),
        alibi_slopes.stride(0) if alibi_slopes is not None and alibi_slopes.dim() == 2 else 0,
        blocks,
        k_heads,
        group,
        splits,
        head_dim,
        softmax_scale / softcap if softcap > 0 else softmax_scale * LOG2E,
        softcap * LOG2E,
        window_left,
        window_right,
        HAS_SOFTCAP=softcap > 0,
        HAS_SLOPES=alibi_slopes is not None,
        HAS_SINKS=sinks is not None,
        HAS_LEFT=window_left >= 0,
        HAS_RIGHT=window_right >= 0,
        BLOCK_M=cut.block_m,
        BLOCK_N=cut.block_n,
        BLOCK_D=block_d,
        WHOLE_D=block_d == head_dim,
        PRECISION="ieee",
        num_warps=cut.warps,
        num_stages=cut.stages,
    )
    if splits > 1:
        join_kernel[(rows * q_heads,)](
            parts,
            part_lse,
            s_aux,
            cu_seqlens_q,
            out,
            lse,
            sequences,
            rows,
            q_heads,
            splits,
            head_dim,
            out.stride(0),
            out.stride(1),
            lse.stride(0),
            lse.stride(1),
            HAS_SINKS=s_aux is not None,
            BLOCK_D=block_d,
            num_warps=1,
        )
