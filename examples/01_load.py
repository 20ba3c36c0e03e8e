"""The main job: build a kernel, publish it, load it by name and version, compare it with PyTorch. `kernel-hub demo` runs it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernel_hub import explain, get_kernel
from kernel_hub.build.pipeline import build
from kernel_hub.build.publish import publish
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry


def run(kernel: Path, workspace: Path, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """Do it all below `workspace` and tell of each stage; what happened, as lines and as values."""
    tell(f"building {kernel}; this takes a minute or two")
    built = build(kernel, output=workspace / "build").output
    publish(built, DirectoryRegistry.create(workspace / "registry"), RepoId("local", "flash-attn"), allow_dirty=True)
    # From here on, local/... is looked up in that folder and nowhere else.
    registry = (workspace / "registry").as_uri()
    os.environ |= {"KERNEL_HUB_REGISTRIES": f"local={registry}", "KERNEL_HUB_HOME": str(workspace / "home")}
    tell("loading local/flash-attn by name and version, and comparing it with torch")
    plan, flash_attn = explain("local/flash-attn", version=1), get_kernel("local/flash-attn", version=1)
    results = [compare(flash_attn, dtype, causal) for dtype in ("float32", "bfloat16") for causal in (False, True)]
    lines = [str(plan), "largest error against float64, ours and torch's own:"]
    lines += ["  {dtype:<8} causal={causal!s:<5}  {ours:.3e}  {torch:.3e}".format(**result) for result in results]
    within = all(result["ours"] <= 2 * result["torch"] for result in results)
    judged = "as accurate as torch: largest error at most 2x torch's own" if within else "LESS ACCURATE THAN TORCH"
    lines.append(f"{flash_attn.__kernel_hub__}: {judged}")
    return {"plan": plan.to_json(), "results": results, "within_bounds": within, "lines": lines}


def compare(flash_attn: Any, dtype: str, causal: bool) -> dict[str, Any]:
    """Attention of 8 query heads over 2 key heads: our error and that of torch, both against torch in float64."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (torch.randn(2, 300, heads, 64).to(device, getattr(torch, dtype)) for heads in (8, 2, 2))

    def attend(*tensors: torch.Tensor) -> torch.Tensor:
        moved = (tensor.transpose(1, 2) for tensor in tensors)
        return torch.nn.functional.scaled_dot_product_attention(*moved, is_causal=causal, enable_gqa=True)

    exact = attend(q.double(), k.double(), v.double())
    outputs = {"ours": flash_attn.flash_attn_func(q, k, v, causal=causal).transpose(1, 2), "torch": attend(q, k, v)}
    errors = {name: (output.double() - exact).abs().max().item() for name, output in outputs.items()}
    return {"dtype": dtype, "causal": causal, **errors}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        answer = run(Path(__file__).parents[1] / "registry" / "flash-attn", Path(folder))
    print(*answer["lines"], sep="\n")
    sys.exit(not answer["within_bounds"])
