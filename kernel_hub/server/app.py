"""A registry folder as an ASGI application: bodies in, bodies out.

File work runs in threads, so that one slow disk or client does not stop the others. Leaves out what the requests mean (see
`kernel_hub.server.routes`) and where the application listens (see `kernel_hub.server.http`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from kernel_hub.errors import BlobMismatchError, InvalidDocumentError, KernelHubError
from kernel_hub.model.commit import StoredBlob
from kernel_hub.server import routes
from kernel_hub.server.exchange import MIB, BodyKind, Call, FileReply, JsonReply, Refusal, Reply, Request, Site
from kernel_hub.server.record import RecordingApp, RequestRecord
from kernel_hub.sources.directory import DirectoryRegistry
from kernel_hub.sources.durable import new_name

_log = logging.getLogger(__name__)
# A client that is refused while it still sends would see a broken connection instead of the reason.
_DRAINED_BYTES = 8 * MIB
_MAX_QUERY_FIELDS = 200
_READING_THREADS = 16
_WRITING_THREADS = 8
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")
_T = TypeVar("_T")


def make_app(
    registry: DirectoryRegistry, *, site: Site | None = None, on_request: Callable[[RequestRecord], None] | None = None
) -> ASGIApp:
    """The ASGI application of a registry.

    Args:
        registry: What to serve.
        site: How to serve it.
        on_request: Called after each request, from the server's thread.
    """
    app = _RegistryApp(registry, site or Site())
    return app if on_request is None else RecordingApp(app, on_request)


class _RegistryApp:
    def __init__(self, registry: DirectoryRegistry, site: Site) -> None:
        self._registry = registry
        self._site = site
        # Writers may wait for each other's locks, so they must not take the threads that readers need.
        self._reading = ThreadPoolExecutor(_READING_THREADS, thread_name_prefix="kernel_hub-read")
        self._writing = ThreadPoolExecutor(_WRITING_THREADS, thread_name_prefix="kernel_hub-write")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        http = HttpRequest(scope, receive)
        try:
            response = await self._respond(http)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _respond(self, http: HttpRequest) -> Response:
        try:
            try:
                return await self._response(await self._reply(http), head=http.method == "HEAD")
            except KernelHubError as error:
                raise routes.refusal_of(error) from error
        except Refusal as refusal:
            await _drain(http)
            return _refusal_response(refusal)
        except ClientDisconnect:
            raise
        except Exception:  # noqa: BLE001 - the outermost place that can still answer the client
            _log.exception("a request could not be answered")
            return _refusal_response(Refusal(500, "the server failed; its log says why"))

    async def _reply(self, http: HttpRequest) -> Reply:
        path = http.scope["raw_path"].decode("ascii", errors="replace")
        route, names = routes.match(http.method, path)
        request = Request(
            method=http.method,
            origin=f"{http.url.scheme}://{_host(http)}",
            path=path,
            names=names,
            query=_query(http),
            headers=dict(http.headers),
            now_s=int(time.time()),
        )
        await _in(self._reading, routes.admit, self._registry, self._site, route, request)
        async with self._with_body(http, request, route.body) as complete:
            pool = self._writing if route.access is routes.Access.WRITE else self._reading
            return await _in(pool, routes.answer, route, Call(self._registry, self._site, complete))

    @contextlib.asynccontextmanager
    async def _with_body(self, http: HttpRequest, request: Request, kind: BodyKind) -> AsyncIterator[Request]:
        match kind:
            case BodyKind.NONE:
                yield request
            case BodyKind.SMALL:
                content = b"".join([chunk async for chunk in _body(http, self._site.max_small_body_bytes)])
                yield replace(request, body=content)
            case BodyKind.SPOOLED:
                spool = self._registry.scratch / new_name()
                try:
                    await self._spool(http, spool)
                    yield replace(request, spool=spool)
                finally:
                    spool.unlink(missing_ok=True)
            case BodyKind.BLOB:
                yield replace(request, blob=await self._blob(http, request))

    async def _spool(self, http: HttpRequest, path: Path) -> None:
        with path.open("xb") as file:
            async for chunk in _gathered(_body(http, self._site.max_commit_bytes)):
                await _in(self._reading, file.write, chunk)

    async def _blob(self, http: HttpRequest, request: Request) -> StoredBlob:
        size_bytes = int(request.query["size"])
        incoming = await _in(self._reading, self._registry.receive, size_bytes)
        try:
            async for chunk in _gathered(_body(http, size_bytes)):
                await _in(self._reading, incoming.write, chunk)
            return await _in(self._reading, functools.partial(incoming.finish, digest=request.names["digest"]))
        finally:
            await _in(self._reading, incoming.close)

    async def _response(self, reply: Reply, *, head: bool) -> Response:
        match reply:
            case JsonReply():
                content = b"" if reply.body is None else json.dumps(reply.body, ensure_ascii=False).encode()
                headers = {} if reply.body is None else {"Content-Type": "application/json"}
                return Response(content, reply.status, headers | dict(reply.headers))
            case FileReply():
                headers = dict(reply.headers) | {"Content-Length": str(reply.length_bytes)}
                if head:
                    return Response(None, reply.status, headers)
                chunks = self._registry.stored_chunks(
                    reply.blob, start_bytes=reply.start_bytes, length_bytes=reply.length_bytes
                )
                # The first piece is read before the status is sent, so that a lost blob is an error and not a cut body.
                first = await _in(self._reading, _first, chunks)
                return StreamingResponse(self._rest(first, chunks), reply.status, headers)

    async def _rest(self, first: bytes, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        yield first
        while (chunk := await _in(self._reading, next, chunks, None)) is not None:
            yield chunk


async def _in(pool: Executor, call: Callable[..., _T], *arguments: Any) -> _T:
    return await asyncio.get_running_loop().run_in_executor(pool, call, *arguments)


def _host(http: HttpRequest) -> str:
    host: str = http.headers.get("host", "localhost")
    if not _HOST.fullmatch(host):
        raise Refusal(400, "the Host header names no host")
    return host


def _query(http: HttpRequest) -> dict[str, str]:
    text = http.scope["query_string"].decode("ascii", errors="replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS))
    except ValueError as error:
        raise InvalidDocumentError("query", "has too many fields") from error


async def _body(http: HttpRequest, limit_bytes: int) -> AsyncIterator[bytes]:
    """The body's pieces, refused once they are more than `limit_bytes`, or announced to be."""
    announced = http.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise Refusal(413, f"the body is larger than {limit_bytes} bytes")
    seen_bytes = 0
    async for chunk in http.stream():
        seen_bytes += len(chunk)
        if seen_bytes > limit_bytes:
            raise Refusal(413, f"the body is larger than {limit_bytes} bytes")
        yield chunk


