"""One record of each request that an application answers. Leaves out what is done with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One answered request.

    Attributes:
        method, path, query: As sent, path and query still quoted.
        status: Of the answer; 0 if the client went away before it.
        received_bytes, sent_bytes: Lengths of the bodies.
        user_agent: The client's name for itself.
        has_authorization: Whether a token came with it.
        host: The authority that the client asked.
    """

    method: str
    path: str
    query: str
    status: int
    received_bytes: int
    sent_bytes: int
    user_agent: str
    has_authorization: bool
    host: str


class RecordingApp:
    """An application that reports each request before the client can have seen the end of its answer.

    Args:
        app: The application.
        on_request: Called once for each request.
    """

    def __init__(self, app: ASGIApp, on_request: Callable[[RequestRecord], None]) -> None:
        self._app = app
        self._on_request = on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _Seen(scope)

        async def counting_receive() -> Message:
            message = await receive()
            seen.received_bytes += len(message.get("body", b""))
            return message

        async def counting_send(message: Message) -> None:
            if seen.ends_with(message):
                self._report(seen)
            await send(message)

        try:
            await self._app(scope, counting_receive, counting_send)
        finally:
            self._report(seen)

    def _report(self, seen: _Seen) -> None:
        if not seen.reported:
            seen.reported = True
            self._on_request(seen.record())


class _Seen:
    """What has passed of one request."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._status = 0
        self._announced_bytes: int | None = None
        self._sent_bytes = 0
        self.received_bytes = 0
        self.reported = False

    def ends_with(self, message: Message) -> bool:
        """Count a message; whether a client that got it has the whole answer."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            length = dict(message.get("headers", ())).get(b"content-length")
            no_body = self._scope["method"] == "HEAD" or self._status == 304
            self._announced_bytes = 0 if no_body else int(length) if length is not None else None
            return self._announced_bytes == 0
        self._sent_bytes += len(message.get("body", b""))
        return not message.get("more_body", False) or self._sent_bytes == self._announced_bytes

    def record(self) -> RequestRecord:
        scope = self._scope
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        return RequestRecord(
            method=scope["method"],
            path=scope["raw_path"].decode("ascii", errors="replace"),
            query=scope["query_string"].decode("ascii", errors="replace"),
            status=self._status,
            received_bytes=self.received_bytes,
            sent_bytes=self._sent_bytes,
            user_agent=headers.get("user-agent", ""),
            has_authorization="authorization" in headers,
            host=headers.get("host", ""),
        )
