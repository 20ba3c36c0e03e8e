"""Measure loading beside Hugging Face's `kernels`, in one run on one machine.

    python -m benchmarks.loader [--out FILE] [--scale 0.3] [--only PART ...]

Prints what it measures as it goes, then the tables. All of it takes about ten minutes on an idle machine; `--scale 0.3` a third
of that, and `--only own_time parts verifying` two. The result file is written only if every load of every client gave
the kernel that was published; otherwise nothing is reported and the status is 1.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.loader import report
from benchmarks.loader.clients import OURS, PEER, Bench, WrongResultError
from benchmarks.loader.hub import BenchHub
from benchmarks.loader.measure import (
    DELAY_MS,
    load_tasks,
    measure_crowd,
    measure_imports,
    measure_load,
    measure_own_time,
)
from benchmarks.loader.parts import measure_parts
from benchmarks.loader.published import publish
from benchmarks.loader.verifying import measure_verifying

PARTS = ("imports", "loads", "crowds", "own_time", "parts", "verifying")


def main(arguments: list[str], measuring: Callable[[float, Sequence[str]], dict[str, Any]] | None = None) -> int:
    """Measure, print, and write the result.

    Args:
        arguments: Of the command line.
        measuring: Takes the scale and the parts; replaced in tests.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.loader", description="Measure loading beside `kernels`."
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the result; default: nowhere")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the rounds; default: 1")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, help="measure these parts alone, without tables"
    )
    options = parser.parse_args(arguments)
    try:
        result = (measuring or measure)(options.scale, options.only)
    except WrongResultError as error:
        print(f"nothing is reported: {error}", file=sys.stderr)
        return 1
    if set(options.only) == set(PARTS):
        print(f"\n{report.machine(result)}\n\n{report.tables(result)}")
        if options.out is not None:
            options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def measure(scale: float, parts: Sequence[str] = PARTS) -> dict[str, Any]:
    """The whole result, or parts of it."""
    rounds = max(1, round(7 * scale))
    before = os.getloadavg()[0]
    result: dict[str, Any] = {}
    with TemporaryDirectory(prefix="loader-benchmark-") as folder:
        scratch = Path(folder)
        kernels = publish(scratch / "registry")
        with BenchHub(scratch / "registry") as hub:
            bench = Bench(hub, scratch)
            if "imports" in parts:
                result["imports"] = [_said(row) for row in measure_imports(scratch, rounds)]
            if "loads" in parts:
                result["loads"] = [_said(measure_load(bench, task, kernels[task.kernel])) for task in load_tasks(scale)]
            if "crowds" in parts:
                result["crowds"] = [
                    _said(measure_crowd(bench, kernels["small"], delay_ms, max(1, round(3 * scale))))
                    for delay_ms in (0, DELAY_MS)
                ]
            if "own_time" in parts:
                result["own_time"] = _said(measure_own_time(bench, kernels["small"], max(1, round(11 * scale))))
            if "parts" in parts:
                result["parts"] = _said(measure_parts(bench, kernels["small"], rounds))
        if "verifying" in parts:
            result["verifying"] = [_said(row) for row in measure_verifying(scratch / "files", rounds)]
    return {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), "machine": _machine(before), **result}


def _said(row: dict[str, Any]) -> dict[str, Any]:
    print(f"{time.strftime('%H:%M:%S')} load {os.getloadavg()[0]:.2f}: {json.dumps(_medians(row))}", flush=True)
    return row


def _medians(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the median in place of each spread."""
    return {
        key: (value.get("median") or _medians(value)) if isinstance(value, dict) else value
        for key, value in row.items()
    }


def _machine(load_before: float) -> dict[str, Any]:
    packages = {"torch": "torch", "huggingface_hub": "huggingface_hub", PEER: "kernels", OURS: None}
    import kernel_hub

    versions = {name: version(package) if package else kernel_hub.__version__ for name, package in packages.items()}
    return {
        "cpus": os.cpu_count(),
        "cpu": _cpu_name(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"Python": platform.python_version(), **versions},
        "load_average": {"before": load_before, "after": os.getloadavg()[0]},
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
