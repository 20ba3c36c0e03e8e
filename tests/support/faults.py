"""Faults between a server and its clients: an ASGI wrapper that spoils the answers a test chooses.

`Faults` holds rules; a rule says which requests it hits, how often, and what becomes of the answer. Rules can be added and
removed while the server runs.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Headers = dict[str, str]


@dataclass
class Reply:
    """An answer on its way out: what a spoiler may change.

    Attributes:
        status, headers, body: The answer.
        sent_bytes: How much of the body is sent before the connection breaks or hangs; None for all of it.
        hangs: Whether the rest never comes, instead of the connection being closed.
    """

    status: int
    headers: Headers
    body: bytes
    sent_bytes: int | None = None
    hangs: bool = False


Spoiler = Callable[[Reply], None]


@dataclass
class Rule:
    """Which requests are hit and how.

    Attributes:
        spoil: What becomes of the answer.
        path: A text that the request's path holds; "" for every request.
        times: How often it hits; None for always.
        every: It hits every n-th of the matching requests.
        asks_the_server: Whether the server does what it is asked to, although the answer is another.
    """

    spoil: Spoiler
    path: str = ""
    times: int | None = None
    every: int = 1
    asks_the_server: bool = True
    seen: int = 0
    hits: int = 0

    def takes(self, path: str) -> bool:
        if self.path not in path or (self.times is not None and self.hits >= self.times):
            return False
        self.seen += 1
        if self.seen % self.every:
            return False
        self.hits += 1
        return True


class Gate:
    """Holds requests back until so many are there: a client that does not ask for all of them at once gets no answer.

    Args:
        count: How many.
        paths: Texts of which a request's path holds one.
    """

    def __init__(self, count: int, *paths: str) -> None:
        self.paths = paths
        self._count = count
        self._arrived = 0
        self._open = asyncio.Event()

    async def wait(self) -> None:
        self._arrived += 1
        if self._arrived >= self._count:
            self._open.set()
        await self._open.wait()


@dataclass
class Faults:
    """The rules of one server; call it to wrap an application.

    Attributes:
        rules: The first that takes a request has it.
        latency_s: Added to every request.
        asked: Every request as it came in: method, path and headers. A client that has its answer finds its request here.
        gates: Requests that are answered only when so many of their kind are there; see `Gate`.
    """

    rules: list[Rule] = field(default_factory=list)
    latency_s: float = 0.0
    asked: list[tuple[str, str, Headers]] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def add(self, spoil: Spoiler, path: str = "", **options: Any) -> Rule:
        """Add a rule."""
        rule = Rule(spoil, path, **options)
        with self._guard:
            self.rules.append(rule)
        return rule

    def paths(self, containing: str = "", *, method: str | None = None) -> list[str]:
        """The paths that were asked for."""
        return [path for asked, path, _ in self.asked if containing in path and method in (None, asked)]

    def clear(self) -> None:
        """Remove every rule."""
        with self._guard:
            self.rules.clear()

    def __call__(self, app: Any) -> Any:
        async def faulty(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self.asked.append((scope["method"], scope["path"], headers))
            if self.latency_s:
                await asyncio.sleep(self.latency_s)
            for gate in self.gates:
                if any(path in scope["path"] for path in gate.paths):
                    await gate.wait()
            with self._guard:
                rule = next((rule for rule in self.rules if rule.takes(scope["path"])), None)
            if rule is None:
                await app(scope, receive, send)
                return
            reply = await _answer(app, scope, receive) if rule.asks_the_server else Reply(200, {}, b"")
            rule.spoil(reply)
            await _send(reply, receive, send)

        return faulty


async def _answer(app: Any, scope: Any, receive: Any) -> Reply:
    reply = Reply(500, {}, b"")

    async def collect(message: Any) -> None:
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]
            }
        elif message["type"] == "http.response.body":
            reply.body += message.get("body", b"")

    # Sending files by path is a short cut that leaves no body to spoil.
    extensions = {
        name: value for name, value in scope.get("extensions", {}).items() if name != "http.response.pathsend"
    }
    await app({**scope, "extensions": extensions}, receive, collect)
    return reply


async def _send(reply: Reply, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if reply.sent_bytes is None:
        await send({"type": "http.response.body", "body": reply.body})
        return
    await send({"type": "http.response.body", "body": reply.body[: reply.sent_bytes], "more_body": True})
    if reply.hangs:
        while (await receive())["type"] != "http.disconnect":
            pass
        return
    # The server closes the connection of an answer that ends too early.
    raise ConnectionAbortedError("cut by a test")


def status(code: int, *, headers: Mapping[str, str] | None = None, body: bytes = b"{}") -> Spoiler:
    """Another answer altogether."""

    def spoil(reply: Reply) -> None:
        reply.status, reply.body = code, body
        reply.headers = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}

    return spoil


def web_page(code: int = 200) -> Spoiler:
    """A page of HTML, as a proxy or a log-in page would send."""
    return status(code, headers={"content-type": "text/html"}, body=b"<!doctype html><p>Please log in.</p>")


def document(value: Any) -> Spoiler:
    """A JSON answer."""
    return status(200, body=json.dumps(value).encode())


def edited(change: Callable[[Any], Any]) -> Spoiler:
    """The server's own JSON answer, changed."""

    def spoil(reply: Reply) -> None:
        reply.body = json.dumps(change(json.loads(reply.body))).encode()
        reply.headers["content-length"] = str(len(reply.body))

    return spoil


def cut(after_bytes: int) -> Spoiler:
    """The connection breaks after some bytes of the body."""

    def spoil(reply: Reply) -> None:
        reply.sent_bytes = after_bytes

    return spoil


def stall(after_bytes: int = 0) -> Spoiler:
    """Nothing more comes after some bytes of the body, but the connection stays."""

    def spoil(reply: Reply) -> None:
        reply.sent_bytes, reply.hangs = after_bytes, True

    return spoil


def flipped(reply: Reply) -> None:
    """One bit of the body is another."""
    middle = len(reply.body) // 2
    reply.body = reply.body[:middle] + bytes([reply.body[middle] ^ 1]) + reply.body[middle + 1 :]


def shortened(reply: Reply) -> None:
    """The last byte is missing, and the length says so."""
    reply.body = reply.body[:-1]
    reply.headers["content-length"] = str(len(reply.body))


def lengthened(reply: Reply) -> None:
    """A byte too much, and the length says so."""
    reply.body += b"\n"
    reply.headers["content-length"] = str(len(reply.body))


def relabelled(**headers: str) -> Spoiler:
    """Other headers; `_` in a name stands for `-`."""

    def spoil(reply: Reply) -> None:
        reply.headers |= {name.replace("_", "-"): value for name, value in headers.items()}

    return spoil


def without_range(reply: Reply) -> None:
    """A server that knows nothing of ranges; only for requests that it answered in whole."""
    reply.headers.pop("accept-ranges", None)


def redirect(location: str, code: int = 302) -> Spoiler:
    """A redirect to anywhere."""
    return status(code, headers={"location": location}, body=b"")
