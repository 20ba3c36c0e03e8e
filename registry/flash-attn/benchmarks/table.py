"""Writes the measured tables into CARD.md from the result files: `python -m registry.flash-attn.benchmarks.table`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import floors

FOLDER = Path(__file__).resolve().parent
CARD = FOLDER.parent / "CARD.md"
MEASURED, HELD, COMPILED = "measured", "floors", "compiled"
PROFILE = "-profile"

NAMES = {
    "torch_sdpa": "torch SDPA",
    "torch_sdpa_mask": "torch SDPA with a mask",
    "torch_sdpa_gqa": "torch SDPA, enable_gqa",
    "torch_sdpa_grouped": "torch SDPA, heads grouped by hand",
    "torch_products": "torch matmul and softmax",
    "torch_loop": "torch SDPA in a loop",
    "torch_padded": "torch SDPA, padded",
    "torch_flex": "torch FlexAttention, compiled",
    "onnxruntime": "onnxruntime MultiHeadAttention",
    "openvino": "OpenVINO ScaledDotProductAttention",
    "flash_attn_heads_first": "this kernel, cache with heads first",
}


def table(result: dict[str, Any]) -> str:
    """Return one result file as Markdown."""
    peak = result["peak_bfloat16_flops"]
    lines = [
        f"{result['cpu']}, {result['threads']} threads, {result['instruction_set']}, torch {result['torch']}, "
        f"{result['clock']}, median of {result['rows'][0]['samples']['flash_attn']['rounds']} rounds; the machine was "
        f"shared; rounds that others disturbed were repeated as long as patience lasted (load average at the end "
        f"{result['load_average'][0]:.1f}).",
        f"Measured peaks: float32 {result['peak_float32_flops'] / 1e9:.0f} GFLOP/s, bfloat16 "
        f"{peak / 1e9:.0f} GFLOP/s, reading {result['read_bytes_per_s'] / 1e9:.0f} GB/s from "
        f"{result['read_working_set_bytes'] >> 20} MiB. The share is of the peak of the element type (float16 is computed "
        "in float32), or of reading the same number of bytes.",
        *(
            [", ".join(f"{peer}: {version}" for peer, version in result["peers"].items()) + "."]
            if "peers" in result
            else []
        ),
        "",
        "| problem | type | rate | share | spread | times faster than |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        unit = "GB/s" if row["unit"] == "byte" else "GFLOP/s"
        mine = row["samples"]["flash_attn"]
        low, high = mine["quartiles_s"]
        ratios = ", ".join(f"{ratio:.2f} {NAMES[rival]}" for rival, ratio in row["ratios"].items())
        lines.append(
            f"| {row['problem']} | {row['element_type']} | {row['rate_per_s'] / 1e9:.0f} {unit} | "
            f"{row['share_of_ceiling']:.0%} | {(high - low) / mine['median_s']:.0%} | {ratios} |"
        )
    return "\n".join(lines) + "\n"


def compiled_table(document: dict[str, Any]) -> str:
    """Return what the compiler made of the Triton kernels as Markdown, a column for each chip."""
    chips = list(dict.fromkeys(row["chip"] for row in document["rows"]))
    kernels: dict[str, dict[str, str]] = {}
    for row in document["rows"]:
        shared = f"{row['shared_bytes'] / 1024:.0f}"
        spilled = f", {row['spilled']} spilled" if row["spilled"] else ""
        cell = f"{row['registers']}{spilled} / {shared} / {row['matrix_instructions']} {row['matrix_instruction']}"
        kernels.setdefault(row["kernel"], {})[row["chip"]] = cell
    spills = "Some spill." if any(row["spilled"] for row in document["rows"]) else "Nothing spills."
    lines = [
        f"Triton {document['triton']}, bfloat16, causal, compiled without a GPU: registers a thread / KiB of shared memory / "
        f"matrix instructions found. {spills} This says that the kernels fit these chips, not how fast they are there.",
        "",
        f"| kernel | {' | '.join(chips)} |",
        f"|---|{'---|' * len(chips)}",
    ]
    lines += [f"| {kernel} | {' | '.join(cells[chip] for chip in chips)} |" for kernel, cells in kernels.items()]
    return "\n".join(lines) + "\n"


def between(card: str, mark: str, text: str) -> str:
    """Return the card with everything between a pair of marks replaced."""
    begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->\n"
    before, _, rest = card.partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + text + end + after


def card_with_tables(card: str) -> str:
    """Return the card with everything between the marks made anew."""
    measured, held = [], []
    for path in sorted((FOLDER / "results").glob("*.json")):
        if path.stem.endswith(PROFILE):
            continue
        result, profile = json.loads(path.read_text()), path.with_name(f"{path.stem}{PROFILE}.json")
        measured.append(table(result))
        held.append(floors.table(result, json.loads(profile.read_text()) if profile.exists() else None))
    card = between(between(card, MEASURED, "\n".join(measured)), HELD, "\n".join(held))
    return between(card, COMPILED, compiled_table(json.loads((FOLDER / "compiled.json").read_text())))


if __name__ == "__main__":
    CARD.write_text(card_with_tables(CARD.read_text()))
