"""What is measured, in rounds: in each, every client does the same thing once, in an order that turns around.

So a slow moment of the machine counts for both, and ratios are taken within a round. Every load is checked (see
`benchmarks.loader.clients`), and in every round both clients must have loaded the same bytes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.loader.clients import BODY, OURS, PEER, Bench, Load, Wish, WrongResultError, environment
from benchmarks.loader.published import VERSION, Published
from benchmarks.loader.summary import Spread, ratios

Say = Callable[[str], None]
CROWD = 6
DELAY_MS = 50


@dataclass(frozen=True, slots=True)
class LoadTask:
    """One kind of load.

    Attributes:
        kernel: Short name of the kernel.
        cache: "cold": nothing is there; "warm": it was loaded before; "stale": so, but long ago.
        wish: "version" or "commit".
        delay_ms: Before every answer of the Hub.
        rounds: How often each client does it.
    """

    kernel: str
    cache: str
    wish: str
    delay_ms: int
    rounds: int

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.kernel}: {self.cache} by {self.wish}, {self.delay_ms} ms"


def load_tasks(scale: float) -> list[LoadTask]:
    """Every kind of load; `scale` multiplies the rounds."""

    def rounds(full: int) -> int:
        return max(1, round(full * scale))

    tasks = []
    for delay_ms in (0, DELAY_MS):
        tasks += [
            LoadTask("small", cache, wish, delay_ms, rounds(7))
            for cache, wish in (
                ("cold", "version"),
                ("cold", "commit"),
                ("warm", "version"),
                ("stale", "version"),
                ("warm", "commit"),
            )
        ]
        tasks += [
            LoadTask("variants", cache, wish, delay_ms, rounds(3))
            for cache, wish in (("cold", "version"), ("warm", "version"), ("warm", "commit"))
        ]
        tasks += [LoadTask(kernel, "cold", "version", delay_ms, rounds(2)) for kernel in ("python", "bundled")]
    return [*tasks, LoadTask("python", "warm", "commit", 0, rounds(3))]


def measure_load(bench: Bench, task: LoadTask, published: Published) -> dict[str, Any]:
    """One row: both clients' times, requests and their ratio."""
    wish = _wish(task.wish, published)
    with ExitStack() as homes:
        used = {}
        if task.cache != "cold":
            for client in (OURS, PEER):
                used[client] = homes.enter_context(bench.home())
                bench.load(client, _wish("version", published), used[client])
        loads: dict[str, list[Load]] = {OURS: [], PEER: []}
        for order in _orders((OURS, PEER), task.rounds):
            for client in order:
                with ExitStack() as new:
                    home = used.get(client) or new.enter_context(bench.home())
                    environ = {"KERNEL_HUB_FRESHNESS": "0"} if task.cache == "stale" else {}
                    loads[client].append(bench.load(client, wish, home, delay_ms=task.delay_ms, **environ))
            _require_same(loads[OURS][-1], loads[PEER][-1], published.repo)
    return {
        "kernel": task.kernel,
        "files": published.file_count,
        "cache": task.cache,
        "wish": task.wish,
        "delay_ms": task.delay_ms,
        OURS: _figures(loads[OURS]),
        PEER: _figures(loads[PEER]),
        "ratio": ratios(_whole(loads[PEER]), _whole(loads[OURS])).to_json(),
        "call_ratio": ratios(_call(loads[PEER]), _call(loads[OURS])).to_json(),
    }


def measure_own_time(bench: Bench, published: Published, rounds: int) -> dict[str, Any]:
    """What a warm load by commit costs beyond torch's import and the kernel's own body."""
    by_commit = _wish("commit", published)
    with bench.home() as ours, bench.home() as theirs:
        homes = {OURS: ours, PEER: theirs, BODY: ours}
        # A copy, because Python's own import system leaves bytecode beside what it imports.
        folder = str(theirs / "body")
        shutil.copytree(bench.load(OURS, _wish("version", published), ours).folder, folder)
        bench.load(PEER, _wish("version", published), theirs)
        loads: dict[str, list[Load]] = {OURS: [], PEER: [], BODY: []}
        for order in _orders((OURS, BODY, PEER), rounds):
            for client in order:
                wish = Wish(folder, "revision", "none") if client == BODY else by_commit
                loads[client].append(bench.load(client, wish, homes[client]))
    return {
        "body_ms": Spread.of(_whole(loads[BODY])).to_json(),
        OURS: _beyond(loads[OURS], loads[BODY]),
        PEER: _beyond(loads[PEER], loads[BODY]),
        "ratio": ratios(_whole(loads[PEER]), _whole(loads[OURS])).to_json(),
    }


