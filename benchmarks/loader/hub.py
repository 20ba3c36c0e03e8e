"""A Hub in a process of its own, with a delay before every answer and a log of its requests.

    python -m benchmarks.loader.hub REGISTRY_FOLDER

It says its URL in one line; then each line on stdin sets the delay in milliseconds, and is answered by the log since the
line before. The delay stands for the network's round trip: it is waited out in the server, so that no client's clock or
thread has a part in it. `BenchHub` is the other end.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROJECT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class TimedRequest:
    """One answered request.

    Attributes:
        line: `METHOD path status`.
        begin_s, end_s: When it arrived, and when its answer was complete, by the server's clock.
    """

    line: str
    begin_s: float
    end_s: float


def in_series(requests: Sequence[TimedRequest]) -> int:
    """How many requests had to wait for one another: the longest chain in which each began after the one before ended."""
    chain, free_at_s = 0, float("-inf")
    for request in sorted(requests, key=lambda request: request.end_s):
        if request.begin_s >= free_at_s:
            chain, free_at_s = chain + 1, request.end_s
    return chain


class BenchHub:
    """A running Hub.

    Args:
        registry_folder: What it serves.
    """

    def __init__(self, registry_folder: Path) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.loader.hub", str(registry_folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            env=os.environ | {"PYTHONPATH": str(PROJECT)},
        )
        self.url = self._line()

    def start_log(self, delay_ms: int) -> None:
        """Delay every answer from now on, and forget what was asked before."""
        self.log(delay_ms)

    def log(self, delay_ms: int = 0) -> tuple[TimedRequest, ...]:
        """The requests since the last call; `delay_ms` is the delay from now on."""
        assert self._server.stdin is not None
        self._server.stdin.write(f"{delay_ms}\n")
        self._server.stdin.flush()
        return tuple(TimedRequest(*row) for row in json.loads(self._line()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.terminate()
        self._server.communicate()

    def _line(self) -> str:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            raise RuntimeError(f"the benchmark's Hub ended with status {self._server.wait()}")
        return line.strip()


_BEGAN_S: ContextVar[float] = ContextVar("began_s")


class _DelayedApp:
    """An application behind a delay."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.delay_ms = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        _BEGAN_S.set(time.monotonic())
        if scope["type"] == "http":
            await asyncio.sleep(self.delay_ms / 1000)
        await self._app(scope, receive, send)


def main(registry_folder: str) -> None:
    """Serve until stdin ends."""
    from kernel_hub.server.app import make_app
    from kernel_hub.server.http import RunningServer
    from kernel_hub.server.record import RequestRecord
    from kernel_hub.sources.directory import DirectoryRegistry

    log: list[TimedRequest] = []

    def note(record: RequestRecord) -> None:
        # Called before the client can have seen the end of the answer, so that no request is missed by who reads the log.
        log.append(TimedRequest(f"{record.method} {record.path} {record.status}", _BEGAN_S.get(), time.monotonic()))

    app = _DelayedApp(make_app(DirectoryRegistry.open(registry_folder), on_request=note))
    with RunningServer(app) as server:
        print(server.url, flush=True)
        for line in sys.stdin:
            app.delay_ms = int(line)
            taken = log[:]
            del log[: len(taken)]
            print(json.dumps([[request.line, request.begin_s, request.end_s] for request in taken]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
