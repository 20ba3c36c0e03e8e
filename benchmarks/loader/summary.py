"""Medians, spreads and ratios of measurements that were taken in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing.

    Attributes:
        median: The middle one.
        low, high: The quartiles; with fewer than four measurements, the least and the greatest.
        count: How many there were.
    """

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one measurement."""
        if len(values) < 4:
            return cls(median(values), min(values), max(values), len(values))
        low, middle, high = quantiles(values, n=4, method="inclusive")
        return cls(middle, low, high, len(values))

    def to_json(self) -> dict[str, float]:
        """As JSON values, rounded to what the spread can bear."""
        return {
            "median": _rounded(self.median),
            "low": _rounded(self.low),
            "high": _rounded(self.high),
            "runs": self.count,
        }


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """The ratios of measurements that were taken one after the other, so that a slow moment counts for both."""
    return Spread.of([above / below for above, below in zip(numerators, denominators, strict=True)])


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
