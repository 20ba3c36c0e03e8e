"""Measures what the native build spends its time on, by a build that counts, and writes results/<cpu>-profile.json.

    python -m registry.flash-attn.benchmarks.profile_parts

Time is that of all threads: packing keys, values and queries; the two kinds of products; the exponentials between them;
the rest of the tasks (reading queries, writing results, the pages that the system hands out for them); and waiting, which
is what threads do while others finish. The counters cost about a hundredth of the time.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from registry._harness import dev_build, timing

from . import compare

KERNEL = Path(__file__).resolve().parents[1]
PARTS = ("packing", "score_products", "exponentials", "value_products")
COUNTERS = (*PARTS, "busy", "call")


def shares(ticks: dict[str, int], threads: int) -> dict[str, float]:
    """Return each part's share of the time of all threads; they add up to 1."""
    whole = threads * ticks["call"]
    found = {part: ticks[part] / whole for part in PARTS}
    return found | {"rest": ticks["busy"] / whole - sum(found.values()), "waiting": 1 - ticks["busy"] / whole}


def measured(work: Callable[[], object], counters: Any, calls: int, patience_s: float) -> dict[str, int]:
    """Run the work several times while the machine is idle and return the counters of the fastest call."""
    work()
    timing.wait_until_idle(patience_s=patience_s)
    found = []
    for _ in range(calls):
        for index in range(len(COUNTERS)):
            counters[index] = 0
        work()
        found.append(dict(zip(COUNTERS, counters)))
    return min(found, key=lambda ticks: ticks["call"])


def problems(module: Any) -> list[compare.Problem]:
    """Return those whose work is arithmetic; decoding waits for memory, which shares of parts would not show."""
    return [problem for problem in compare.problems(module) if problem[-1] == "flop"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--patience-s", type=float, default=4.0, help="how long each problem waits for an idle machine")
    given = parser.parse_args()
    package = dev_build.build_native(KERNEL, ("-DFA_PROFILE",))
    module = dev_build.load_package(package)
    (library,) = package.glob("*.so")
    counters = (ctypes.c_uint64 * len(COUNTERS)).in_dll(ctypes.CDLL(str(library)), "flash_attn_profile_ticks")
    threads = torch.get_num_threads()
    rows = []
    for name, kind, contestants_of, _, _ in problems(module):
        ticks = measured(contestants_of()["flash_attn"], counters, given.calls, given.patience_s)
        rows.append({"problem": name, "element_type": kind, "shares": shares(ticks, threads)})
        print(f"{name:28} {kind:9}", *(f"{part} {share:.0%}" for part, share in rows[-1]["shares"].items()), flush=True)
    cpu = compare.cpu_name()
    result = {"cpu": cpu, "threads": threads, "load_average": os.getloadavg(), "rows": rows}
    output = compare.RESULTS / (re.sub(r"[^a-z0-9]+", "-", cpu.lower()).strip("-") + "-profile.json")
    output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