def measure_crowd(bench: Bench, published: Published, delay_ms: int, rounds: int) -> dict[str, Any]:
    """Six processes that load one kernel together from nothing."""
    wish = _wish("version", published)
    walls: dict[str, list[float]] = {OURS: [], PEER: []}
    asked: dict[str, list[float]] = {OURS: [], PEER: []}
    for order in _orders((OURS, PEER), rounds):
        for client in order:
            with bench.home() as home:
                crowd = bench.load_at_once(client, wish, home, CROWD, delay_ms=delay_ms)
            walls[client].append(crowd.wall_ms)
            asked[client].append(len(crowd.requests))
            for load in crowd.loads:
                _require_same(load, crowd.loads[0], published.repo)
    return {
        "processes": CROWD,
        "delay_ms": delay_ms,
        **{
            client: {"wall_ms": Spread.of(walls[client]).to_json(), "requests": Spread.of(asked[client]).to_json()}
            for client in (OURS, PEER)
        },
        "ratio": ratios(walls[PEER], walls[OURS]).to_json(),
    }


def measure_imports(scratch: Path, rounds: int) -> list[dict[str, Any]]:
    """What an import costs in a fresh process without torch."""
    rows = []
    statements = {
        "import {}": "import {}",
        "from {} import get_kernel": "from {} import get_kernel",
    }
    for title, statement in statements.items():
        times: dict[str, list[float]] = {OURS: [], PEER: []}
        for order in _orders((OURS, PEER), rounds + 1):
            for client in order:
                times[client].append(_import_ms(scratch, statement.format(client)))
        # The first round may have compiled the modules.
        ours, theirs = times[OURS][1:], times[PEER][1:]
        rows.append(
            {
                "statement": title,
                OURS: Spread.of(ours).to_json(),
                PEER: Spread.of(theirs).to_json(),
                "ratio": ratios(theirs, ours).to_json(),
            }
        )
    return rows


def _import_ms(scratch: Path, statement: str) -> float:
    code = f"import time; a = time.perf_counter_ns(); {statement}; print(time.perf_counter_ns() - a)"
    # Port 9 discards: an import has nothing to ask.
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment(scratch / "import-home", "http://127.0.0.1:9"),
    )
    return int(done.stdout) / 1e6


def _wish(kind: str, published: Published) -> Wish:
    if kind == "version":
        return Wish(published.repo, "version", str(VERSION))
    return Wish(published.repo, "revision", published.commit)


def _orders(clients: Sequence[str], rounds: int) -> Iterator[tuple[str, ...]]:
    for number in range(rounds):
        yield tuple(clients) if number % 2 == 0 else tuple(reversed(clients))


def _require_same(left: Load, right: Load, repo: str) -> None:
    if left.content != right.content:
        raise WrongResultError(f"{repo}: {left.folder} and {right.folder} hold different bytes")


def _figures(loads: Sequence[Load]) -> dict[str, Any]:
    return {
        "whole_ms": Spread.of(_whole(loads)).to_json(),
        "import_ms": Spread.of([load.import_ms for load in loads]).to_json(),
        "call_ms": Spread.of(_call(loads)).to_json(),
        "cpu_ms": Spread.of([load.cpu_ms for load in loads]).to_json(),
        "requests": Spread.of([len(load.requests) for load in loads]).to_json(),
        "series": Spread.of([load.series for load in loads]).to_json(),
    }


def _beyond(loads: Sequence[Load], bodies: Sequence[Load]) -> dict[str, Any]:
    pairs = list(zip(loads, bodies, strict=True))
    return {
        "own_ms": Spread.of([load.whole_ms - body.whole_ms for load, body in pairs]).to_json(),
        "own_call_ms": Spread.of([load.call_ms - body.call_ms for load, body in pairs]).to_json(),
        "own_cpu_ms": Spread.of([load.cpu_ms - body.cpu_ms for load, body in pairs]).to_json(),
        "import_ms": Spread.of([load.import_ms for load in loads]).to_json(),
        "http_libraries": list(loads[0].http_libraries),
    }


def _whole(loads: Sequence[Load]) -> list[float]:
    return [load.whole_ms for load in loads]


def _call(loads: Sequence[Load]) -> list[float]:
    return [load.call_ms for load in loads]
