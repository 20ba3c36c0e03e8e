"""Runs loads in fresh processes: which client, with which cache, and what came of it.

A load whose kernel is not the published one, or does not compute what it should, is an error and never a figure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from benchmarks.loader.hub import PROJECT, BenchHub, TimedRequest, in_series
from benchmarks.loader.published import EXPECTED

OURS = "kernel_hub"
PEER = "kernels"
BODY = "body"
_SCRIPT = Path(__file__).with_name("load_once.py")
_TIMEOUT_S = 300


class WrongResultError(Exception):
    """A client loaded something else than what was published, so nothing about it may be reported."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a client.

    Attributes:
        repo: The kernel; for `BODY` the folder of its build.
        kind: "version" or "revision".
        value: Its text.
    """

    repo: str
    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class Load:
    """One load that gave the right kernel.

    Attributes:
        import_ms: The client's import.
        call_ms: The call.
        cpu_ms: What both took of all CPUs; other work on the machine disturbs it less than the time that passed.
        folder: Where the kernel was loaded from.
        content: A digest of that folder's files.
        http_libraries: Libraries for HTTP that were imported in the end.
        requests: What the Hub was asked.
    """

    import_ms: float
    call_ms: float
    cpu_ms: float
    folder: str
    content: str
    http_libraries: tuple[str, ...]
    requests: tuple[TimedRequest, ...] = ()

    @property
    def whole_ms(self) -> float:
        """Import and call."""
        return self.import_ms + self.call_ms

    @property
    def series(self) -> int:
        """How many of the requests waited for one another."""
        return in_series(self.requests)


class Bench:
    """Loads kernels from one Hub, below one folder for caches.

    Args:
        hub: The Hub.
        folder: Scratch space.
        expected: What every load must compute.
        script: What is run; replaced in tests.
        with_torch: Whether torch is imported before the clock starts. Without it, times mean little.
    """

    def __init__(
        self,
        hub: BenchHub,
        folder: Path,
        *,
        expected: dict[str, Any] | None = None,
        script: Path = _SCRIPT,
        with_torch: bool = True,
    ) -> None:
        self._hub = hub
        self.url = hub.url
        self._folder = folder
        self._expected = EXPECTED if expected is None else expected
        self._script = script
        self._options = () if with_torch else ("without-torch",)

    @contextmanager
    def home(self) -> Iterator[Path]:
        """A new, empty home for a client; gone afterwards."""
        folder = Path(mkdtemp(dir=self._folder, prefix="home-"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def load(self, client: str, wish: Wish, home: Path, *, delay_ms: int = 0, **environ: str) -> Load:
        """One load in a fresh process.

        Args:
            client: `OURS`, `PEER` or `BODY`.
            wish: What it loads.
            home: Where it keeps its cache: new for a cold load, used for a warm one.
            delay_ms: Before every answer of the Hub.
            environ: Further variables.

        Raises:
            WrongResultError: If it fails, or what it loads is not the kernel.
        """
        self._hub.start_log(delay_ms)
        child = self._start(client, wish, home, environ)
        out, errors = child.communicate(timeout=_TIMEOUT_S)
        requests = self._hub.log()
        return self._checked(client, wish, out, errors, requests)

    def load_at_once(self, client: str, wish: Wish, home: Path, count: int, *, delay_ms: int = 0) -> CrowdLoad:
        """The same load in several processes that start together on one cache."""
        self._hub.start_log(delay_ms)
        children = [self._start(client, wish, home, {}, "wait") for _ in range(count)]
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        begin_s = time.perf_counter()
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        # The answer's line comes when the load is over; what a process needs to end is not part of it.
        lines = [child.stdout.readline() if child.stdout else "" for child in children]
        wall_ms = (time.perf_counter() - begin_s) * 1000
        ends = [child.communicate(timeout=_TIMEOUT_S) for child in children]
        requests = self._hub.log()
        loads = [self._checked(client, wish, line, end[1], ()) for line, end in zip(lines, ends)]
        return CrowdLoad(wall_ms, tuple(loads), requests)

    def _start(
        self, client: str, wish: Wish, home: Path, environ: dict[str, str], *options: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(self._script), client, wish.repo, wish.kind, wish.value, *self._options, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Not in this project, whose own configuration would be read.
            cwd=home,
            env=environment(home, self._hub.url) | environ,
        )

    def _checked(self, client: str, wish: Wish, out: str, errors: str, requests: Sequence[TimedRequest]) -> Load:
        if not out.strip():
            raise WrongResultError(f"{client} does not load {wish.repo}:\n{errors[-3000:]}")
        answer = json.loads(out.strip().splitlines()[-1])
        if answer["result"] != self._expected:
            raise WrongResultError(f"{client}: {wish.repo} computes {answer['result']}, not {self._expected}")
        return Load(
            answer["import_ns"] / 1e6,
            answer["call_ns"] / 1e6,
            answer["cpu_ns"] / 1e6,
            answer["folder"],
            answer["content"],
            tuple(answer["http_libraries"]),
            tuple(requests),
        )


@dataclass(frozen=True, slots=True)
class CrowdLoad:
    """Several processes that loaded one kernel together.

    Attributes:
        wall_ms: From the signal to the last one's answer.
        loads: Each process's own figures.
        requests: What the Hub was asked by all.
    """

    wall_ms: float
    loads: tuple[Load, ...]
    requests: tuple[TimedRequest, ...]


def environment(home: Path, url: str) -> dict[str, str]:
    """The environment of a measured process: one Hub, one home, and bytecode kept as after an installation."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LD_LIBRARY_PATH", "SYSTEMROOT") if name in os.environ}
    return kept | {
        "HF_ENDPOINT": url,
        "HF_HOME": str(home / "hf"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HOME": str(home),
        "NO_PROXY": "*",
        "PYTHONPATH": str(PROJECT),
        "XDG_CONFIG_HOME": str(home / "config"),
    }
