"""Backward attention in Triton (arXiv 2307.08691, algorithm 2), without atomics, so that results never vary.

Two kernels recompute the probabilities from the log-sum-exp: one owns a block of keys and sums over query rows, for the
gradients of k and v; the other owns a block of query rows and sums over keys, for the gradient of q. As in the forward
pass the blocks that every row sees entirely are computed without masks.
"""

from typing import Optional, Tuple

import torch
import triton
import triton.language as tl

from .triton_forward import LOG2E, Configuration, Sequences, choose, family, tanh


@triton.jit
def probabilities_of(
    scores,
    lse,
    rows,
    keys,
    offset,
    scale_log2,
    softcap_log2,
    slope_log2,
    window_left,
    window_right,
    MASKED: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPE: tl.constexpr,
    HAS_LEFT: tl.constexpr,
    HAS_RIGHT: tl.constexpr,
):
    """Return probabilities and the derivative of the capped logits; rows, keys and lse are broadcast against scores."""
    inner = 1.0
    if HAS_SOFTCAP:
        capped = tanh(scores * scale_log2)
        inner = 1.0 - capped * capped
        logits = capped * softcap_log2
    else:
        logits = scores * scale_log2
    distance = rows + offset - keys
    if HAS_SLOPE:
        logits -= slope_log2 * tl.abs(distance).to(tl.float32)
    probabilities = tl.exp2(logits - lse)
    if MASKED:
        if HAS_LEFT:
            probabilities = tl.where(distance <= window_left, probabilities, 0.0)
        if HAS_RIGHT:
            probabilities = tl.where(distance >= -window_right, probabilities, 0.0)
    return probabilities, inner


@triton.jit
def load_rows(base, rows, row_stride, columns, count, head_dim, WHOLE_D: tl.constexpr):
    pointers = base + rows[:, None].to(tl.int64) * row_stride + columns[None, :]
    if WHOLE_D:
        return tl.load(pointers, mask=rows[:, None] < count, other=0.0)
    return tl.load(pointers, mask=(rows[:, None] < count) & (columns[None, :] < head_dim), other=0.0)


@triton.jit
def load_lse(base, rows, count):
    """Return base-2 log-sum-exps; +inf, against which every probability is 0, where there is no row or no key."""
    lse = tl.load(base + rows, mask=rows < count, other=float("inf"))
    return tl.where(lse == float("-inf"), float("inf"), lse) * 1.4426950408889634


