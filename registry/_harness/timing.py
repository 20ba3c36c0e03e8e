"""Fair timing on a machine that others use: contestants take turns, in a new order each round, and only while it is idle.

A round is thrown away when something else used the processors during it. What is reported is the median and the spread of
the rounds that counted, and their ratio within a round, which cancels what slows both.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Sample:
    """Times of one contestant over the rounds that counted."""

    median_s: float
    best_s: float
    quartiles_s: tuple[float, float]
    rounds: int
    discarded_rounds: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def other_load(own_cpu_s: float, busy_cpu_s: float, wall_s: float) -> float:
    """Return how many processors others kept busy, from processor seconds used here and used in all."""
    return max(0.0, busy_cpu_s - own_cpu_s) / wall_s if wall_s > 0 else 0.0


def busy_cpu_s() -> float:
    """Return processor seconds that anything on this machine has used, from /proc/stat."""
    user, nice, system, _, _, interrupt, soft, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + interrupt + soft + steal) / os.sysconf("SC_CLK_TCK")


def own_cpu_s() -> float:
    """Return processor seconds that this process has used."""
    times = os.times()
    return times.user + times.system


def wait_until_idle(limit: float = 0.15, window_s: float = 0.5, patience_s: float = 60.0) -> bool:
    """Wait for a window in which others use less than `limit` processors; return whether one came."""
    deadline = time.monotonic() + patience_s
    while True:
        busy, own, start = busy_cpu_s(), own_cpu_s(), time.monotonic()
        time.sleep(window_s)
        if other_load(own_cpu_s() - own, busy_cpu_s() - busy, time.monotonic() - start) < limit:
            return True
        if time.monotonic() > deadline:
            return False


def compare(
    contestants: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 7,
    round_s: float = 0.2,
    limit: float = 0.25,
    patience_s: float = 120.0,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Sample]:
    """Time every contestant once a round, in a shuffled order, until `rounds` undisturbed rounds or patience is spent.

    A contestant repeats its work for about `round_s` within a round. If the machine never became quiet enough, the least
    disturbed rounds are used, and `discarded_rounds` says how many were disturbed.

    With `clock` time.process_time the processor time of this process is compared. On one thread that is what the work
    costs even while others use the machine, apart from their pressure on caches and memory; pass an infinite `limit`.
    """
    shuffle = random.Random(seed)
    repeats = {}
    for name, work in contestants.items():
        work()
        start = clock()
        work()
        repeats[name] = max(1, int(round_s / max(clock() - start, 1e-9)))
    measured: list[tuple[float, dict[str, float]]] = []
    deadline = time.monotonic() + patience_s
    while True:
        quiet = sum(disturbance < limit for disturbance, _ in measured)
        if quiet >= rounds or (len(measured) >= rounds and time.monotonic() > deadline):
            break
        if limit < math.inf:
            wait_until_idle(patience_s=max(0.0, min(10.0, deadline - time.monotonic())))
        order = list(contestants)
        shuffle.shuffle(order)
        times, worst = {}, 0.0
        for name in order:
            busy, own, start, clock_start = busy_cpu_s(), own_cpu_s(), time.perf_counter(), clock()
            for _ in range(repeats[name]):
                contestants[name]()
            times[name] = (clock() - clock_start) / repeats[name]
            wall = time.perf_counter() - start
            worst = max(worst, other_load(own_cpu_s() - own, busy_cpu_s() - busy, wall))
        measured.append((worst, times))
    measured.sort(key=lambda round_: round_[0])
    kept = measured[:rounds]
    disturbed = len(measured) - sum(disturbance < limit for disturbance, _ in measured)
    samples = {}
    for name in contestants:
        values = sorted(times[name] for _, times in kept)
        low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
        samples[name] = Sample(statistics.median(values), values[0], (low, high), len(values), disturbed)
    return samples
