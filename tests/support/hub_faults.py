"""Faults to put between a client and the loopback Hub: late, wrong, cut, moved, or malicious answers.

    faults = Faults()
    hub = start_hub(wrap=faults.around)
    faults.add(Answer(503), path="/refs", times=1)
    faults.add(CutBody(100), method="GET", path="/resolve/")

A request suffers the first fault that matches it and is not used up. The server's log sees what the client sees.
`HubLayout` is no fault: it serves files by redirects, as the Hub itself does.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True)
class Delay:
    """The right answer, late by so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Stall:
    """No answer until `released` is set or the client goes away; with `after_bytes`, that many bytes of the body first."""

    released: threading.Event = field(default_factory=threading.Event)
    after_bytes: int | None = None


@dataclass(frozen=True)
class Answer:
    """Another answer: an error status, an HTML page, anything."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes = b"fault"


@dataclass(frozen=True)
class HangUp:
    """The connection is closed without an answer."""


@dataclass(frozen=True)
class CutBody:
    """The connection is closed after so many bytes of the body."""

    after_bytes: int


@dataclass(frozen=True)
class FlipByte:
    """One bit of one byte of the body is wrong; lengths and identities stay."""

    at: int = 0


@dataclass(frozen=True)
class WrongLength:
    """The announced length is wrong by `delta_bytes`; a body that is longer than announced is cut to fit."""

    delta_bytes: int


@dataclass(frozen=True)
class SetHeaders:
    """Headers are replaced, or removed where the value is None."""

    headers: Mapping[str, str | None]


@dataclass(frozen=True)
class Redirect:
    """The client is sent to `origin`, with the same path and query."""

    origin: str
    status: int = 302


@dataclass(frozen=True)
class RewriteJson:
    """The answer's JSON document is changed."""

    change: Callable[[Any], Any]


Effect: TypeAlias = (
    Delay | Stall | Answer | HangUp | CutBody | FlipByte | WrongLength | SetHeaders | Redirect | RewriteJson
)

HTML_PAGE = Answer(
    200, {"Content-Type": "text/html"}, b"<!DOCTYPE html><html><body>Log in to the network</body></html>"
)


def busy(status: int = 429, *, retry_after_s: int | None = None) -> Answer:
    """A refusal that asks to come again."""
    return Answer(status, {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}, b"busy")


def traversal(path: str = "../../outside.py") -> RewriteJson:
    """A listing whose first file has another path."""

    def change(rows: Any) -> Any:
        first = next(index for index, row in enumerate(rows) if row["type"] == "file")
        return [row | {"path": path} if index == first else row for index, row in enumerate(rows)]

    return RewriteJson(change)


def oversized_listing(rows: int) -> RewriteJson:
    """A listing with so many files more than there are."""

    def change(found: Any) -> Any:
        blob = "0" * 40
        return found + [{"type": "file", "path": f"more/{n}", "size": 1, "oid": blob} for n in range(rows)]

    return RewriteJson(change)


@dataclass
class _Fault:
    effect: Effect
    method: str | None
    path: str
    every: int
    times: int | None
    matched: int = 0
    used: int = 0

    def strikes(self, method: str, path: str) -> bool:
        if (self.method not in (None, method)) or self.path not in path:
            return False
        self.matched += 1
        if self.matched % self.every or (self.times is not None and self.used >= self.times):
            return False
        self.used += 1
        return True


