"""Attention written out plainly: in float64 as the truth, in the operands' own precision as the yardstick."""

from __future__ import annotations

import torch


def visible_keys(q_len: int, k_len: int, causal: bool, window: tuple[int, int]) -> torch.Tensor:
    """Return (q_len, k_len), true where the query sees the key (bottom-right aligned, window inclusive)."""
    diagonal = torch.arange(q_len)[:, None] + (k_len - q_len)
    key = torch.arange(k_len)[None, :]
    visible = torch.ones(q_len, k_len, dtype=torch.bool)
    left, right = window
    if causal:
        right = 0
    if left >= 0:
        visible &= key >= diagonal - left
    if right >= 0:
        visible &= key <= diagonal + right
    return visible


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    s_aux: torch.Tensor | None = None,
    dtype: torch.dtype | None = torch.float64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (output (B, Sq, H, D), log-sum-exp (B, H, Sq)), every step computed in `dtype` (None: that of q).

    A row that sees no key is 0 with log-sum-exp -inf. Differentiable.
    """
    dtype = q.dtype if dtype is None else dtype
    q, k, v = (tensor.to(dtype).transpose(1, 2) for tensor in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    q_len, k_len = q.shape[2], k.shape[2]
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    # Low precision scales the smaller operand first, as a plain implementation would to avoid overflow.
    scores = q @ (k * scale).transpose(-1, -2)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    if alibi_slopes is not None:
        slopes = alibi_slopes.to(dtype).expand(q.shape[0], -1) if alibi_slopes.dim() == 1 else alibi_slopes.to(dtype)
        distance = (torch.arange(q_len)[:, None] + (k_len - q_len) - torch.arange(k_len)[None, :]).abs().to(dtype)
        scores = scores - slopes[:, :, None, None] * distance
    visible = visible_keys(q_len, k_len, causal, window_size)
    scores = scores.masked_fill(~visible, float("-inf"))
    if s_aux is not None:
        sink = s_aux.to(dtype)[None, :, None, None].expand(scores.shape[0], -1, q_len, 1)
        scores = torch.cat([scores, sink], dim=-1)
    empty = ~visible.any(-1)
    lse = torch.logsumexp(scores.to(torch.float32 if dtype != torch.float64 else dtype), dim=-1)
    # Rows without keys get a uniform row first, so that no NaN enters the graph, and are zeroed after.
    probabilities = torch.softmax(scores.masked_fill(empty[:, None], 0.0), dim=-1).masked_fill(empty[:, None], 0.0)
    out = probabilities[..., :k_len].to(v.dtype) @ v
    if s_aux is None:
        lse = lse.masked_fill(empty, float("-inf"))
    return out.transpose(1, 2), lse
