"""Writes the measured tables into CARD.md from the result files: `python -m registry.flash-attn.benchmarks.table`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
CARD = FOLDER.parent / "CARD.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

NAMES = {
    "torch_sdpa": "torch SDPA",
    "torch_sdpa_mask": "torch SDPA with a mask",
    "torch_sdpa_gqa": "torch SDPA, enable_gqa",
    "torch_sdpa_grouped": "torch SDPA, heads grouped by hand",
    "torch_products": "torch matmul and softmax",
    "torch_loop": "torch SDPA in a loop",
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


def card_with_tables(card: str) -> str:
    """Return the card with everything between the markers made anew."""
    before, _, rest = card.partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = [table(json.loads(path.read_text())) for path in sorted((FOLDER / "results").glob("*.json"))]
    return before + BEGIN + "\n".join(tables) + END + after


if __name__ == "__main__":
    CARD.write_text(card_with_tables(CARD.read_text()))
