"""Files by redirects, as the Hub itself serves them; put around the loopback Hub, which serves them directly."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.types import ASGIApp, Message, Receive, Scope, Send


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

    async def send(self, send: Send) -> None:
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.content})


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
