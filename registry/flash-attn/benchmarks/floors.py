"""What this kernel is held to, and for each floor: what was measured, and where time goes if it was missed.

A floor is a ratio to another implementation in the same run, or a share of the measured peak. No ratio can exceed the peak
over the other's own rate in that run: that limit stands beside each, and a floor above it cannot be met on that CPU by any
kernel that computes these products.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

PARTS = {
    "score_products": "products of queries and keys",
    "exponentials": "exponentials",
    "value_products": "products with values",
    "packing": "packing",
    "rest": "rest",
    "waiting": "waiting",
}
RIVALS = {
    "torch_sdpa": "torch SDPA",
    "torch_sdpa_mask": "torch SDPA with a mask",
    "torch_flex": "FlexAttention",
    "torch_loop": "the Python loop",
    "onnxruntime": "onnxruntime",
    "openvino": "OpenVINO",
}
SHARE = "share"


@dataclass(frozen=True, slots=True)
class Floor:
    """At least `least` times `rival`, or of the peak if that is SHARE, for the problems whose whole name matches."""

    problems: str
    element_type: str
    rival: str
    least: float


FLOORS = (
    Floor(r"prefill_d\d+_s\d+", "bfloat16", "torch_sdpa", 3.5),
    Floor(r"prefill_d\d+_s\d+_causal", "bfloat16", "torch_sdpa", 4.0),
    Floor(r"prefill_.*", "bfloat16", SHARE, 0.75),
    Floor(r"prefill_d\d+_s\d+", "bfloat16", "openvino", 1.15),
    Floor(r"prefill_.*", "float32", "torch_sdpa", 2.0),
    Floor(r"prefill_d\d+_s\d+", "float32", "onnxruntime", 1.0),
    Floor(r"prefill_.*", "float32", SHARE, 0.72),
    Floor(r"prefill_.*", "float16", "torch_sdpa", 3.0),
    Floor(r"window512_.*", "bfloat16", "torch_sdpa_mask", 10.0),
    Floor(r"window512_.*", "bfloat16", "torch_flex", 3.5),
    Floor(r"varlen_8", "bfloat16", "torch_loop", 4.0),
    Floor(r"backward_.*", "bfloat16", "torch_sdpa", 1.5),
    Floor(r"backward_.*", "float32", "torch_sdpa", 1.8),
)


@dataclass(frozen=True, slots=True)
class Standing:
    """One floor against one measured row; `limit` is the largest value that the peak allows, None for a share."""

    row: dict[str, Any]
    floor: Floor
    measured: float
    limit: float | None

    @property
    def met(self) -> bool:
        return self.measured >= self.floor.least


def standings(result: dict[str, Any]) -> list[Standing]:
    """Hold a result file to every floor; rivals that were not installed have no row."""
    found = []
    for floor in FLOORS:
        for row in result["rows"]:
            if row["element_type"] != floor.element_type or not re.fullmatch(floor.problems, row["problem"]):
                continue
            if floor.rival == SHARE:
                found.append(Standing(row, floor, row["share_of_ceiling"], None))
            elif floor.rival in row["ratios"]:
                measured = row["ratios"][floor.rival]
                found.append(Standing(row, floor, measured, measured / row["share_of_ceiling"]))
    return found


def _figure(floor: Floor, value: float) -> str:
    return f"{value:.0%}" if floor.rival == SHARE else f"{value:.2f}"


def _what(floor: Floor) -> str:
    return "share of the peak" if floor.rival == SHARE else f"times faster than {RIVALS[floor.rival]}"


def table(result: dict[str, Any], profile: dict[str, Any] | None) -> str:
    """Return every floor as Markdown; for those missed, the shares of a counting build."""
    found = standings(result)
    missed = [standing for standing in found if not standing.met]
    beyond = [standing for standing in missed if standing.limit is not None and standing.floor.least > standing.limit]
    lines = [
        f"{len(found) - len(missed)} of {len(found)} floors are met. Of the {len(missed)} missed, {len(beyond)} lie beyond "
        "what the measured peak allows on this CPU (limit: the peak over the other's rate in the same run), whoever "
        "computes these products.",
        "",
        "| problem | type | floor | measured | limit | |",
        "|---|---|---|---|---|---|",
    ]
    for standing in found:
        floor, limit = standing.floor, standing.limit
        verdict = "met" if standing.met else "beyond the limit" if standing in beyond else "missed"
        lines.append(
            f"| {standing.row['problem']} | {floor.element_type} | {_figure(floor, floor.least)} {_what(floor)} | "
            f"{_figure(floor, standing.measured)} | {'' if limit is None else f'{limit:.2f}'} | {verdict} |"
        )
    if profile is not None and missed:
        wanted = {(standing.row["problem"], standing.row["element_type"]) for standing in missed}
        rows = [row for row in profile["rows"] if (row["problem"], row["element_type"]) in wanted]
        lines += [
            "",
            "Where the time of both threads goes in the problems with a missed floor, from a build that counts. The rest is "
            "reading queries, writing results, and the pages that the system hands out for them.",
            "",
            f"| problem | type | {' | '.join(PARTS.values())} |",
            f"|---|---|{'---|' * len(PARTS)}",
        ]
        for row in rows:
            shares = " | ".join(f"{row['shares'][part]:.0%}" for part in PARTS)
            lines.append(f"| {row['problem']} | {row['element_type']} | {shares} |")
    return "\n".join(lines) + "\n"
