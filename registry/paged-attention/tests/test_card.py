"""The card's numbers are those of the committed result files."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

table, compare = (
    importlib.import_module(f"registry.paged-attention.benchmarks.{name}") for name in ("table", "compare")
)


def test_the_tables_of_the_card_are_generated() -> None:
    card = table.CARD.read_text()
    assert table.BEGIN in card and table.END in card
    assert table.card_with_tables(card) == card


def row_of(share: float) -> dict[str, Any]:
    ratios = dict.fromkeys((*table.OURS, *table.OTHERS), 3.0) | {"torch_sdpa_gqa": 30.0, "torch_products": 1.9}
    sample = {"rounds": 5, "median_s": 1.0, "quartiles_s": [0.9, 1.1]}
    return {
        "problem": "decode_k4096",
        "element_type": "bfloat16",
        "rate_per_s": 1e9,
        "share_of_read": share,
        "ratios": ratios,
        "samples": {compare.MINE: sample},
    }


@pytest.mark.parametrize(("share", "verdict"), [(0.7, "met"), (0.5, "missed")])
def test_floors_are_met_or_missed(share: float, verdict: str) -> None:
    result = {
        "cpu": "a CPU",
        "threads": 2,
        "instruction_set": "avx2",
        "torch": "2",
        "peers": {"onnxruntime": "1"},
        "page_size": 16,
        "load_average": [0.0],
        "rows": [row_of(share)],
    }
    text = table.table(result)
    assert f"| 4096 | bfloat16 | 0.6 x reading | {share:.2f} | {verdict} |" in text
    assert "| 25 x torch SDPA, enable_gqa | 30.00 | met |" in text
    assert "| 2 x the best of torch without pages | 1.90 | missed |" in text


def test_results_name_their_machine_and_what_was_compared() -> None:
    for path in (table.FOLDER / "results").glob("*.json"):
        result = json.loads(path.read_text())
        assert result["cpu"] and result["torch"] and result["threads"] >= 1
        assert all(row["ratios"] and row["samples"][compare.MINE]["rounds"] >= 3 for row in result["rows"])
