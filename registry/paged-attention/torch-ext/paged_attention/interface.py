"""Attention over a paged key/value cache: decoding and chunked prefill.

Sources: arXiv 2309.06180 for pages, 2205.14135 and 2307.08691 for the algorithm. The log-sum-exp of a row without keys is
-inf, so that partial results can be merged, and with sinks it includes the sink.
"""

from typing import Optional, Tuple, Union

import torch

from . import layouts, operands, operators, validation


def paged_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    softmax_scale: Optional[float] = None,
    causal: bool = True,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Optional[torch.Tensor] = None,
    s_aux: Optional[torch.Tensor] = None,
    cu_seqlens_q: Optional[torch.Tensor] = None,
    max_seqlen_q: Optional[int] = None,
    kv_layout: str = "NHD",
    num_splits: int = 0,
    return_lse: bool = False,
    out: Optional[torch.Tensor] = None,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:
    """Attend to the keys and values that a block table names.

    Args:
        q: (sequences, q_heads, head_dim), one query per sequence (decoding); or with `cu_seqlens_q` (rows, q_heads,
            head_dim), the queries of all sequences one after the other (chunked prefill). float32, bfloat16 or float16.
        k_cache: with `kv_layout` "NHD" (pages, page_size, k_heads, head_dim), with "HND" (pages, k_heads, page_size,
            head_dim); any page size from 1. q_heads is a multiple of k_heads; query head h reads key head
            h // (q_heads // k_heads).
        v_cache: like k_cache.
        block_table: (sequences, pages of a sequence), int32: key j of sequence i lies in page
            block_table[i, j // page_size]. Entries beyond a sequence's length are not looked at.
        seq_lens: (sequences,), int32: keys of each sequence, those of its queries in this call included.
        softmax_scale: defaults to head_dim ** -0.5.
        causal: query i of n sees keys up to i + seq_len - n; the last query sees all of them.
        window_size: (left, right), inclusive: query i of n sees keys from i + seq_len - n - left to
            i + seq_len - n + right; -1 is unlimited.
        softcap: if positive, logits become softcap * tanh(logit / softcap).
        alibi_slopes: (q_heads,) or (sequences, q_heads): adds -slope * |i + seq_len - n - j|.
        s_aux: (q_heads,): the logit of an extra key that has no value (an attention sink).
        cu_seqlens_q: (sequences + 1,), int32, from 0: sequence i is rows cu_seqlens_q[i] to cu_seqlens_q[i + 1] of q.
        max_seqlen_q: at least the most queries of a sequence; looked up if None, which waits for a GPU.
        kv_layout: "NHD" (tokens, then heads) or "HND" (heads, then tokens).
        num_splits: parts that the keys of each sequence are divided into, to occupy a GPU with few queries; 0 chooses. The
            CPU build divides by blocks of keys whatever the number of threads, so it has no effect there. Results never
            vary from run to run.
        return_lse: also return the log-sum-exp.
        out: like q; receives the output.

    Returns:
        The output, of q's shape; a row that sees no key is 0, and so are rows after the last sequence. With `return_lse`
        the tuple (output, lse), lse (rows, q_heads) float32, natural logarithm, -inf for a row that sees no key.

    Raises:
        TypeError, ValueError: operands that do not fit together; lengths and pages outside the cache, where reading them
            costs nothing: on CPUs, outside of compilation.
        UnsupportedFeatureError: a head dimension above 256, a device this build does not serve, or a gradient to record.
    """
    validation.require_tensor("q", q, 3)
    keys, values = layouts.tokens_first(kv_layout, k_cache, v_cache)
    validation.require_operands(q, keys, values)
    operands.require_device(q)
    validation.require_no_gradient("attention over pages has no gradient", q, k_cache, v_cache, s_aux, alibi_slopes)
    validation.require_tensor("block_table", block_table, 2)
    validation.require_tensor("seq_lens", seq_lens, 1)
    sequences = seq_lens.shape[0]
    rows, q_heads, head_dim = q.shape
    validation.require_integers("seq_lens", seq_lens, (sequences,), q.device)
    validation.require_integers("block_table", block_table, (sequences, block_table.shape[1]), q.device)
    if validation.values_are_visible(seq_lens) and sequences and int(seq_lens.min()) < 0:
        raise ValueError(f"seq_lens must not be negative, got {int(seq_lens.min())}")
    validation.require_pages(block_table, seq_lens, keys.shape[1], keys.shape[0], "block_table")
    if cu_seqlens_q is None:
        if rows != sequences:
            raise ValueError(f"without cu_seqlens_q, q must have one row per sequence, got {rows} for {sequences}")
        cu_seqlens_q = torch.arange(rows + 1, dtype=torch.int32, device=q.device)
        longest = 1
    else:
        validation.require_tensor("cu_seqlens_q", cu_seqlens_q, 1)
        validation.require_offsets("cu_seqlens_q", cu_seqlens_q, sequences, rows, q.device)
        longest = _longest(cu_seqlens_q, max_seqlen_q, rows)
    validation.require_per_head("alibi_slopes", alibi_slopes, q, sequences)
    validation.require_per_head("s_aux", s_aux, q, None)
    left, right = validation.window_of(window_size, causal)
    result = layouts.result_or_new(out, q)
    lse = q.new_empty((rows, q_heads), dtype=torch.float32)
    operators.paged_fwd(
        operands.rows_dense(q),
        keys,
        values,
        operands.int32(block_table),
        operands.int32(cu_seqlens_q),
        torch.zeros(sequences, dtype=torch.int32, device=q.device),
        operands.int32(seq_lens),
        operands.per_head_floats(alibi_slopes),
        operands.per_head_floats(s_aux),
        longest,
        validation.softmax_scale_or_default(softmax_scale, head_dim),
        left,
        right,
        validation.softcap_or_error(softcap),
        layouts.splits_or_error(num_splits),
        result,
        lse,
    )
    return (result, lse) if return_lse else result


def _longest(cu_seqlens_q: torch.Tensor, max_seqlen_q: Optional[int], rows: int) -> int:
    visible = validation.values_are_visible(cu_seqlens_q)
    if max_seqlen_q is None:
        if torch.compiler.is_compiling() or cu_seqlens_q.device.type == "meta":
            # An upper bound that needs no value; it only costs idle programs on a GPU.
            return rows
        return int(cu_seqlens_q.diff().max()) if cu_seqlens_q.shape[0] > 1 else 0
    longest = int(max_seqlen_q)
    if visible and cu_seqlens_q.shape[0] > 1 and longest < int(cu_seqlens_q.diff().max()):
        raise ValueError(f"max_seqlen_q is {longest}, but a sequence of q has {int(cu_seqlens_q.diff().max())} rows")
    return longest
