"""Reading result files of benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.build.measured import MAX_BYTES, Measured, Measurement, measured_of, read_results

ROW: dict[str, Any] = {"problem": "p", "element_type": "float32", "unit": "flop", "rate_per_s": 2e9}


def folder(kernel: Path, **files: str) -> Path:
    results = kernel / "benchmarks" / "results"
    results.mkdir(parents=True)
    for name, text in files.items():
        (results / f"{name}.json").write_text(text)
    return results


def test_result_files_are_read_in_order_of_their_names(tmp_path: Path) -> None:
    second = {
        "cpu": "B",
        "threads": 1,
        "instruction_set": "avx2",
        "torch": "2.13.0",
        "rows": [ROW | {"ratios": {"x": 2}}],
    }
    folder(tmp_path, b=json.dumps(second), a=json.dumps({"cpu": "A", "rows": [ROW]}), c="{not json", d="[" * 100_000)
    row = Measurement("p", "float32", "flop", 2e9)
    assert read_results(tmp_path) == (
        Measured("A", (row,)),
        Measured("B, 1 thread, avx2, torch 2.13.0", (Measurement("p", "float32", "flop", 2e9, (("x", 2.0),)),)),
    )


def test_links_and_files_too_long_are_left_out(tmp_path: Path) -> None:
    text = json.dumps({"cpu": "A", "rows": [ROW]})
    results = folder(tmp_path / "kernel", long=text + " " * MAX_BYTES)
    (tmp_path / "elsewhere.json").write_text(text)
    (results / "linked.json").symlink_to(tmp_path / "elsewhere.json")
    assert read_results(tmp_path / "kernel") == ()


def test_a_kernel_without_results_has_none(tmp_path: Path) -> None:
    assert read_results(tmp_path) == ()


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"rows": [ROW]},
        {"cpu": 1, "rows": [ROW]},
        {"cpu": "A", "rows": {}},
        {"cpu": "A", "rows": []},
        {"cpu": "A", "rows": ["p", {"problem": "p"}]},
        *(
            {"cpu": "A", "rows": [ROW | {"rate_per_s": rate}]}
            for rate in (0, -1, True, "2", None, 10**400, float("nan"))
        ),
    ],
)
def test_what_is_no_result_is_none(document: object) -> None:
    assert measured_of(document) is None


@pytest.mark.parametrize(
    ("unit", "rate", "shown"),
    [
        ("flop", 305.04e9, "305 GFLOP/s"),
        ("byte", 9.6e9, "9.6 GB/s"),
        ("byte", 999.6, "1e+03 B/s"),
        ("flop", 0.5, "0.5 FLOP/s"),
        ("flop", 2e20, "2e+05 PFLOP/s"),
        ("token", 1234.0, "1.23e+03 /s"),
    ],
)
def test_a_rate_has_three_digits_and_its_unit(unit: str, rate: float, shown: str) -> None:
    assert Measurement("p", "", unit, rate).rate == shown