async def _gathered(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of about a MiB, so that each is worth a switch to a thread."""
    held: list[bytes] = []
    held_bytes = 0
    async for chunk in chunks:
        held.append(chunk)
        held_bytes += len(chunk)
        if held_bytes >= MIB:
            yield b"".join(held)
            held, held_bytes = [], 0
    if held:
        yield b"".join(held)


def _first(chunks: Iterator[bytes]) -> bytes:
    try:
        return next(chunks, b"")
    except BlobMismatchError as error:
        _log.error("%s", error)
        raise Refusal(500, "the registry's copy of this file is damaged") from error


async def _drain(http: HttpRequest) -> None:
    seen_bytes = 0
    with contextlib.suppress(RuntimeError):
        async for chunk in http.stream():
            seen_bytes += len(chunk)
            if seen_bytes > _DRAINED_BYTES:
                return


def _refusal_response(refusal: Refusal) -> Response:
    # A header is one line of ASCII; the body has the whole message.
    line = " ".join(refusal.message.split()).encode("ascii", errors="backslashreplace").decode("ascii")[:500]
    headers = dict(refusal.headers) | {"X-Error-Message": line, "Content-Type": "application/json"}
    if refusal.code:
        headers["X-Error-Code"] = refusal.code
    content = json.dumps({"error": refusal.message} | refusal.extra, ensure_ascii=True).encode()
    return Response(content, refusal.status, headers)
