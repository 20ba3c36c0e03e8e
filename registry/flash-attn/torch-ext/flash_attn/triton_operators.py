"""The operators on Triton, registered where no native library is.

With TRITON_INTERPRET=1 they run on CPU tensors too, slowly: that is for tests.
"""

from typing import Optional, Tuple

import torch
import triton

from . import triton_forward
from ._ops import add_op_namespace_prefix

INTERPRETED = not isinstance(triton_forward.forward_kernel, triton.JITFunction)

DEVICE_TYPES = ("cpu", "cuda", "xpu") if INTERPRETED else ("cuda", "xpu")


@torch.library.custom_op(
    add_op_namespace_prefix("fwd"),
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor? alibi_slopes, Tensor? s_aux, float softmax_scale, int window_left, "
    "int window_right, float softcap) -> (Tensor, Tensor)",
)
def fwd(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    alibi_slopes: Optional[torch.Tensor],
    s_aux: Optional[torch.Tensor],
    softmax_scale: float,
    window_left: int,
    window_right: int,
    softcap: float,
) -> Tuple[torch.Tensor, torch.Tensor]:
    batch, q_len, heads, _ = q.shape
    out = q.new_empty(q.shape)
    lse = q.new_empty((batch, heads, q_len), dtype=torch.float32)
    triton_forward.launch_dense(
        q, k, v, alibi_slopes, s_aux, softmax_scale, window_left, window_right, softcap, out, lse
    )
    return out, lse
