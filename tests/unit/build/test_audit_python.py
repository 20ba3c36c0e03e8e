"""Each rule for Python sources on vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.build.audit.python import Package, check_source

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "audit" / "python.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_a_vector_breaks_the_rules_it_is_said_to_break(case: dict[str, Any]) -> None:
    package = Package("axpy", frozenset(case["modules"]))
    found = list(check_source(case["source"].encode(), case["path"], package))
    assert [[item.rule.value, item.subject] for item in found] == [expected[:2] for expected in case["findings"]]
    # Python's own releases differ in which line they blame, so a vector may leave it open.
    assert all(line in (None, item.line) for item, (_, _, line) in zip(found, case["findings"], strict=True))
    assert all(item.path == case["path"] and item.fix for item in found)


def test_a_file_in_another_encoding_is_malformed() -> None:
    assert [item.rule.value for item in check_source(b"x = '\xff'\n", "a.py", Package("axpy"))] == ["python-syntax"]


def test_nesting_without_end_is_malformed() -> None:
    found = list(check_source(b"(" * 100_000 + b")" * 100_000, "a.py", Package("axpy")))
    assert [item.rule.value for item in found] == ["python-syntax"]
