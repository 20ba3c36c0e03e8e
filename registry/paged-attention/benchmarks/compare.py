"""Compares decoding over pages with torch and onnxruntime, checked before it is timed, and writes results/<cpu>.json.

    python -m registry.paged-attention.benchmarks.compare BUILD [--quick] [--only NAME] [--budget-s SECONDS]

BUILD is a package folder (a variant of `kernel-hub build`). Contestants take turns within a round, and a ratio is that of
medians of one run. Reading as many bytes as the cache holds is measured beside them, in the same rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch

from registry._harness import dev_build, roofline, shapes, timing

from . import peers

RESULTS = Path(__file__).parent / "results"
TYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
LENGTHS = (4096, 8192, 16384, 32768)
PAGE_SIZE = 16
MINE = "pages_heads_tokens"
LIMITS = {torch.float32: 2e-5, torch.bfloat16: 3e-2}


def draw(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def contestants_of(module: Any, shape: shapes.Shape, dtype: torch.dtype) -> dict[str, peers.Run]:
    """Return everyone's way to compute (1, q_heads, head_dim): this kernel's over pages in random order, and others'."""
    q = draw(1, shape.q_heads, shape.head_dim, dtype=dtype, seed=0)
    k, v = (draw(1, shape.k_heads, shape.k_len, shape.head_dim, dtype=dtype, seed=seed) for seed in (1, 2))
    count = shape.k_len // PAGE_SIZE
    table = torch.randperm(count, generator=torch.Generator().manual_seed(3)).to(torch.int32)[None]
    lens = torch.tensor([shape.k_len], dtype=torch.int32)
    heads_tokens, tokens_heads = [], []
    for cache in (k, v):
        pages = cache[0].view(shape.k_heads, count, PAGE_SIZE, shape.head_dim).transpose(0, 1)
        scattered = torch.empty(pages.shape, dtype=dtype)
        scattered[table[0].long()] = pages
        heads_tokens.append(scattered)
        tokens_heads.append(scattered.transpose(1, 2).contiguous())
    whole = [cache.transpose(1, 2).contiguous() for cache in (k, v)]
    contestants: dict[str, peers.Run | None] = {
        MINE: lambda: module.paged_attention(q, *heads_tokens, table, lens, kv_layout="HND"),
        "pages_tokens_heads": lambda: module.paged_attention(q, *tokens_heads, table, lens),
        "contiguous_heads_tokens": lambda: module.flash_attn_with_kvcache(
            q[:, None], k.transpose(1, 2), v.transpose(1, 2)
        )[:, 0],
        "contiguous_tokens_heads": lambda: module.flash_attn_with_kvcache(q[:, None], *whole)[:, 0],
        **peers.torch_formulations(q, k, v),
        "torch_gathered": peers.gathered(q, *heads_tokens, table),
        "onnxruntime": peers.onnxruntime_attention(q, k, v),
    }
    return {name: run for name, run in contestants.items() if run is not None}


def require_right(contestants: dict[str, peers.Run], what: str) -> None:
    """Stop unless all agree: at these lengths a float64 reference would take as long as the comparison."""
    ours = contestants[MINE]().float()
    for name, run in contestants.items():
        error = float((run().float() - ours).abs().max())
        if not error <= LIMITS[contestants[MINE]().dtype] * max(1.0, float(ours.abs().max())):
            raise SystemExit(f"{what} {name}: results differ by {error}; nothing is reported")


def cpu_name() -> str:
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M))
    return f"{fields['model name']} (family {fields['cpu family']}, model {fields['model']})"


def row_of(module: Any, shape: shapes.Shape, kind: str, rounds: int, patience_s: float) -> dict[str, Any]:
    contestants = contestants_of(module, shape, TYPES[kind])
    require_right(contestants, f"{shape.name} {kind}")
    work = shape.cache_bytes(TYPES[kind].itemsize)
    memory = torch.ones(work // 4)
    rates: list[float] = []

    def read() -> None:
        rates.append(roofline.read_rate(memory))

    samples = timing.compare({**contestants, "read": read}, rounds=rounds, round_s=0.15, patience_s=patience_s)
    mine = samples[MINE]
    rates.sort()
    ceiling = rates[len(rates) // 2]
    others = [name for name in contestants if name != MINE]
    return {
        "problem": shape.name,
        "element_type": kind,
        "unit": "byte",
        "bytes": work,
        "rate_per_s": work / mine.median_s,
        "best_rate_per_s": work / mine.best_s,
        "read_per_s": ceiling,
        "share_of_read": work / mine.median_s / ceiling,
        "ratios": {name: samples[name].median_s / mine.median_s for name in others},
        "samples": {name: samples[name].as_json() for name in contestants},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--only", default="", help="problems whose name contains this")
    parser.add_argument("--budget-s", type=float, default=240.0, help="what the whole run may take, about")
    parser.add_argument("--output", type=Path, default=None)
    given = parser.parse_args()
    module = dev_build.load_package(given.build.resolve())
    deadline = time.monotonic() + given.budget_s
    chosen = [
        (shapes.Shape(f"decode_k{length}", "Llama-3-8B: 32 query heads over 8 key heads of 128", 1, length, 32, 8, 128), kind)
        for kind in TYPES
        for length in LENGTHS
    ]  # fmt: skip
    chosen = [(shape, kind) for shape, kind in chosen if given.only in f"{shape.name}_{kind}"]
    rows = []
    for left, (shape, kind) in zip(range(len(chosen), 0, -1), chosen):
        patience_s = max(1.0, (deadline - time.monotonic()) / left - 4.0)
        row = row_of(module, shape, kind, 3 if given.quick else 5, patience_s)
        rows.append(row)
        ratios = ", ".join(f"{value:.2f}x {rival}" for rival, value in row["ratios"].items())
        print(
            f"{shape.name:14} {kind:9} {row['rate_per_s'] / 1e9:5.1f} GB/s, {row['share_of_read']:4.0%} of "
            f"{row['read_per_s'] / 1e9:.1f}  {ratios}  ({row['samples'][MINE]['discarded_rounds']} disturbed)",
            flush=True,
        )
    cpu = cpu_name()
    result = {
        "cpu": cpu,
        "threads": torch.get_num_threads(),
        "instruction_set": sys.modules[f"{module.__name__}._ops"].ops.cpu_capability(""),
        "torch": torch.__version__,
        "peers": peers.versions(),
        "page_size": PAGE_SIZE,
        "load_average": os.getloadavg(),
        "rows": rows,
    }
    output = given.output or RESULTS / (re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-") + ".json")
    output.parent.mkdir(exist_ok=True)
    output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
