"""Compares the native CPU build with torch, checked before it is timed, and writes results/<cpu>.json.

    python -m registry.flash-attn.benchmarks.compare BUILD [--quick] [--only NAME]

BUILD is a package folder (a variant of `kernel-hub build`). Torch's fastest formulation of each problem runs beside the
kernel in the same rounds; operands are laid out as each prefers. Whatever fails its correctness check is not timed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from registry._harness import dev_build, reference, roofline, shapes, timing

from . import peers

Run = Callable[[], torch.Tensor]
Contestants = dict[str, Run]
Problem = tuple[str, str, Callable[[], Contestants], float, str]

RESULTS = Path(__file__).parent / "results"
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def draw(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def operands(shape: shapes.Shape, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        draw(1, shape.q_len, shape.q_heads, shape.head_dim, dtype=dtype, seed=0),
        draw(1, shape.k_len, shape.k_heads, shape.head_dim, dtype=dtype, seed=1),
        draw(1, shape.k_len, shape.k_heads, shape.head_dim, dtype=dtype, seed=2),
    )


def heads_first(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.transpose(1, 2).contiguous() for tensor in tensors]


def require_right(ours: torch.Tensor, theirs: torch.Tensor, name: str) -> None:
    """Both against each other: benchmarks run on shapes where a float64 reference would take minutes."""
    error = float((ours.float() - theirs.float()).abs().max())
    limit = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[ours.dtype]
    if error > limit * max(1.0, float(theirs.float().abs().max())):
        raise SystemExit(f"{name}: results differ by {error}; nothing is reported")


def prefill(module: Any, shape: shapes.Shape, dtype: torch.dtype) -> Contestants:
    q, k, v = operands(shape, dtype)
    qt, kt, vt = heads_first(q, k, v)
    if shape.window or shape.softcap or shape.alibi:
        slopes = shapes.alibi_slopes(shape.q_heads) if shape.alibi else None
        options = {
            "causal": True,
            "window_size": (shape.window - 1, 0),
            "softcap": shape.softcap,
            "alibi_slopes": slopes,
        }
        contestants: dict[str, Run | None] = {
            "flash_attn": lambda: module.flash_attn_func(q, k, v, **options),
            "torch_flex": peers.flex_attention(shape, qt, kt, vt),
        }
        if shape.window:
            mask = reference.visible_keys(shape.q_len, shape.k_len, True, (shape.window - 1, 0))
            contestants["torch_sdpa_mask"] = lambda: F.scaled_dot_product_attention(qt, kt, vt, attn_mask=mask)
    else:
        contestants = {
            "flash_attn": lambda: module.flash_attn_func(q, k, v, causal=shape.causal),
            "torch_sdpa": lambda: F.scaled_dot_product_attention(qt, kt, vt, is_causal=shape.causal),
            "onnxruntime": peers.onnxruntime_attention(q, k, v, shape.causal),
            "openvino": peers.openvino_attention(q, k, v, shape.causal),
        }
    return {name: run for name, run in contestants.items() if run is not None}


def decode(module: Any, shape: shapes.Shape, dtype: torch.dtype) -> Contestants:
    q, k, v = operands(shape, dtype)
    qt, kt, vt = heads_first(q, k, v)
    kb, vb = kt.transpose(1, 2), vt.transpose(1, 2)
    grouped = q.view(1, shape.k_heads, shape.q_heads // shape.k_heads, shape.head_dim)

    def products() -> torch.Tensor:
        scores = grouped @ kt.transpose(-1, -2) * shape.head_dim**-0.5
        return torch.softmax(scores.float(), -1).to(dtype) @ vt

    return {
        "flash_attn": lambda: module.flash_attn_func(q, k, v),
        "flash_attn_heads_first": lambda: module.flash_attn_func(q, kb, vb),
        "torch_sdpa_gqa": lambda: F.scaled_dot_product_attention(qt, kt, vt, enable_gqa=True),
        "torch_sdpa_grouped": lambda: F.scaled_dot_product_attention(grouped, kt, vt),
        "torch_products": products,
    }


def varlen(module: Any, dtype: torch.dtype) -> Contestants:
    lens = shapes.VARLEN_LENGTHS
    starts = torch.tensor([0, *lens]).cumsum(0).to(torch.int32)
    q, k, v = (draw(sum(lens), 16, 128, dtype=dtype, seed=seed) for seed in range(3))
    at = starts.tolist()

    def loop() -> torch.Tensor:
        parts = []
        for begin, end in zip(at, at[1:]):
            qt, kt, vt = (tensor[None, begin:end].transpose(1, 2) for tensor in (q, k, v))
            parts.append(F.scaled_dot_product_attention(qt, kt, vt, is_causal=True).transpose(1, 2)[0])
        return torch.cat(parts)

    return {
        "flash_attn": lambda: module.flash_attn_varlen_func(q, k, v, starts, starts, max(lens), max(lens), causal=True),
        "torch_loop": loop,
        "torch_padded": peers.padded_attention(q, k, v, at),
    }


def backward(module: Any, shape: shapes.Shape, dtype: torch.dtype) -> Contestants:
    q, k, v = (tensor.requires_grad_() for tensor in operands(shape, dtype))
    qt, kt, vt = (tensor.detach().requires_grad_() for tensor in heads_first(q, k, v))
    ours = module.flash_attn_func(q, k, v, causal=shape.causal)
    theirs = F.scaled_dot_product_attention(qt, kt, vt, is_causal=shape.causal)
    grad = draw(*ours.shape, dtype=dtype, seed=3)
    grad_t = grad.transpose(1, 2).contiguous()
    return {
        "flash_attn": lambda: torch.autograd.grad(ours, (q, k, v), grad, retain_graph=True)[1],
        "torch_sdpa": lambda: torch.autograd.grad(theirs, (qt, kt, vt), grad_t, retain_graph=True)[1].transpose(1, 2),
    }


def problems(module: Any) -> list[Problem]:
    """Return (name, element type, contestants, work, unit of the rate)."""
    found: list[Problem] = []
    for kind in ("bfloat16", "float32"):
        dtype = TYPES[kind]
        for shape in shapes.PREFILL:
            found.append(
                (shape.name, kind, lambda s=shape, d=dtype: prefill(module, s, d), shape.forward_flops(), "flop")
            )
        for shape in shapes.DECODE:
            size = shape.cache_bytes(dtype.itemsize)
            found.append((shape.name, kind, lambda s=shape, d=dtype: decode(module, s, d), size, "byte"))
        for shape in shapes.BACKWARD:
            work = 2.5 * shape.forward_flops()
            found.append((shape.name, kind, lambda s=shape, d=dtype: backward(module, s, d), work, "flop"))
    for shape in (*shapes.WINDOW, *shapes.SCORES):
        work = shape.forward_flops()
        found.append((shape.name, "bfloat16", lambda s=shape: prefill(module, s, torch.bfloat16), work, "flop"))
    for shape in (shapes.PREFILL[0], shapes.PREFILL[5]):
        work = shape.forward_flops()
        found.append((shape.name, "float16", lambda s=shape: prefill(module, s, torch.float16), work, "flop"))
    flops = sum(2.0 * 16 * 128 * length * length for length in shapes.VARLEN_LENGTHS)
    found.append(("varlen_8", "bfloat16", lambda: varlen(module, torch.bfloat16), flops, "flop"))
    return found


def cpu_name() -> str:
    fields = dict(
        re.findall(r"^(vendor_id|model name|cpu family|model)\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    )
    return f"{fields['model name']} (family {fields['cpu family']}, model {fields['model']})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("--quick", action="store_true", help="few rounds, little patience")
    parser.add_argument("--processor-time", action="store_true", help="one thread, processor time: for a busy machine")
    parser.add_argument("--only", default="", help="problems whose name contains this")
    parser.add_argument("--budget-s", type=float, default=480.0, help="what the whole run may take, about")
    parser.add_argument("--output", type=Path, default=None)
    given = parser.parse_args()
    module = dev_build.load_package(given.build.resolve())
    deadline = time.monotonic() + given.budget_s
    limits: dict[str, Any] = {"rounds": 3 if given.quick else 5}
    if given.processor_time:
        torch.set_num_threads(1)
        limits |= {"clock": time.process_time, "limit": math.inf}
    else:
        timing.wait_until_idle(patience_s=given.budget_s / 20)
    installed = peers.versions()
    print(", ".join(f"{name}: {version}" for name, version in installed.items()), flush=True)
    peak = roofline.measure(repeats=3 if given.quick else 8)
    rows = []
    chosen = [problem for problem in problems(module) if given.only in problem[0]]
    for left, (name, kind, contestants_of, work, unit) in zip(range(len(chosen), 0, -1), chosen):
        contestants = contestants_of()
        ours = contestants["flash_attn"]()
        for rival, run in contestants.items():
            require_right(
                ours, run().reshape(ours.shape) if "decode" in name else _like(run(), ours), f"{name} {rival}"
            )
        read = None
        if unit == "byte":
            read = roofline.measure(int(work), repeats=3).read_bytes_per_s
        patience_s = max(1.0, (deadline - time.monotonic()) / left - 2.0)
        samples = timing.compare(contestants, patience_s=patience_s, **limits)
        mine = samples["flash_attn"]
        ceiling = read or (peak.bfloat16_flops if kind == "bfloat16" and peak.bfloat16_flops else peak.float32_flops)
        rows.append({
            "problem": name,
            "element_type": kind,
            "unit": unit,
            "rate_per_s": work / mine.median_s,
            "best_rate_per_s": work / mine.best_s,
            "ceiling_per_s": ceiling,
            "share_of_ceiling": work / mine.median_s / ceiling,
            "ratios": {rival: sample.median_s / mine.median_s for rival, sample in samples.items() if rival != "flash_attn"},
            "samples": {rival: sample.as_json() for rival, sample in samples.items()},
        })  # fmt: skip
        ratios = ", ".join(f"{value:.2f}x {rival}" for rival, value in rows[-1]["ratios"].items())
        print(
            f"{name:28} {kind:9} {work / mine.median_s / 1e9:7.1f} G{unit}/s {rows[-1]['share_of_ceiling']:5.0%}  {ratios}"
            f"  ({mine.discarded_rounds} disturbed)",
            flush=True,
        )
    cpu = cpu_name()
    result = {
        "cpu": cpu,
        "threads": torch.get_num_threads(),
        "clock": "processor time" if given.processor_time else "wall time",
        "instruction_set": module_capability(module),
        "torch": torch.__version__,
        "peers": installed,
        "peak_float32_flops": peak.float32_flops,
        "peak_bfloat16_flops": peak.bfloat16_flops,
        "read_bytes_per_s": peak.read_bytes_per_s,
        "read_working_set_bytes": peak.read_working_set_bytes,
        "load_average": os.getloadavg(),
        "rows": rows,
    }
    output = given.output or RESULTS / (re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-") + ".json")
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps(result, indent=2) + "\n")


def _like(result: torch.Tensor, ours: torch.Tensor) -> torch.Tensor:
    return result if result.shape == ours.shape else result.transpose(1, 2)


def module_capability(module: Any) -> str:
    return sys.modules[f"{module.__name__}._ops"].ops.cpu_capability("")


if __name__ == "__main__":
    main()
