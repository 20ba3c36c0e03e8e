"""Faults between a server and its clients: an ASGI wrapper that makes the answers a test chooses late, wrong, cut or absent.

    faults = Faults()
    hub = start_hub(wrap=faults)
    faults.add(status(503), "/refs", times=1)
    faults.add(cut(100), "/resolve/", method="GET")

`Faults` holds rules; a rule says which requests it hits, how often, and what becomes of the answer. Rules can be added and
removed while the server runs. The server's log sees what the client sees.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Send

Headers = dict[str, str]


@dataclass
class Reply:
    """An answer on its way out: what a spoiler may change.

    Attributes:
        status, headers, body: The answer.
        method, target: The request's method, and its path and query as they were sent.
        late_s: How long it is held back.
        sent_bytes: How much of the body is sent before the connection breaks or hangs; None for all of it.
        hangs: Whether the rest never comes, instead of the connection being closed; without `sent_bytes` not even the head.
        released: Ends the hanging, by breaking the connection.
        is_absent: Whether the connection is closed without an answer.
    """

    status: int
    headers: Headers
    body: bytes
    method: str = "GET"
    target: str = ""
    late_s: float = 0.0
    sent_bytes: int | None = None
    hangs: bool = False
    released: threading.Event | None = None
    is_absent: bool = False


Spoiler = Callable[[Reply], None]


@dataclass
class Rule:
    """Which requests are hit and how.

    Attributes:
        spoil: What becomes of the answer.
        path: A text that the request's path holds; "" for every request.
        method: The request's method; None for every one.
        times: How often it hits; None for always.
        every: It hits every n-th of the matching requests.
        asks_the_server: Whether the server does what it is asked to, although the answer is another.
    """

    spoil: Spoiler
    path: str = ""
    method: str | None = None
    times: int | None = None
    every: int = 1
    asks_the_server: bool = True
    seen: int = 0
    hits: int = 0

    def takes(self, method: str, path: str) -> bool:
        if (
            self.method not in (None, method)
            or self.path not in path
            or (self.times is not None and self.hits >= self.times)
        ):
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
        """Add a rule; `options` are the rest of `Rule`."""
        rule = Rule(spoil, path, **options)
        with self._guard:
            self.rules.append(rule)
        return rule

    def paths(self, containing: str = "", *, method: str | None = None) -> list[str]:
        """The paths that were asked for."""
        return [path for asked, path, _ in self.asked if containing in path and method in (None, asked)]

    @property
    def hits(self) -> int:
        """How many requests were hit."""
        with self._guard:
            return sum(rule.hits for rule in self.rules)

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
                rule = next((rule for rule in self.rules if rule.takes(scope["method"], scope["path"])), None)
            if rule is None:
                await app(scope, receive, send)
                return
            reply = await _answer(app, scope, receive) if rule.asks_the_server else Reply(200, {}, b"")
            query = scope["query_string"].decode("ascii")
            path = scope["raw_path"].decode("ascii", errors="replace")
            reply.method, reply.target = scope["method"], path + (f"?{query}" if query else "")
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


async def _send(reply: Reply, receive: Receive, send: Send) -> None:
    await asyncio.sleep(reply.late_s)
    if reply.is_absent:
        # ASGI has no word for this; a header that HTTP does not allow makes the server give the connection up.
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-fault", b"\n")]})
        return
    if reply.hangs and reply.sent_bytes is None:
        await _until_released(reply.released, receive)
        return
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if reply.sent_bytes is None:
        await send({"type": "http.response.body", "body": b"" if reply.method == "HEAD" else reply.body})
        return
    await send({"type": "http.response.body", "body": reply.body[: reply.sent_bytes], "more_body": True})
    if reply.hangs:
        await _until_released(reply.released, receive)
        return
    # The server closes the connection of an answer that ends too early.
    raise ConnectionAbortedError("cut by a test")


async def _until_released(released: threading.Event | None, receive: Receive) -> None:
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        while not gone.done() and not (released is not None and released.is_set()):
            # Without an event there is nothing to look at but the client.
            await asyncio.wait([gone], timeout=None if released is None else 0.02)
    finally:
        gone.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def status(code: int, *, headers: Mapping[str, str] | None = None, body: bytes = b"{}") -> Spoiler:
    """Another answer altogether."""

    def spoil(reply: Reply) -> None:
        reply.status, reply.body = code, body
        reply.headers = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}

    return spoil


def busy(code: int = 429, *, retry_after_s: int | None = None) -> Spoiler:
    """A refusal that asks to come again."""
    return status(code, headers={} if retry_after_s is None else {"retry-after": str(retry_after_s)})


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


def stall(after_bytes: int | None = 0, *, released: threading.Event | None = None) -> Spoiler:
    """Nothing more comes after some bytes of the body, but the connection stays.

    Args:
        after_bytes: None for not even the answer's head.
        released: Breaks the connection in the end.
    """

    def spoil(reply: Reply) -> None:
        reply.sent_bytes, reply.hangs, reply.released = after_bytes, True, released

    return spoil


def late(by_s: float) -> Spoiler:
    """The right answer, late."""

    def spoil(reply: Reply) -> None:
        reply.late_s = by_s

    return spoil


def absent(reply: Reply) -> None:
    """The connection is closed without an answer."""
    reply.is_absent = True


def misannounced(by_bytes: int) -> Spoiler:
    """The announced length is wrong; a body that is longer than announced is cut to fit."""

    def spoil(reply: Reply) -> None:
        length_bytes = max(0, int(reply.headers.get("content-length", "0")) + by_bytes)
        for name in {"content-length", "x-linked-size"} & set(reply.headers):
            reply.headers[name] = str(length_bytes)
        reply.body = reply.body[:length_bytes]
        if len(reply.body) < length_bytes and reply.method != "HEAD":
            reply.sent_bytes = len(reply.body)

    return spoil


def flipped_at(index: int) -> Spoiler:
    """One bit of one byte of the body is another; lengths and identities stay."""

    def spoil(reply: Reply) -> None:
        if reply.body:
            at = index % len(reply.body)
            reply.body = reply.body[:at] + bytes([reply.body[at] ^ 1]) + reply.body[at + 1 :]

    return spoil


def flipped(reply: Reply) -> None:
    """One bit in the middle of the body is another."""
    flipped_at(len(reply.body) // 2)(reply)


def shortened(reply: Reply) -> None:
    """The last byte is missing, and the length says so."""
    reply.body = reply.body[:-1]
    reply.headers["content-length"] = str(len(reply.body))


def lengthened(reply: Reply) -> None:
    """A byte too much, and the length says so."""
    reply.body += b"\n"
    reply.headers["content-length"] = str(len(reply.body))


def relabelled(**headers: str | None) -> Spoiler:
    """Other headers, without those that are None; `_` in a name stands for `-`."""

    def spoil(reply: Reply) -> None:
        for name, value in headers.items():
            reply.headers.pop(name.replace("_", "-"), None)
            if value is not None:
                reply.headers[name.replace("_", "-")] = value

    return spoil


def without_range(reply: Reply) -> None:
    """A server that knows nothing of ranges; only for requests that it answered in whole."""
    reply.headers.pop("accept-ranges", None)


def redirect(location: str, code: int = 302) -> Spoiler:
    """A redirect to anywhere."""
    return status(code, headers={"location": location}, body=b"")


def moved(origin: str, code: int = 302) -> Spoiler:
    """A redirect to the same path and query elsewhere."""

    def spoil(reply: Reply) -> None:
        redirect(origin + reply.target, code)(reply)

    return spoil


def traversal(path: str = "../../outside.py") -> Spoiler:
    """A listing whose first file has another path."""

    def change(rows: Any) -> Any:
        first = next(index for index, row in enumerate(rows) if row["type"] == "file")
        return [row | {"path": path} if index == first else row for index, row in enumerate(rows)]

    return edited(change)


def oversized_listing(rows: int) -> Spoiler:
    """A listing with so many files more than there are."""

    def change(found: Any) -> Any:
        blob = "0" * 40
        return found + [{"type": "file", "path": f"more/{n}", "size": 1, "oid": blob} for n in range(rows)]

    return edited(change)
