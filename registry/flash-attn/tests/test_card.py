"""The card's numbers are those of the committed result files."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

table, floors = (importlib.import_module(f"registry.flash-attn.benchmarks.{name}") for name in ("table", "floors"))

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def test_the_tables_of_the_card_are_generated() -> None:
    card = table.CARD.read_text()
    for mark in (table.MEASURED, table.HELD, table.COMPILED):
        assert f"<!-- {mark}: begin -->\n" in card and f"<!-- {mark}: end -->\n" in card
    assert table.card_with_tables(card) == card


def result_of(measured: float, share: float) -> dict[str, Any]:
    row = {"problem": "varlen_8", "element_type": "bfloat16", "share_of_ceiling": share}
    return {"rows": [row | {"ratios": {"torch_loop": measured, "torch_padded": 9.0}}]}


@pytest.mark.parametrize(
    ("measured", "share", "verdict"), [(4.1, 0.9, "met"), (3.9, 0.6, "missed"), (3.0, 0.9, "beyond the limit")]
)
def test_a_floor_is_met_or_missed_or_beyond_what_the_peak_allows(measured: float, share: float, verdict: str) -> None:
    (standing,) = floors.standings(result_of(measured, share))
    assert standing.limit == pytest.approx(measured / share)
    assert f"| {verdict} |" in floors.table(result_of(measured, share), None)


def test_missed_floors_come_with_the_shares_of_their_time() -> None:
    shares = dict.fromkeys(floors.PARTS, 0.1) | {"score_products": 0.5}
    rows = [{"problem": name, "element_type": "bfloat16", "shares": shares} for name in ("varlen_8", "window512_s4096")]
    text = floors.table(result_of(3.9, 0.6), {"rows": rows})
    assert "| varlen_8 | bfloat16 | 50% | 10% | 10% | 10% | 10% | 10% |" in text
    assert "window512" not in text
    assert "50%" not in floors.table(result_of(4.1, 0.6), {"rows": rows})


def test_the_parts_of_a_profile_are_the_whole_time() -> None:
    for path in (BENCHMARKS / "results").glob(f"*{table.PROFILE}.json"):
        rows = json.loads(path.read_text())["rows"]
        assert rows
        for row in rows:
            assert set(row["shares"]) == set(floors.PARTS)
            assert sum(row["shares"].values()) == pytest.approx(1.0)
            assert all(share > -0.01 for share in row["shares"].values())


def test_results_name_their_machine_and_what_was_compared() -> None:
    results = [json.loads(path.read_text()) for path in (BENCHMARKS / "results").glob("*.json")]
    results = [result for result in results if "peak_float32_flops" in result]
    assert results
    for result in results:
        assert result["cpu"] and result["torch"] and result["threads"] >= 1
        assert all(row["ratios"] and row["samples"]["flash_attn"]["rounds"] >= 3 for row in result["rows"])