class Faults:
    """The faults of one server; they may be changed while it runs."""

    def __init__(self) -> None:
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()

    def add(
        self, effect: Effect, *, method: str | None = None, path: str = "", every: int = 1, times: int | None = None
    ) -> None:
        """Let matching requests suffer an effect.

        Args:
            effect: What happens to them.
            method: Only these; HEAD is not GET.
            path: Only paths, as they are sent, that hold this text.
            every: Only each n-th of those.
            times: Only so many, then no more.
        """
        with self._lock:
            self._faults.append(_Fault(effect, method, path, every, times))

    def clear(self) -> None:
        """End all faults."""
        with self._lock:
            self._faults.clear()

    @property
    def used(self) -> int:
        """How many requests suffered one."""
        with self._lock:
            return sum(fault.used for fault in self._faults)

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application, with these faults before it."""

        async def faulty(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            effect = self._effect(scope["method"], scope["raw_path"].decode("ascii", errors="replace"))
            if effect is None:
                await app(scope, receive, send)
            else:
                await _suffer(effect, app, scope, receive, send)

        return faulty

    def _effect(self, method: str, path: str) -> Effect | None:
        with self._lock:
            return next((fault.effect for fault in self._faults if fault.strikes(method, path)), None)


@dataclass
class _Whole:
    """A whole answer of the application."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in message["headers"]}
        else:
            self.content += message.get("body", b"")

    async def send(self, send: Send, *, ends: bool = True, content: bytes | None = None) -> None:
        """Send it; if it does not end, the server closes the connection."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        body = self.content if content is None else content
        await send({"type": "http.response.body", "body": body, "more_body": not ends})


async def _suffer(effect: Effect, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    match effect:
        case Delay():
            await asyncio.sleep(effect.seconds)
            await app(scope, receive, send)
            return
        case Answer():
            headers = {name.lower(): value for name, value in effect.headers.items()}
            content = b"" if scope["method"] == "HEAD" else effect.content
            await _Whole(effect.status, headers | {"content-length": str(len(effect.content))}, content).send(send)
            return
        case HangUp():
            # ASGI has no word for this; a header that HTTP does not allow makes the server give the connection up.
            await send({"type": "http.response.start", "status": 200, "headers": [(b"x-fault", b"\n")]})
            return
        case Redirect():
            query = scope["query_string"].decode("ascii")
            place = effect.origin + scope["raw_path"].decode("ascii") + (f"?{query}" if query else "")
            await _Whole(effect.status, {"location": place, "content-length": "0"}).send(send)
            return
        case Stall(after_bytes=None):
            await _until_released(effect.released, receive)
            return
    whole = _Whole()
    await app(scope, receive, whole.take)
    match effect:
        case Stall():
            await whole.send(send, ends=False, content=whole.content[: effect.after_bytes])
            await _until_released(effect.released, receive)
        case CutBody():
            await whole.send(send, ends=False, content=whole.content[: effect.after_bytes])
        case FlipByte():
            if whole.content:
                at = effect.at % len(whole.content)
                flipped = bytes([whole.content[at] ^ 1])
                whole.content = whole.content[:at] + flipped + whole.content[at + 1 :]
            await whole.send(send)
        case WrongLength():
            length_bytes = max(0, int(whole.headers.get("content-length", "0")) + effect.delta_bytes)
            for name in ("content-length", "x-linked-size"):
                if name in whole.headers:
                    whole.headers[name] = str(length_bytes)
            content = whole.content[:length_bytes]
            await whole.send(send, ends=len(content) == length_bytes or scope["method"] == "HEAD", content=content)
        case SetHeaders():
            changed = whole.headers | {name.lower(): value for name, value in effect.headers.items()}
            whole.headers = {name: value for name, value in changed.items() if value is not None}
            await whole.send(send)
        case RewriteJson():
            whole.content = json.dumps(effect.change(json.loads(whole.content))).encode()
            whole.headers["content-length"] = str(len(whole.content))
            await whole.send(send)


async def _until_released(released: threading.Event, receive: Receive) -> None:
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        while not released.is_set() and not gone.done():
            await asyncio.wait([gone], timeout=0.02)
    finally:
        gone.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(frozen=True)
class HubLayout:
    """Files as the Hub serves them: large ones from another origin by 302, small ones by 307 from a cache of its own.

    Attributes:
        elsewhere: The URL of a second server over the same registry, where large files are.
    """

    elsewhere: str

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application, with its files moved."""

        async def moved(scope: Scope, receive: Receive, send: Send) -> None:
            path = scope["raw_path"].decode("ascii", errors="replace") if scope["type"] == "http" else ""
            cached = path.removeprefix("/api/resolve-cache")
            if cached != path:
                await app({**scope, "raw_path": cached.encode(), "path": cached}, receive, send)
            elif "/resolve/" in path and scope["method"] in ("GET", "HEAD"):
                await self._redirect(app, scope, receive, send)
            else:
                await app(scope, receive, send)

        return moved

    async def _redirect(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        whole = _Whole()
        # Conditions and ranges are for the place that has the bytes.
        unconditional = [(name, value) for name, value in scope["headers"] if name not in (b"range", b"if-none-match")]
        await app({**scope, "method": "HEAD", "headers": unconditional}, receive, whole.take)
        path = scope["raw_path"].decode("ascii")
        if whole.status != 200:
            await whole.send(send)
            return
        large = "x-linked-etag" in whole.headers
        place = f"{self.elsewhere}{path}?signature={quote('granted')}" if large else f"/api/resolve-cache{path}"
        kept = {name: value for name, value in whole.headers.items() if name.startswith("x-") or name == "etag"}
        await _Whole(302 if large else 307, kept | {"location": place, "content-length": "0"}).send(send)
