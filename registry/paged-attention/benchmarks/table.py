"""Writes the measured tables into CARD.md from the result files: `python -m registry.paged-attention.benchmarks.table`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import compare

FOLDER = Path(__file__).resolve().parent
CARD = FOLDER.parent / "CARD.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"

OURS = {
    "pages_tokens_heads": "pages, tokens first",
    "contiguous_heads_tokens": "contiguous, heads first",
    "contiguous_tokens_heads": "contiguous, tokens first",
}
OTHERS = {
    "torch_sdpa_gqa": "torch SDPA, enable_gqa",
    "torch_sdpa_grouped": "torch SDPA, heads grouped by hand",
    "torch_products": "torch matmul and softmax",
    "torch_gathered": "gathered pages, torch SDPA grouped",
    "onnxruntime": "onnxruntime GroupQueryAttention",
}

# What this kernel is held to: least ratio to a rival, or to the best of torch over memory without pages, or to reading.
FLOORS = {
    "bfloat16": {"torch_sdpa_gqa": 25.0, "torch_best": 2.0, "read": 0.6},
    "float32": {"torch_sdpa_gqa": 5.0, "torch_best": 1.6, "onnxruntime": 2.0},
}
FLOOR_NAMES = {"torch_best": "the best of torch without pages", "read": "reading", **OTHERS}


def standing(row: dict[str, Any], floor: str) -> float | None:
    """Return what was measured for a floor; None where the rival did not take part."""
    ratios = row["ratios"]
    if floor == "read":
        return float(row["share_of_read"])
    if floor == "torch_best":
        return min(ratios[name] for name in ("torch_sdpa_gqa", "torch_sdpa_grouped", "torch_products"))
    return ratios.get(floor)


def table(result: dict[str, Any]) -> str:
    """Return one result file as Markdown."""
    lines = [
        f"{result['cpu']}, {result['threads']} threads, {result['instruction_set']}, torch {result['torch']}, "
        f"onnxruntime {result['peers']['onnxruntime']}, median of "
        f"{result['rows'][0]['samples'][compare.MINE]['rounds']} rounds; the machine was shared (load average at the end "
        f"{result['load_average'][0]:.1f}). One query of 32 heads over 8 key heads of 128, pages of {result['page_size']} "
        "tokens in random order, heads before tokens. The share is of reading as many bytes in the same rounds.",
        "",
        "| keys | type | rate | share of reading | spread | time of other layouts | times faster than |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        mine = row["samples"][compare.MINE]
        low, high = mine["quartiles_s"]
        ours = ", ".join(f"{row['ratios'][name]:.2f} {text}" for name, text in OURS.items())
        others = ", ".join(
            f"{row['ratios'][name]:.2f} {text}" for name, text in OTHERS.items() if name in row["ratios"]
        )
        lines.append(
            f"| {row['problem'].removeprefix('decode_k')} | {row['element_type']} | {row['rate_per_s'] / 1e9:.1f} GB/s | "
            f"{row['share_of_read']:.0%} | {(high - low) / mine['median_s']:.0%} | {ours} | {others} |"
        )
    lines += ["", "| keys | type | floor | measured | |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        for floor, least in FLOORS[row["element_type"]].items():
            measured = standing(row, floor)
            if measured is not None:
                verdict = "met" if measured >= least else "missed"
                lines.append(
                    f"| {row['problem'].removeprefix('decode_k')} | {row['element_type']} | {least:g} x "
                    f"{FLOOR_NAMES[floor]} | {measured:.2f} | {verdict} |"
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
