"""Results that a kernel's benchmarks left in `benchmarks/results/*.json`, as values.

A result file names the machine (`cpu`, and if known `threads`, `instruction_set`, `torch`) and has `rows`; a row has a
`problem`, an `element_type`, a `unit` ("flop", "byte", or what else is counted), a `rate_per_s`, and may have `ratios`: how
many times faster than each rival. What has another shape is no result and is left out, because a benchmark may write as it
likes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_BYTES = 256 << 10
MOST_FILES = 16
_UNITS = {"flop": "FLOP", "byte": "B"}
_PREFIXES = ("", "k", "M", "G", "T", "P")


@dataclass(frozen=True, slots=True)
class Measurement:
    """How fast one problem was.

    Attributes:
        problem: What was computed.
        element_type: Of which numbers.
        unit: What is counted.
        rate_per_s: How many of it a second.
        ratios: Rivals, each with how many times faster than it this was.
    """

    problem: str
    element_type: str
    unit: str
    rate_per_s: float
    ratios: tuple[tuple[str, float], ...] = ()

    @property
    def rate(self) -> str:
        """The rate for people, e.g. `305 GFLOP/s`."""
        unit = _UNITS.get(self.unit)
        if unit is None:
            return f"{self.rate_per_s:.3g} /s"
        step = min(max(int(math.log10(self.rate_per_s) // 3), 0), len(_PREFIXES) - 1)
        return f"{self.rate_per_s / 1000**step:.3g} {_PREFIXES[step]}{unit}/s"


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured on one machine.

    Attributes:
        machine: The machine, in words.
        rows: In the file's order.
    """

    machine: str
    rows: tuple[Measurement, ...]


def read_results(kernel: Path) -> tuple[Measured, ...]:
    """The results in a kernel's folder, by file name. Links and files longer than `MAX_BYTES` are left out."""
    paths = sorted((kernel / "benchmarks" / "results").glob("*.json"))[:MOST_FILES]
    return tuple(found for path in paths if (found := _read(path)) is not None)


def _read(path: Path) -> Measured | None:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
        return None
    try:
        return measured_of(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return None


def measured_of(document: object) -> Measured | None:
    """The value of a result file's document; None if it is none."""
    if not isinstance(document, dict) or not isinstance(document.get("cpu"), str):
        return None
    rows = document.get("rows")
    found = tuple(_measurements(rows if isinstance(rows, list) else ()))
    if not found:
        return None
    threads = document.get("threads")
    parts = [document["cpu"]]
    if isinstance(threads, int):
        parts.append(f"{threads} thread{'' if threads == 1 else 's'}")
    for key, word in (("instruction_set", ""), ("torch", "torch ")):
        if isinstance(text := document.get(key), str):
            parts.append(word + text)
    return Measured(", ".join(parts), found)


def _measurements(rows: Iterable[object]) -> Iterable[Measurement]:
    for row in rows:
        if not isinstance(row, dict):
            continue
        problem, element_type, unit = (row.get(key) for key in ("problem", "element_type", "unit"))
        rate = _positive(row.get("rate_per_s"))
        if rate is None or not isinstance(problem, str) or not isinstance(unit, str):
            continue
        yield Measurement(problem, element_type if isinstance(element_type, str) else "", unit, rate, _ratios(row))


def _ratios(row: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    ratios = row.get("ratios")
    named = ratios.items() if isinstance(ratios, dict) else ()
    return tuple((str(rival), ratio) for rival, value in named if (ratio := _positive(value)) is not None)


def _positive(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None
