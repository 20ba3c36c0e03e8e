"""The operators on Triton, registered where no native library is.

With TRITON_INTERPRET=1 they run on CPU tensors too, slowly: that is for tests.
"""

from typing import Optional

import torch
import triton

from . import triton_attend, triton_caches
from ._ops import add_op_namespace_prefix

INTERPRETED = not isinstance(triton_attend.attend_kernel, triton.JITFunction)

DEVICE_TYPES = ("cpu", "cuda", "xpu") if INTERPRETED else ("cuda", "xpu")


@torch.library.custom_op(
    add_op_namespace_prefix("paged_fwd"),
    mutates_args=("out", "lse"),
    schema="(Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor cu_seqlens_q, Tensor k_begins, "
    "Tensor k_lens, Tensor? alibi_slopes, Tensor? s_aux, int max_seqlen_q, float softmax_scale, int window_left, "
    "int window_right, float softcap, int num_splits, Tensor(a!) out, Tensor(b!) lse) -> ()",
)
def paged_fwd(
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
    triton_attend.launch(
        q,
        k_cache,
        v_cache,
        block_table,
        cu_seqlens_q,
        k_begins,
        k_lens,
        alibi_slopes,
        s_aux,
        max_seqlen_q,
        softmax_scale,
        window_left,
        window_right,
        softcap,
        num_splits,
        out,
        lse,
    )


@torch.library.custom_op(
    add_op_namespace_prefix("reshape_and_cache"),
    mutates_args=("k_cache", "v_cache"),
    schema="(Tensor key, Tensor value, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor slot_mapping) -> ()",
)
def reshape_and_cache(
    key: torch.Tensor, value: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slot_mapping: torch.Tensor
) -> None:
    triton_caches.write(key, value, k_cache, v_cache, slot_mapping)


@torch.library.custom_op(
    add_op_namespace_prefix("copy_blocks"),
    mutates_args=("cache",),
    schema="(Tensor(a!) cache, Tensor block_pairs) -> ()",
)
def copy_blocks(cache: torch.Tensor, block_pairs: torch.Tensor) -> None:
    triton_caches.copy(cache, block_pairs)


@torch.library.custom_op(
    add_op_namespace_prefix("merge_state"),
    mutates_args=("out", "lse"),
    schema="(Tensor first, Tensor first_lse, Tensor second, Tensor second_lse, Tensor(a!) out, Tensor(b!) lse) -> ()",
)
def merge_state(
    first: torch.Tensor,
    first_lse: torch.Tensor,
    second: torch.Tensor,
    second_lse: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> None:
    triton_caches.merge(first, first_lse, second, second_lse, out, lse)
