"""The public functions, with FlashAttention-2's signatures and semantics.

Sources: arXiv 2205.14135 and 2307.08691 for the algorithm. Two choices where implementations differ: the log-sum-exp of
a row without keys is -inf (so that partial results can be merged), and with sinks it includes the sink.
"""

from typing import Optional, Tuple, Union

import torch

from . import deferral, operands, operators, validation

Attended = Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor, None]]


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    s_aux: Optional[torch.Tensor] = None,
) -> Attended:
    """Attend: softmax(q k^T * softmax_scale + bias) v, without materialising the scores.

    Args:
        q: (batch, q_len, q_heads, head_dim), float32, bfloat16 or float16.
        k: (batch, k_len, k_heads, head_dim). q_heads is a multiple of k_heads; query head h reads key head
            h // (q_heads // k_heads).
        v: like k.
        dropout_p: must be 0.
        softmax_scale: defaults to head_dim ** -0.5.
        causal: query i sees keys up to i + k_len - q_len (aligned to the bottom right).
        window_size: (left, right), inclusive: query i sees keys from i + k_len - q_len - left to
            i + k_len - q_len + right; -1 is unlimited.
        softcap: if positive, logits become softcap * tanh(logit / softcap).
        alibi_slopes: (q_heads,) or (batch, q_heads): adds -slope * |i + k_len - q_len - j|.
        deterministic: results and gradients of this build never vary from run to run; if true, no call is left to torch.
        return_attn_probs: also return the log-sum-exp; it is differentiable too.
        s_aux: (q_heads,): the logit of an extra key that has no value (an attention sink).

    Returns:
        The output, (batch, q_len, q_heads, head_dim); a row that sees no key is 0. With `return_attn_probs` the tuple
        (output, lse, None), lse (batch, q_heads, q_len) float32, natural logarithm, -inf for a row that sees no key.

    Raises:
        TypeError, ValueError: operands that do not fit together.
        UnsupportedFeatureError: dropout, a head dimension above 256, a device this build does not serve, or
            alibi_slopes that want a gradient.

    On CPUs with AMX some calls are left to torch, with a log record: see `implementation`.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        validation.require_tensor(name, tensor, 4)
    validation.require_operands(q, k, v)
    if k.shape[0] != q.shape[0] or v.shape[0] != q.shape[0]:
        raise ValueError(f"q, k and v must have one batch size, got {q.shape[0]}, {k.shape[0]} and {v.shape[0]}")
    if k.shape[1] != v.shape[1]:
        raise ValueError(f"k and v must have one length, got {k.shape[1]} and {v.shape[1]}")
    operands.require_device(q)
    validation.require_dropout_free(dropout_p)
    validation.require_per_head("alibi_slopes", alibi_slopes, q, q.shape[0])
    validation.require_per_head("s_aux", s_aux, q, None)
    validation.require_no_gradient("alibi_slopes have no gradient", alibi_slopes)
    left, right = window = validation.window_of(window_size, causal)
    scale = validation.softmax_scale_or_default(softmax_scale, q.shape[-1])
    softcap = validation.softcap_or_error(softcap)
    chosen = deferral.choose(q, k, window, softcap, alibi_slopes, deterministic, return_attn_probs, s_aux)
    if chosen == deferral.TORCH:
        return deferral.attend(q, k, v, scale, causal=right == 0)
    out, lse = operators.fwd(
        operands.rows_dense(q),
        operands.rows_dense(k),
        operands.rows_dense(v),
        operands.per_head_floats(alibi_slopes),
        operands.per_head_floats(s_aux),
        scale,
        left,
        right,
        softcap,
    )
    return (out, lse, None) if return_attn_probs else out


def flash_attn_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    s_aux: Optional[torch.Tensor] = None,
) -> Attended:
    """Attend with keys and values in one tensor, kv: (batch, k_len, 2, k_heads, head_dim). See `flash_attn_func`."""
    validation.require_packed("kv", kv, 2)
    k, v = kv.unbind(2)
    return flash_attn_func(
        q,
        k,
        v,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
        s_aux,
    )


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    s_aux: Optional[torch.Tensor] = None,
) -> Attended:
    """Attend with all operands in one tensor, qkv: (batch, length, 3, heads, head_dim). See `flash_attn_func`."""
    validation.require_packed("qkv", qkv, 3)
    q, k, v = qkv.unbind(2)
    return flash_attn_func(
        q,
        k,
        v,
        dropout_p,
        softmax_scale,
        causal,
        window_size,
        softcap,
        alibi_slopes,
        deterministic,
        return_attn_probs,
        s_aux,
    )


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Optional[torch.Tensor] = None,
    s_aux: Optional[torch.Tensor] = None,
) -> Attended:
    """Attend over sequences of different lengths that lie one after the other.

    Args:
        q: (rows, q_heads, head_dim).
        k: (rows, k_heads, head_dim); with `block_table` a cache (pages, page_size, k_heads, head_dim), any page size.
        v: like k.
        cu_seqlens_q: (sequences + 1,), int32, from 0: sequence i is rows cu_seqlens_q[i] to cu_seqlens_q[i + 1].
        cu_seqlens_k: the same for k; with `block_table` only the differences count.
        max_seqlen_q: at least the longest sequence's length; max_seqlen_k likewise.
        block_table: (sequences, pages of a sequence), int32.
        alibi_slopes: (q_heads,) or (sequences, q_heads).

    The other arguments are those of `flash_attn_func`; so are the errors. Lengths and pages are checked where reading
    them costs nothing: on CPUs, outside of compilation.

    Returns:
        The output, (rows, q_heads, head_dim); with `return_attn_probs` the tuple (output, lse, None), lse
        (q_heads, rows). Rows of q after the last sequence are 0.
    """
    del deterministic
    validation.require_tensor("q", q, 3)
    for name, tensor in (("k", k), ("v", v)):
        validation.require_tensor(name, tensor, 3 if block_table is None else 4)
    validation.require_operands(q, k, v)
    if k.shape != v.shape:
        raise ValueError(f"k and v must have one shape, got {tuple(k.shape)} and {tuple(v.shape)}")
    operands.require_device(q)
    validation.require_dropout_free(dropout_p)
    validation.require_tensor("cu_seqlens_q", cu_seqlens_q, 1)
    sequences = max(cu_seqlens_q.shape[0] - 1, 0)
    validation.require_offsets("cu_seqlens_q", cu_seqlens_q, sequences, q.shape[0], q.device)
    validation.require_offsets(
        "cu_seqlens_k", cu_seqlens_k, sequences, k.shape[0] if block_table is None else None, q.device
    )
    validation.require_per_head("alibi_slopes", alibi_slopes, q, sequences)
    validation.require_per_head("s_aux", s_aux, q, None)
    validation.require_no_gradient("alibi_slopes have no gradient", alibi_slopes)
    cu_seqlens_q, cu_seqlens_k = operands.int32(cu_seqlens_q), operands.int32(cu_seqlens_k)
    k_begins, k_lens = cu_seqlens_k[:-1], cu_seqlens_k.diff()
    if block_table is not None:
        validation.require_no_gradient("keys in pages have no gradient", q, k, v, s_aux)
        validation.require_tensor("block_table", block_table, 2)
        validation.require_integers("block_table", block_table, (sequences, block_table.shape[1]), q.device)
        validation.require_pages(block_table, k_lens, k.shape[1], k.shape[0], "block_table")
        block_table, k_begins = operands.int32(block_table), torch.zeros_like(k_lens)
    if validation.values_are_visible(cu_seqlens_q):
        longest = int(cu_seqlens_q.diff().max()) if sequences else 0
        if int(max_seqlen_q) < longest:
            raise ValueError(f"max_seqlen_q is {int(max_seqlen_q)}, but a sequence of q has {longest} rows")
    left, right = validation.window_of(window_size, causal)
    out, lse = operators.varlen_fwd(
        operands.rows_dense(q),
        operands.rows_dense(k),
        operands.rows_dense(v),
        cu_seqlens_q,
        k_begins,
        k_lens,
        block_table,
        operands.per_head_floats(alibi_slopes),
        operands.per_head_floats(s_aux),
        int(max_seqlen_q),
        int(max_seqlen_k),
        validation.softmax_scale_or_default(softmax_scale, q.shape[-1]),
        left,
        right,
        validation.softcap_or_error(softcap),
    )
    return (out, lse, None) if return_attn_probs else out
