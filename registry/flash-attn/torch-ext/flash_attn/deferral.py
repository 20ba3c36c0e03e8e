"""Which implementation computes a call: this build's own, or torch's where that is known to be the faster one.

The rule. A CPU with AMX multiplies bfloat16 matrices in tiles, which torch's `scaled_dot_product_attention` uses and the
native build does not. On such a CPU (`amx_tile` and `amx_bf16` among its flags) dense bfloat16 attention of at least
`MIN_QUERIES` queries is left to torch, if torch returns exactly what was asked: no log-sum-exp, window, softcap, ALiBi,
sinks or demand for determinism, and causal only where q and k are equally long. All else is computed here. The first
call that is left to torch says so in a log record; `implementation` tells it of any call, and `use_implementation` overrides the
rule.

The rule rests on what the instructions are, not on a measurement: no machine with AMX was at hand.
"""

import logging
from functools import lru_cache
from pathlib import Path
from typing import FrozenSet, Optional, Tuple

import torch

from . import operators, validation

LOGGER = logging.getLogger(__name__)

NATIVE, TORCH, TRITON, AUTO = "native", "torch", "triton", "auto"

AMX_FLAGS = frozenset({"amx_tile", "amx_bf16"})

# Below this the products of a tile are too few to pay for its set-up, and decoding waits for memory, not for products.
MIN_QUERIES = 128

_in_use = AUTO


@lru_cache(maxsize=None)
def cpu_flags() -> FrozenSet[str]:
    """Return what the operating system says that the CPU can do; nothing where it does not say so."""
    try:
        with Path("/proc/cpuinfo").open(encoding="ascii", errors="replace") as listing:
            for line in listing:
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()


def use_implementation(implementation: str) -> str:
    """Choose who computes dense calls on a CPU from now on, and return what was chosen before.

    Args:
        implementation: "auto" for the rule, "native" for this build always, "torch" for torch wherever it returns
            exactly what is asked.
    """
    global _in_use
    if implementation not in (AUTO, NATIVE, TORCH):
        raise ValueError(f"implementation must be 'auto', 'native' or 'torch', got {implementation!r}")
    before, _in_use = _in_use, implementation
    return before


def torch_answers(
    q: torch.Tensor,
    k: torch.Tensor,
    window: Tuple[int, int],
    softcap: float,
    alibi_slopes: Optional[torch.Tensor],
    deterministic: bool,
    return_attn_probs: bool,
    s_aux: Optional[torch.Tensor],
) -> bool:
    """Tell whether torch's attention returns exactly what is asked; `window` is that of `validation.window_of`."""
    plain = alibi_slopes is None and s_aux is None and softcap == 0 and not deterministic and not return_attn_probs
    unmasked = window == (-1, -1) or (window == (-1, 0) and q.shape[1] == k.shape[1])
    return plain and unmasked and q.numel() > 0 and k.numel() > 0


def torch_is_faster(q: torch.Tensor, flags: FrozenSet[str]) -> bool:
    return flags >= AMX_FLAGS and q.dtype == torch.bfloat16 and q.shape[1] >= MIN_QUERIES


def choose(
    q: torch.Tensor,
    k: torch.Tensor,
    window: Tuple[int, int],
    softcap: float,
    alibi_slopes: Optional[torch.Tensor],
    deterministic: bool,
    return_attn_probs: bool,
    s_aux: Optional[torch.Tensor],
    flags: Optional[FrozenSet[str]] = None,
) -> str:
    """Return who computes a dense call; `flags` stands for those of another CPU."""
    if not operators.NATIVE:
        return TRITON
    if _in_use == NATIVE or q.device.type != "cpu":
        return NATIVE
    if not torch_answers(q, k, window, softcap, alibi_slopes, deterministic, return_attn_probs, s_aux):
        return NATIVE
    faster = _in_use == TORCH or torch_is_faster(q, cpu_flags() if flags is None else flags)
    return TORCH if faster else NATIVE


def implementation(
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
) -> str:
    """Tell who would compute `flash_attn_func` of these arguments: "native", "torch" or "triton"."""
    del v, dropout_p, softmax_scale
    window = validation.window_of(window_size, causal)
    return choose(q, k, window, softcap, alibi_slopes, deterministic, return_attn_probs, s_aux)


@torch.compiler.assume_constant_result
def _say_once() -> bool:
    """Log the first call that is left to torch; while compiling this runs at once and leaves nothing in the graph."""
    if not _said:
        _said.append(True)
        LOGGER.warning(
            "attention is left to torch's scaled_dot_product_attention here; %s.use_implementation changes that",
            __name__,
        )
    return True


_said = []


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float, causal: bool) -> torch.Tensor:
    """Return torch's attention of operands in this kernel's layout, (batch, length, heads, head_dim), contiguous."""
    _say_once()
    moved = (tensor.transpose(1, 2) for tensor in (q, k, v))
    grouped = q.shape[2] != k.shape[2]
    out = torch.nn.functional.scaled_dot_product_attention(
        *moved, is_causal=causal, scale=softmax_scale, enable_gqa=grouped
    )
    return out.transpose(1, 2).contiguous()
