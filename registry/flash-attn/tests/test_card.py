"""The card's numbers are those of the committed result files."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def test_the_tables_of_the_card_are_generated() -> None:
    spec = importlib.util.spec_from_file_location("flash_attn_table", BENCHMARKS / "table.py")
    assert spec is not None and spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    card = table.CARD.read_text()
    assert table.BEGIN in card and table.END in card
    assert table.card_with_tables(card) == card


def test_results_name_their_machine_and_what_was_compared() -> None:
    results = [json.loads(path.read_text()) for path in (BENCHMARKS / "results").glob("*.json")]
    assert results
    for result in results:
        assert result["cpu"] and result["torch"] and result["threads"] >= 1
        assert all(row["ratios"] and row["samples"]["flash_attn"]["rounds"] >= 3 for row in result["rows"])
