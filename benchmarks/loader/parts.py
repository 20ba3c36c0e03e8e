"""Where the time of a load goes: a warm one by commit stage by stage, its imports by package, and a first request's needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.loader.clients import OURS, Bench, Wish, environment
from benchmarks.loader.hub import PROJECT
from benchmarks.loader.published import VERSION, Published
from benchmarks.loader.summary import Spread

_SCRIPT = Path(__file__).with_name("in_parts.py")
_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")
_MARK = "the client's imports"
_IMPORT = f"import torch, gc, sys; gc.collect(); print({_MARK!r}, file=sys.stderr, flush=True); from kernel_hub import get_kernel"


def measure_parts(bench: Bench, published: Published, rounds: int) -> dict[str, Any]:
    """Spreads in milliseconds: `call` by stage, `imports` by package with the number of modules, `http`."""
    with bench.home() as home:
        bench.load(OURS, Wish(published.repo, "version", str(VERSION)), home)
        calls, https, imports = [], [], []
        for _ in range(rounds):
            calls.append(
                json.loads(_run(bench, home, str(_SCRIPT), "call", published.repo, published.commit, PROJECT)[0])
            )
            https.append(json.loads(_run(bench, home, str(_SCRIPT), "http")[0]))
            imports.append(_by_package(_run(bench, home, "-X", "importtime", "-c", _IMPORT)[1]))
    return {
        "call": _spreads(calls, 1e6),
        "http": _spreads(https, 1e6),
        "imports": _spreads([{name: took_us for name, (took_us, _) in found.items()} for found in imports], 1e3),
        "modules": {name: count for name, (_, count) in imports[-1].items()},
    }


def _run(bench: Bench, home: Path, *arguments: object) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
        env=environment(home, bench.url),
    )
    return done.stdout, done.stderr


def _by_package(errors: str) -> dict[str, tuple[int, int]]:
    """Microseconds and number of modules by package; what Python has itself is one of them."""
    found: dict[str, list[int]] = defaultdict(list)
    for line in errors.partition(_MARK)[2].splitlines():
        match = _LINE.match(line)
        if match is not None:
            package = match[2].partition(".")[0]
            found[package if package in (OURS, "packaging") else "others"].append(int(match[1]))
    return {package: (sum(took_us), len(took_us)) for package, took_us in found.items()}


def _spreads(rounds: Sequence[Mapping[str, float]], units_in_a_ms: float) -> dict[str, Any]:
    return {part: Spread.of([taken.get(part, 0) / units_in_a_ms for taken in rounds]).to_json() for part in rounds[0]}