@triton.jit
def sum_over_rows(
    grad_k,
    grad_v,
    k,
    v,
    q_base,
    grad_out_base,
    lse_base,
    delta_base,
    q_row_stride,
    grad_out_row_stride,
    first_row,
    end_row,
    keys,
    offset,
    q_len,
    head_dim,
    scale_log2,
    softcap_log2,
    slope_log2,
    window_left,
    window_right,
    MASKED: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPE: tl.constexpr,
    HAS_LEFT: tl.constexpr,
    HAS_RIGHT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WHOLE_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    columns = tl.arange(0, BLOCK_D)
    for start in tl.range(first_row, end_row, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        q = load_rows(q_base, rows, q_row_stride, columns, q_len, head_dim, WHOLE_D)
        grad_out = load_rows(grad_out_base, rows, grad_out_row_stride, columns, q_len, head_dim, WHOLE_D)
        lse = load_lse(lse_base, rows, q_len)
        delta = tl.load(delta_base + rows, mask=rows < q_len, other=0.0)
        scores = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        probabilities, inner = probabilities_of(
            scores,
            lse[None, :],
            rows[None, :],
            keys[:, None],
            offset,
            scale_log2,
            softcap_log2,
            slope_log2,
            window_left,
            window_right,
            MASKED,
            HAS_SOFTCAP,
            HAS_SLOPE,
            HAS_LEFT,
            HAS_RIGHT,
        )
        grad_v = tl.dot(probabilities.to(grad_out.dtype), grad_out, grad_v, input_precision=PRECISION)
        grad_probabilities = tl.dot(v, tl.trans(grad_out), input_precision=PRECISION)
        grad_scores = probabilities * (grad_probabilities - delta[None, :]) * inner
        grad_k = tl.dot(grad_scores.to(q.dtype), q, grad_k, input_precision=PRECISION)
    return grad_k, grad_v


@triton.jit
def keys_kernel(
    q_pointer,
    k_pointer,
    v_pointer,
    grad_out_pointer,
    lse_pointer,
    delta_pointer,
    slopes_pointer,
    grad_k_pointer,
    grad_v_pointer,
    q_starts_pointer,
    k_begins_pointer,
    k_lens_pointer,
    q_batch_stride,
    q_row_stride,
    q_head_stride,
    k_batch_stride,
    k_row_stride,
    k_head_stride,
    v_batch_stride,
    v_row_stride,
    v_head_stride,
    grad_out_batch_stride,
    grad_out_row_stride,
    grad_out_head_stride,
    grad_k_batch_stride,
    grad_k_row_stride,
    grad_k_head_stride,
    lse_batch_stride,
    lse_head_stride,
    slopes_batch_stride,
    blocks,
    k_heads,
    group,
    max_q_len,
    max_k_len,
    head_dim,
    softmax_scale,
    scale_log2,
    softcap_log2,
    window_left,
    window_right,
    VARLEN: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_LEFT: tl.constexpr,
    HAS_RIGHT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WHOLE_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    block = tl.program_id(0) % blocks
    batch = (tl.program_id(0) // blocks // k_heads).to(tl.int64)
    k_head = (tl.program_id(0) // blocks % k_heads).to(tl.int64)
    if VARLEN:
        q_start = tl.load(q_starts_pointer + batch).to(tl.int64)
        k_begin = tl.load(k_begins_pointer + batch).to(tl.int64)
        q_len = (tl.load(q_starts_pointer + batch + 1) - q_start).to(tl.int32)
        k_len = tl.load(k_lens_pointer + batch)
        if block * BLOCK_N >= k_len:
            return
        q_pointer += q_start * q_row_stride
        grad_out_pointer += q_start * grad_out_row_stride
        lse_pointer += q_start
        delta_pointer += q_start
        k_pointer += k_begin * k_row_stride
        v_pointer += k_begin * v_row_stride
        grad_k_pointer += k_begin * grad_k_row_stride
        grad_v_pointer += k_begin * grad_k_row_stride
    else:
        q_len = max_q_len
        k_len = max_k_len
        q_pointer += batch * q_batch_stride
        grad_out_pointer += batch * grad_out_batch_stride
        lse_pointer += batch * lse_batch_stride
        delta_pointer += batch * lse_batch_stride
        k_pointer += batch * k_batch_stride
        v_pointer += batch * v_batch_stride
        grad_k_pointer += batch * grad_k_batch_stride
        grad_v_pointer += batch * grad_k_batch_stride
    first_key = block * BLOCK_N
    keys = first_key + tl.arange(0, BLOCK_N)
    last_key = tl.minimum(first_key + BLOCK_N, k_len) - 1
    columns = tl.arange(0, BLOCK_D)
    offset = k_len - q_len
    k = load_rows(k_pointer + k_head * k_head_stride, keys, k_row_stride, columns, k_len, head_dim, WHOLE_D)
    v = load_rows(v_pointer + k_head * v_head_stride, keys, v_row_stride, columns, k_len, head_dim, WHOLE_D)

    begin = 0
    whole_begin = 0
    end = q_len
    whole_end = q_len
    if HAS_RIGHT:
        begin = tl.minimum(tl.maximum(first_key - offset - window_right, 0), q_len)
        whole_begin = tl.minimum(tl.maximum(last_key - offset - window_right, 0), q_len)
    if HAS_LEFT:
        end = tl.minimum(tl.maximum(last_key - offset + window_left + 1, 0), q_len)
        whole_end = tl.minimum(tl.maximum(first_key - offset + window_left + 1, 0), q_len)
    begin = begin // BLOCK_M * BLOCK_M
    whole_begin = tl.minimum((whole_begin + BLOCK_M - 1) // BLOCK_M * BLOCK_M, end)
    # Rows past the last are zeros and need no mask, so without a left window the last block counts as whole.
    if HAS_LEFT:
        whole_end = tl.maximum(whole_end // BLOCK_M * BLOCK_M, whole_begin)
    else:
        whole_end = tl.maximum(end, whole_begin)

    grad_k = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    grad_v = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    for member in range(group):
        head = k_head * group + member
        q_base = q_pointer + head * q_head_stride
        grad_out_base = grad_out_pointer + head * grad_out_head_stride
        lse_base = lse_pointer + head * lse_head_stride
        delta_base = delta_pointer + head * lse_head_stride
        slope_log2 = 0.0
        if HAS_SLOPES:
            slope_log2 = tl.load(slopes_pointer + batch * slopes_batch_stride + head) * 1.4426950408889634
        if HAS_RIGHT:
            grad_k, grad_v = sum_over_rows(
                grad_k, grad_v, k, v, q_base, grad_out_base, lse_base, delta_base, q_row_stride, grad_out_row_stride,
                begin, whole_begin, keys, offset, q_len, head_dim, scale_log2, softcap_log2, slope_log2, window_left,
                window_right, True, HAS_SOFTCAP, HAS_SLOPES, HAS_LEFT, HAS_RIGHT, BLOCK_M, BLOCK_D, WHOLE_D, PRECISION,
            )  # fmt: skip
        grad_k, grad_v = sum_over_rows(
            grad_k, grad_v, k, v, q_base, grad_out_base, lse_base, delta_base, q_row_stride, grad_out_row_stride,
            whole_begin, whole_end, keys, offset, q_len, head_dim, scale_log2, softcap_log2, slope_log2, window_left,
            window_right, False, HAS_SOFTCAP, HAS_SLOPES, HAS_LEFT, HAS_RIGHT, BLOCK_M, BLOCK_D, WHOLE_D, PRECISION,
        )  # fmt: skip
        if HAS_LEFT:
            grad_k, grad_v = sum_over_rows(
                grad_k, grad_v, k, v, q_base, grad_out_base, lse_base, delta_base, q_row_stride, grad_out_row_stride,
                whole_end, end, keys, offset, q_len, head_dim, scale_log2, softcap_log2, slope_log2, window_left,
                window_right, True, HAS_SOFTCAP, HAS_SLOPES, HAS_LEFT, HAS_RIGHT, BLOCK_M, BLOCK_D, WHOLE_D, PRECISION,
            )  # fmt: skip
    at = k_head * grad_k_head_stride + keys[:, None].to(tl.int64) * grad_k_row_stride + columns[None, :]
    inside = (keys[:, None] < k_len) & (columns[None, :] < head_dim)
    tl.store(grad_k_pointer + at, (grad_k * softmax_scale).to(grad_k_pointer.dtype.element_ty), mask=inside)
    tl.store(grad_v_pointer + at, grad_v.to(grad_v_pointer.dtype.element_ty), mask=inside)


@triton.jit
def sum_over_keys(
    grad_q,
    q,
    grad_out,
    lse,
    delta,
    k_base,
    v_base,
    k_row_stride,
    v_row_stride,
    first_key,
    end_key,
    rows,
    offset,
    k_len,
    head_dim,
    scale_log2,
    softcap_log2,
    slope_log2,
    window_left,
    window_right,
    MASKED: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPE: tl.constexpr,
    HAS_LEFT: tl.constexpr,
    HAS_RIGHT: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WHOLE_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    columns = tl.arange(0, BLOCK_D)
    for start in tl.range(first_key, end_key, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_base, keys, k_row_stride, columns, k_len, head_dim, WHOLE_D)
        v = load_rows(v_base, keys, v_row_stride, columns, k_len, head_dim, WHOLE_D)
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        probabilities, inner = probabilities_of(
            scores,
            lse[:, None],
            rows[:, None],
            keys[None, :],
            offset,
            scale_log2,
            softcap_log2,
            slope_log2,
            window_left,
            window_right,
            MASKED,
            HAS_SOFTCAP,
            HAS_SLOPE,
            HAS_LEFT,
            HAS_RIGHT,
        )
        grad_probabilities = tl.dot(grad_out, tl.trans(v), input_precision=PRECISION)
        # Keys past the last have a gradient here, but their k is zero.
        grad_scores = probabilities * (grad_probabilities - delta[:, None]) * inner
        grad_q = tl.dot(grad_scores.to(k.dtype), k, grad_q, input_precision=PRECISION)
    return grad_q


@triton.jit
def rows_kernel(
    q_pointer,
    k_pointer,
    v_pointer,
    grad_out_pointer,
    lse_pointer,
    delta_pointer,
    slopes_pointer,
    grad_q_pointer,
    q_starts_pointer,
    k_begins_pointer,
    k_lens_pointer,
    q_batch_stride,
    q_row_stride,
    q_head_stride,
    k_batch_stride,
    k_row_stride,
    k_head_stride,
    v_batch_stride,
    v_row_stride,
    v_head_stride,
    grad_out_batch_stride,
    grad_out_row_stride,
    grad_out_head_stride,
    grad_q_batch_stride,
    grad_q_row_stride,
    grad_q_head_stride,
    lse_batch_stride,
    lse_head_stride,
    slopes_batch_stride,
    blocks,
    q_heads,
    group,
    max_q_len,
    max_k_len,
    head_dim,
    softmax_scale,
    scale_log2,
    softcap_log2,
    window_left,
    window_right,
    VARLEN: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SLOPES: tl.constexpr,
    HAS_LEFT: tl.constexpr,
    HAS_RIGHT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    WHOLE_D: tl.constexpr,
    PRECISION: tl.constexpr,
):
    block = blocks - 1 - tl.program_id(0) % blocks
    batch = (tl.program_id(0) // blocks // q_heads).to(tl.int64)
    head = (tl.program_id(0) // blocks % q_heads).to(tl.int64)
    if VARLEN:
        q_start = tl.load(q_starts_pointer + batch).to(tl.int64)
        k_begin = tl.load(k_begins_pointer + batch).to(tl.int64)
        q_len = (tl.load(q_starts_pointer + batch + 1) - q_start).to(tl.int32)
        k_len = tl.load(k_lens_pointer + batch)
        if block * BLOCK_M >= q_len:
            return
        q_pointer += q_start * q_row_stride
        grad_out_pointer += q_start * grad_out_row_stride
        grad_q_pointer += q_start * grad_q_row_stride
        lse_pointer += q_start
        delta_pointer += q_start
        k_pointer += k_begin * k_row_stride
        v_pointer += k_begin * v_row_stride
    else:
        q_len = max_q_len
        k_len = max_k_len
        q_pointer += batch * q_batch_stride
        grad_out_pointer += batch * grad_out_batch_stride
        grad_q_pointer += batch * grad_q_batch_stride
        lse_pointer += batch * lse_batch_stride
        delta_pointer += batch * lse_batch_stride
        k_pointer += batch * k_batch_stride
        v_pointer += batch * v_batch_stride
    first_row = block * BLOCK_M
    rows = first_row + tl.arange(0, BLOCK_M)
    last_row = tl.minimum(first_row + BLOCK_M, q_len) - 1
    columns = tl.arange(0, BLOCK_D)
    offset = k_len - q_len
    q = load_rows(q_pointer + head * q_head_stride, rows, q_row_stride, columns, q_len, head_dim, WHOLE_D)
    grad_out = load_rows(
        grad_out_pointer + head * grad_out_head_stride, rows, grad_out_row_stride, columns, q_len, head_dim, WHOLE_D
    )
    lse = load_lse(lse_pointer + head * lse_head_stride, rows, q_len)
    delta = tl.load(delta_pointer + head * lse_head_stride + rows, mask=rows < q_len, other=0.0)
    k_base = k_pointer + (head // group) * k_head_stride
    v_base = v_pointer + (head // group) * v_head_stride
    slope_log2 = 0.0
    if HAS_SLOPES:
        slope_log2 = tl.load(slopes_pointer + batch * slopes_batch_stride + head) * 1.4426950408889634

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
    whole_begin = tl.minimum((whole_begin + BLOCK_N - 1) // BLOCK_N * BLOCK_N, end)
    if HAS_RIGHT:
        whole_end = tl.maximum(whole_end // BLOCK_N * BLOCK_N, whole_begin)
    else:
        whole_end = tl.maximum(end, whole_begin)

    grad_q = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    if HAS_LEFT:
        grad_q = sum_over_keys(
            grad_q, q, grad_out, lse, delta, k_base, v_base, k_row_stride, v_row_stride, begin, whole_begin, rows, offset,
            k_len, head_dim, scale_log2, softcap_log2, slope_log2, window_left, window_right, True, HAS_SOFTCAP,
            HAS_SLOPES, HAS_LEFT, HAS_RIGHT, BLOCK_N, BLOCK_D, WHOLE_D, PRECISION,
        )  # fmt: skip
    grad_q = sum_over_keys(
        grad_q, q, grad_out, lse, delta, k_base, v_base, k_row_stride, v_row_stride, whole_begin, whole_end, rows, offset,
        k_len, head_dim, scale_log2, softcap_log2, slope_log2, window_left, window_right, False, HAS_SOFTCAP,
        HAS_SLOPES, HAS_LEFT, HAS_RIGHT, BLOCK_N, BLOCK_D, WHOLE_D, PRECISION,
    )  # fmt: skip
    if HAS_RIGHT:
        grad_q = sum_over_keys(
            grad_q, q, grad_out, lse, delta, k_base, v_base, k_row_stride, v_row_stride, whole_end, end, rows, offset,
            k_len, head_dim, scale_log2, softcap_log2, slope_log2, window_left, window_right, True, HAS_SOFTCAP,
            HAS_SLOPES, HAS_LEFT, HAS_RIGHT, BLOCK_N, BLOCK_D, WHOLE_D, PRECISION,
        )  # fmt: skip
    tl.store(
        grad_q_pointer + head * grad_q_head_stride + rows[:, None].to(tl.int64) * grad_q_row_stride + columns[None, :],
        (grad_q * softmax_scale).to(grad_q_pointer.dtype.element_ty),
        mask=(rows[:, None] < q_len) & (columns[None, :] < head_dim),
    )


# As in triton_forward.FORWARD_TABLE, for the kernel that owns keys and the one that owns rows.
KEYS_TABLE = {
    "amd": {
        64: Configuration(64, 64, 4, 1),
        128: Configuration(16, 64, 8, 1),
        256: Configuration(16, 32, 8, 1),
    },
    "other": {
        64: Configuration(32, 64, 4, 1),
        128: Configuration(64, 32, 8, 1),
        256: Configuration(32, 32, 8, 1),
    },
}
ROWS_TABLE = {
    "amd": {
        64: Configuration(64, 64, 4, 1),
        128: Configuration(64, 32, 8, 1),
        256: Configuration(32, 16, 8, 1),
    },
    "other": {
        64: Configuration(64, 32, 8, 1),
        128: Configuration(64, 32, 8, 1),
        256: Configuration(32, 32, 8, 1),
    },
}
FLOAT32 = {128: Configuration(32, 32, 4, 1), 256: Configuration(16, 16, 4, 1)}


def configurations(block_d: int, element_bytes: int, gpu_family: str) -> Tuple[Configuration, Configuration]:
    """Return the configurations of keys_kernel and rows_kernel."""
    if element_bytes == 4:
        return choose(FLOAT32, block_d), choose(FLOAT32, block_d)
    return choose(KEYS_TABLE[gpu_family], block_d), choose(ROWS_TABLE[gpu_family], block_d)


def launch(
    grad_out: torch.Tensor,
    grad_lse: Optional[torch.Tensor],
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    alibi_slopes: Optional[torch.Tensor],
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
    grad_q: torch.Tensor,
    grad_k: torch.Tensor,
    grad_v: torch.Tensor,
    sequences: Optional[Sequences],
    max_k_len: int,
) -> None:
    """Fill the gradients (shapes as in operators.fwd; with `sequences` the batch dimension of rows and keys is 1)."""
    batch, q_len, q_heads, head_dim = q.shape
    k_heads = k.shape[2]
    if sequences is not None:
        batch, q_len = sequences.k_lens.shape[0], sequences.max_q_len
    grad_out = grad_out if grad_out.stride(-1) == 1 else grad_out.contiguous()
    lse = lse.contiguous()
    delta = (grad_out.float() * out.float()).sum(-1).transpose(1, 2).contiguous()
    if grad_lse is not None:
        delta -= grad_lse
    block_d = max(16, triton.next_power_of_2(head_dim))
    of_keys, of_rows = configurations(block_d, q.element_size(), family())
    operands = (q, k, v, grad_out, lse, delta, alibi_slopes)
    starts = (None, None, None) if sequences is None else (sequences.q_starts, sequences.k_begins, sequences.k_lens)
    strides = [stride for tensor in (q, k, v, grad_out) for stride in tensor.stride()[:3]]
    of_lse = (
        lse.stride(0),
        lse.stride(1),
        alibi_slopes.stride(0) if alibi_slopes is not None and alibi_slopes.dim() == 2 else 0,
    )
    scalars = (
        head_dim,
        softmax_scale,
        softmax_scale / softcap if softcap > 0 else softmax_scale * LOG2E,
        softcap * LOG2E,
        window_left,
        window_right,
    )
    options = {
        "VARLEN": sequences is not None,
        "HAS_SOFTCAP": softcap > 0,
        "HAS_SLOPES": alibi_slopes is not None,
        "HAS_LEFT": window_left >= 0,
        "HAS_RIGHT": window_right >= 0,
        "BLOCK_D": block_d,
        "WHOLE_D": block_d == head_dim,
        "PRECISION": "ieee",
    }
    blocks = triton.cdiv(max_k_len, of_keys.block_n)
    if blocks * batch * k_heads > 0:
        keys_kernel[(blocks * batch * k_heads,)](
            *operands,
            grad_k,
            grad_v,
            *starts,
            *strides,
            *grad_k.stride()[:3],
            *of_lse,
            blocks,
            k_heads,
            q_heads // k_heads,
            q_len,
            max_k_len,
            *scalars,
            BLOCK_M=of_keys.block_m,
            BLOCK_N=of_keys.block_n,
            num_warps=of_keys.warps,
            num_stages=of_keys.stages,
            **options,
        )
    blocks = triton.cdiv(q_len, of_rows.block_m)
    if blocks * batch * q_heads > 0:
        rows_kernel[(blocks * batch * q_heads,)](
            *operands,
            grad_q,
            *starts,
            *strides,
            *grad_q.stride()[:3],
            *of_lse,
            blocks,
            q_heads,
            q_heads // k_heads,
            q_len,
            max_k_len,
            *scalars,
            BLOCK_M=of_rows.block_m,
            BLOCK_N=of_rows.block_n,
            num_warps=of_rows.warps,
            num_stages=of_rows.stages,
            **options,
        )
