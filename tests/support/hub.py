"""A Hub on this machine: a registry folder behind the real server, on a free loopback port, with a log of its requests."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from starlette.types import ASGIApp

from kernel_hub.server.app import make_app
from kernel_hub.server.exchange import Site
from kernel_hub.server.http import RunningServer
from kernel_hub.server.record import RecordingApp, RequestRecord
from kernel_hub.sources.directory import DirectoryRegistry


@dataclass
class RequestLog:
    """Every request that a server answered, in order."""

    _records: list[RequestRecord] = field(default_factory=list)
    _lock: threading.Condition = field(default_factory=threading.Condition)

    def append(self, record: RequestRecord) -> None:
        with self._lock:
            self._records.append(record)
            self._lock.notify_all()

    def wait_for(self, requests: int) -> None:
        """Wait until so many requests are over; for clients that do not wait for their answer."""
        with self._lock:
            assert self._lock.wait_for(lambda: len(self._records) >= requests, timeout=30), "too few requests"

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        with self._lock:
            return tuple(self._records)

    @property
    def lines(self) -> list[str]:
        """Each request as `METHOD path status`, for messages and comparisons."""
        return [f"{record.method} {record.path} {record.status}" for record in self.records]

    def matching(self, *, method: str | None = None, path: str = "") -> tuple[RequestRecord, ...]:
        """Those of a method whose path holds a text."""
        return tuple(r for r in self.records if method in (None, r.method) and path in r.path)

    def clear(self) -> None:
        with self._lock:
            self._records.clear()


@dataclass(frozen=True)
class HubServer:
    """A running Hub.

    Attributes:
        url: What `HF_ENDPOINT` is set to.
        registry: The folder behind it, for publishing without HTTP and for damage.
        log: Its requests.
    """

    url: str
    registry: DirectoryRegistry
    log: RequestLog

    def child_environment(self, home: Path, **more: str) -> dict[str, str]:
        """The environment of a process that uses this Hub and nothing else.

        Args:
            home: A folder for everything it keeps.
            more: Further variables, or other values.
        """
        return {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home / "hf"),
            "HOME": str(home),
            "NO_PROXY": "*",
            "PATH": "/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
        } | more


@contextlib.contextmanager
def running_hub(
    folder: Path, *, site: Site | None = None, wrap: Callable[[ASGIApp], ASGIApp] | None = None, linger: bool = False
) -> Iterator[HubServer]:
    """Serve a registry folder, made if absent, until the block ends; afterwards its port refuses connections.

    Args:
        folder: The registry.
        site: How it is served.
        wrap: Put around the application, e.g. to inject faults; the log sees what the client sees.
        linger: Whether it may end a moment after the block instead; `stop_lingering` waits for that.
    """
    registry = DirectoryRegistry.create(folder)
    log = RequestLog()
    app = make_app(registry, site=site)
    server = RunningServer(RecordingApp(wrap(app) if wrap else app, log.append))
    try:
        yield HubServer(server.url, registry, log)
    finally:
        server.ask_to_stop()
        if linger:
            _LINGERING.append(server)
        else:
            server.stop()


_LINGERING: list[RunningServer] = []


def stop_lingering() -> None:
    """Wait for every server that was left to end by itself."""
    while _LINGERING:
        _LINGERING.pop().stop()
