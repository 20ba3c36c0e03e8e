"""Problem shapes with the kind of model they come from, so that a benchmark says what it is a benchmark of."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Shape:
    """One problem; lengths are tokens. `window` and `softcap` 0 mean none."""

    name: str
    origin: str
    q_len: int
    k_len: int
    q_heads: int
    k_heads: int
    head_dim: int
    causal: bool = False
    window: int = 0
    softcap: float = 0.0
    alibi: bool = False

    def forward_flops(self) -> float:
        """Return useful floating-point operations: 4 * head_dim for each query and key that it sees (half if causal)."""
        if self.window:
            pairs = sum(min(self.window, i + 1 + self.k_len - self.q_len) for i in range(self.q_len))
        else:
            pairs = self.q_len * self.k_len / (2 if self.causal else 1)
        return 4.0 * self.q_heads * self.head_dim * pairs

    def cache_bytes(self, element_bytes: int) -> int:
        """Return the bytes of keys and values that decoding must read."""
        return 2 * self.k_len * self.k_heads * self.head_dim * element_bytes


def alibi_slopes(heads: int) -> torch.Tensor:
    """Return ALiBi's slopes for a power of two of heads: a geometric sequence from 2 ** (-8 / heads)."""
    return 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1))


PREFILL = [
    Shape(f"prefill_d{d}_s{s}{'_causal' if causal else ''}", origin, s, s, 16, 16, d, causal)
    for d, origin in ((64, "GPT-2 medium and BERT-large: 16 heads of 64"), (128, "1-2B decoder: 16 heads of 128"))
    for s in (1024, 4096)
    for causal in (False, True)
]

WINDOW = [Shape("window512_s4096", "sliding window as in Mistral and Gemma", 4096, 4096, 16, 16, 128, True, 512)]

SCORES = [
    Shape("softcap50_s4096_causal", "soft-capped logits as in Gemma 2", 4096, 4096, 16, 16, 128, True, softcap=50.0),
    Shape("alibi_s4096_causal", "ALiBi as in BLOOM and MPT", 4096, 4096, 16, 16, 128, True, alibi=True),
]

BACKWARD = [Shape("backward_d128_s1024_causal", "training step of a 1-2B decoder", 1024, 1024, 16, 16, 128, True)]

DECODE = [
    Shape(f"decode_k{k}", "Llama-3-8B: 32 query heads over 8 key heads of 128", 1, k, 32, 8, 128)
    for k in (4096, 16384, 32768)
]

# A batch of prompts of different lengths, as a server packs them.
VARLEN_LENGTHS = (37, 129, 256, 301, 512, 700, 911, 1024)
