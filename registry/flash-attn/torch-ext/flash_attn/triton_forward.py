"""Forward attention in Triton (online softmax; arXiv 2307.08691, algorithm 1).

One program computes a block of queries of one head. Its keys fall into three runs: a masked edge on the left (windows),
blocks that every row sees entirely, and a masked edge on the right (causal, windows, the last partial block). Only the
edges pay for masks. Configurations come from tables, not from an autotuner, which would need a device at import.
"""

from typing import Dict, NamedTuple, Optional

import torch
import triton
import triton.language as tl

LOG2E = 1.4426950408889634


@triton.jit
def tanh(x):
    # For small arguments the quotient would lose its relative accuracy; there five terms of the series are exact enough.
    magnitude = tl.abs(x)
    square = x * x
    series = x * (1.0 + square * (-1.0 / 3 + square * (2.0 / 15 + square * (-17.0 / 315))))
    quotient = 1.0 - 2.0 / (tl.exp2(magnitude * 2.8853900817779268) + 1.0)
    return tl.where(magnitude < 0.2, series, tl.where(x < 0, -quotient, quotient))


@triton.jit
def attend_blocks(
    acc,
    total,
    maximum,
    q,
    k_base,
    v_base,
    k_row_stride,
    v_row_stride,
    pages_pointer,
    page_size,
    k_page_stride,
    v_page_stride,
    k_begin,
    first_key,
    end_key,
    diagonals,
    k_len,
    head_dim,
    scale_log2,
    softcap,
    slope_log2,
    window_left,
    window_right,
    MASKED: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPE: tl.constexpr,
    HAS_LEFT: tl.constexpr,
    HAS_RIGHT: tl.constexpr,
    PAGED: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WHOLE_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    columns = tl.arange(0, BLOCK_D)
    for start in tl.range(first_key, end_key, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        if PAGED:
            rows = k_begin + keys
            page = tl.load(pages_pointer + rows // page_size, mask=keys < k_len, other=0).to(tl.int64)
            row = (rows % page_size).to(tl.int64)
            k_pointers = k_base + (page * k_page_stride + row * k_row_stride)[None, :] + columns[:, None]
            v_pointers = v_base + (page * v_page_stride + row * v_row_stride)[:, None] + columns[None, :]
        else:
            k_pointers = k_base + keys[None, :].to(tl.int64) * k_row_stride + columns[:, None]
            v_pointers = v_base + keys[:, None].to(tl.int64) * v_row_stride + columns[None, :]
        if MASKED:
            if WHOLE_D:
                k = tl.load(k_pointers, mask=keys[None, :] < k_len, other=0.0)
                v = tl.load(v_pointers, mask=keys[:, None] < k_len, other=0.0)
            else:
                k = tl.load(k_pointers, mask=(keys[None, :] < k_len) & (columns[:, None] < head_dim), other=0.0)
                v = tl.load(v_pointers, mask=(keys[:, None] < k_len) & (columns[None, :] < head_dim), other=0.0)
        else:
            if WHOLE_D:
                k = tl.load(k_pointers)
                v = tl.load(v_pointers)
            else:
                k = tl.load(k_pointers, mask=columns[:, None] < head_dim, other=0.0)
                v = tl.load(v_pointers, mask=columns[None, :] < head_dim, other=0.0)
        logits = tl.dot(q, k, input_precision=PRECISION)
        if HAS_SOFTCAP:
            logits = tanh(logits * scale_log2) * softcap
        else:
            logits = logits * scale_log2
        if HAS_SLOPE:
            logits -= slope_log2 * tl.abs(diagonals[:, None] - keys[None, :]).to(tl.float32)
        if MASKED:
            visible = keys[None, :] < k_len
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
    return acc, total, maximum


@triton.jit
def forward_kernel(
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
    q_batch_stride,
    q_row_stride,
    q_head_stride,
    k_batch_stride,
    k_row_stride,
    k_head_stride,
    v_batch_stride,
    v_row_stride,
    v_head_stride,
    out_batch_stride,
    out_row_stride,
    out_head_stride,
    lse_batch_stride,
    lse_head_stride,
    slopes_batch_stride,
    blocks,
    q_heads,
    group,
    max_q_len,
    max_k_len,
    head_dim,
    scale_log2,
    softcap_log2,
    window_left,
    window_right,
    VARLEN: tl.constexpr,
    PAGED: tl.constexpr,
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
    # The last blocks have the most keys under a causal mask, so they start first. One grid axis, because the others end
    # at 65535 on NVIDIA.
    block = blocks - 1 - tl.program_id(0) % blocks
    batch = (tl.program_id(0) // blocks // q_heads).to(tl.int64)
    head = (tl.program_id(0) // blocks % q_heads).to(tl.int64)
    if VARLEN:
        q_start = tl.load(q_starts_pointer + batch).to(tl.int64)
        k_begin = tl.load(k_begins_pointer + batch)
        q_len = (tl.load(q_starts_pointer + batch + 1) - q_start).to(tl.int32)
        k_len = tl.load(k_lens_pointer + batch)
        if block * BLOCK_M >= q_len:
            return
        q_pointer += q_start * q_row_stride
        if PAGED:
            pages_pointer += batch * pages_stride
        else:
            k_pointer += k_begin.to(tl.int64) * k_row_stride
            v_pointer += k_begin.to(tl.int64) * v_row_stride
        out_pointer += q_start * out_row_stride
        lse_pointer += q_start
    else:
        k_begin = 0
        q_len = max_q_len
        k_len = max_k_len
        q_pointer += batch * q_batch_stride
        k_pointer += batch * k_batch_stride
        v_pointer += batch * v_batch_stride
        out_pointer += batch * out_batch_stride
        lse_pointer += batch * lse_batch_stride
    q_pointer += head * q_head_stride
    k_base = k_pointer + (head // group) * k_head_stride
    v_base = v_pointer + (head // group) * v_head_stride
    out_pointer += head * out_head_stride
    lse_pointer += head * lse_head_stride

    first_row = block * BLOCK_M
    rows = first_row + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, BLOCK_D)
    offset = k_len - q_len
    diagonals = rows + offset
    last_row = tl.minimum(first_row + BLOCK_M, q_len) - 1

    q_pointers = q_pointer + rows[:, None].to(tl.int64) * q_row_stride + columns[None, :]
    if WHOLE_D:
        q = tl.load(q_pointers, mask=rows[:, None] < q_len, other=0.0)
    else:
        q = tl.load(q_pointers, mask=(rows[:, None] < q_len) & (columns[None, :] < head_dim), other=0.0)

    begin = 0
    whole_begin = 0
    end = k_len
    whole_end = k_len
    if HAS_LEFT:
        begin = tl.minimum(tl.maximum(first_row + offset - window_left, 0), k_len)
        whole_begin = tl.minimum(tl.maximum(last_row + offset - window_left, 0), k_len)
    if HAS_RIGHT:
        end = tl.minimum(tl.maximum(last_row + offset + window_right + 1, 0), k_len)
        whole_end = tl.minimum(tl.maximum(first_row + offset + window_right + 1, 0), k_len)
    begin = begin // BLOCK_N * BLOCK_N
    # Between these two every row sees every key.
    whole_begin = tl.minimum((whole_begin + BLOCK_N - 1) // BLOCK_N * BLOCK_N, end)
    whole_end = tl.maximum(whole_end // BLOCK_N * BLOCK_N, whole_begin)

    slope_log2 = 0.0
    if HAS_SLOPES:
        slope_log2 = tl.load(slopes_pointer + batch * slopes_batch_stride + head) * 1.4426950408889634
    maximum = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    if HAS_SINKS:
        sink = tl.load(sinks_pointer + head) * 1.4426950408889634
        maximum = tl.full([BLOCK_M], 0.0, tl.float32) + sink
        total = tl.where(maximum == float("-inf"), 0.0, 1.0)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)

    if HAS_LEFT:
        acc, total, maximum = attend_blocks(
            acc, total, maximum, q, k_base, v_base, k_row_stride, v_row_stride,
            pages_pointer, page_size, k_batch_stride, v_batch_stride, k_begin, begin, whole_begin, diagonals, k_len,
            head_dim, scale_log2, softcap_log2, slope_log2, window_left, window_right,
            True, HAS_SOFTCAP, HAS_SLOPES, HAS_LEFT, HAS_RIGHT, PAGED, BLOCK_N, BLOCK_D, WHOLE_D, PRECISION,
        )  # fmt: skip
    acc, total, maximum = attend_blocks(
        acc, total, maximum, q, k_base, v_base, k_row_stride, v_row_stride,
        pages_pointer, page_size, k_batch_stride, v_batch_stride, k_begin, whole_begin, whole_end, diagonals, k_len,
        head_dim, scale_log2, softcap_log2, slope_log2, window_left, window_right,
        False, HAS_SOFTCAP, HAS_SLOPES, HAS_LEFT, HAS_RIGHT, PAGED, BLOCK_N, BLOCK_D, WHOLE_D, PRECISION,
    )  # fmt: skip
    acc, total, maximum = attend_blocks(
        acc, total, maximum, q, k_base, v_base, k_row_stride, v_row_stride,
        pages_pointer, page_size, k_batch_stride, v_batch_stride, k_begin, whole_end, end, diagonals, k_len,
        head_dim, scale_log2, softcap_log2, slope_log2, window_left, window_right,
        True, HAS_SOFTCAP, HAS_SLOPES, HAS_LEFT, HAS_RIGHT, PAGED, BLOCK_N, BLOCK_D, WHOLE_D, PRECISION,
    )  # fmt: skip

    # A row without keys is 0 by definition; one whose logits are all -inf is 0/0, as in a plain softmax.
    row_begin = tl.zeros([BLOCK_M], tl.int32)
    row_end = tl.zeros([BLOCK_M], tl.int32) + k_len
    if HAS_LEFT:
        row_begin = tl.minimum(tl.maximum(diagonals - window_left, 0), k_len)
    if HAS_RIGHT:
        row_end = tl.minimum(tl.maximum(diagonals + window_right + 1, 0), k_len)
    empty = row_begin >= row_end
    lse = tl.where(total == 0.0, float("-inf"), (maximum + tl.log2(total)) * 0.6931471805599453)
    out = tl.where(empty[:, None], 0.0, acc / tl.where(empty, 1.0, total)[:, None])
    tl.store(lse_pointer + rows, lse, mask=rows < q_len)
    out_pointers = out_pointer + rows[:, None].to(tl.int64) * out_row_stride + columns[None, :]
    tl.store(
        out_pointers,
        out.to(out_pointer.dtype.element_ty),
        mask=(rows[:, None] < q_len) & (columns[None, :] < head_dim),
    )


class Configuration(NamedTuple):
    """How a kernel is cut: rows and keys of a block, warps of a program, depth of software pipelining."""

    block_m: int
    block_n: int
    warps: int
    stages: int


# By family and largest head dimension (rounded up to a power of two), for 16-bit elements. Chosen so that compilation for
# sm_80 to sm_120, gfx942 and gfx950 spills no register and stays within shared memory; the tests compile them all.
FORWARD_TABLE = {
    "amd": {
        64: Configuration(128, 64, 4, 2),
        128: Configuration(128, 32, 8, 1),
        256: Configuration(64, 32, 8, 1),
    },
    "other": {
        64: Configuration(128, 64, 4, 2),
        128: Configuration(128, 64, 8, 2),
        256: Configuration(64, 32, 8, 2),
    },
}

# 32-bit elements are multiplied without matrix instructions; small blocks keep them in registers.
FORWARD_FLOAT32 = {64: Configuration(64, 32, 4, 1), 256: Configuration(32, 32, 4, 1)}


def family() -> str:
    """Return the family of GPUs that torch was built for."""
    return "amd" if torch.version.hip is not None else "other"


def choose(table: Dict[int, Configuration], block_d: int) -> Configuration:
    """Return the entry of the smallest head dimension that is large enough."""
    return table[min(largest for largest in table if block_d <= largest)]


def configuration(block_d: int, element_bytes: int, gpu_family: str) -> Configuration:
    """Return the forward kernel's configuration for a head dimension rounded up to a power of two."""
    return choose(FORWARD_FLOAT32 if element_bytes == 4 else FORWARD_TABLE[gpu_family], block_d)


class Sequences(NamedTuple):
    """Where the sequences of a batch of different lengths lie (see operators.varlen_fwd)."""

    q_starts: torch.Tensor
    k_begins: torch.Tensor
    k_lens: torch.Tensor
    block_table: Optional[torch.Tensor]
    max_q_len: int


def launch(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    alibi_slopes: Optional[torch.Tensor],
    s_aux: Optional[torch.Tensor],
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
    out: torch.Tensor,
    lse: torch.Tensor,
    sequences: Optional[Sequences],
) -> None:
    """Fill `out` and `lse` (shapes as in operators.fwd; with `sequences` the batch dimension of rows is 1)."""
    batch, q_len, q_heads, head_dim = q.shape
    if sequences is not None:
        batch, q_len = sequences.k_lens.shape[0], sequences.max_q_len
    if batch * q_len * q_heads == 0:
        return
    table = None if sequences is None else sequences.block_table
    block_d = max(16, triton.next_power_of_2(head_dim))
    block_m, block_n, warps, stages = configuration(block_d, q.element_size(), family())
    blocks = triton.cdiv(q_len, block_m)
    forward_kernel[(blocks * batch * q_heads,)](
        q,
        k,
        v,
        alibi_slopes,
        s_aux,
        out,
        lse,
        None if sequences is None else sequences.q_starts,
        None if sequences is None else sequences.k_begins,
        None if sequences is None else sequences.k_lens,
        table,
        0 if table is None else table.stride(0),
        k.shape[1],
        q.stride(0),
        q.stride(1),
        q.stride(2),
        k.stride(0),
        k.stride(1),
        k.stride(2),
        v.stride(0),
        v.stride(1),
        v.stride(2),
        out.stride(0),
        out.stride(1),
        out.stride(2),
        lse.stride(0),
        lse.stride(1),
        alibi_slopes.stride(0) if alibi_slopes is not None and alibi_slopes.dim() == 2 else 0,
        blocks,
        q_heads,
        q_heads // k.shape[2],
        q_len,
        k.shape[1],
        head_dim,
        softmax_scale / softcap if softcap > 0 else softmax_scale * LOG2E,
        softcap * LOG2E,
        window_left,
        window_right,
        VARLEN=sequences is not None,
        PAGED=table is not None,
        HAS_SOFTCAP=softcap > 0,
        HAS_SLOPES=alibi_slopes is not None,
        HAS_SINKS=s_aux is not None,
        HAS_LEFT=window_left >= 0,
        HAS_RIGHT=window_right >= 0,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_D=block_d,
        WHOLE_D=block_d == head_dim,
        PRECISION="ieee",
        num_warps=warps,
        num_stages=stages,
    )
