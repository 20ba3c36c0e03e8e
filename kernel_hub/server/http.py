"""Where a registry listens: uvicorn, in this thread or beside it. It prints nothing.

Only this machine can reach it unless the caller says otherwise. Leaves out what is answered (see `kernel_hub.server.app`);
TLS and users of their own are for a proxy in front.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from kernel_hub.errors import InvalidDocumentError, SourceUnavailableError
from kernel_hub.server.app import make_app
from kernel_hub.server.exchange import Site
from kernel_hub.server.record import RequestRecord
from kernel_hub.sources.directory import DirectoryRegistry

__all__ = ["RequestRecord", "RunningServer", "Site", "listen", "make_app", "serve"]

LOOPBACK = "127.0.0.1"
_SHUTDOWN_S = 2
_BACKLOG = 128


def serve(
    path: Path | str,
    host: str = LOOPBACK,
    port: int = 0,
    *,
    site: Site | None = None,
    allow_remote: bool = False,
    create: bool = False,
    on_request: Callable[[RequestRecord], None] | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve a registry folder until the process is asked to end.

    Args:
        path: The registry folder.
        host: The address to listen on.
        port: The port; 0 takes a free one.
        site: How to serve it.
        allow_remote: Whether an address that other machines can reach is meant.
        create: Whether to make the registry if the folder is absent or empty.
        on_request: Called after each request.
        on_ready: Called with the server's URL once it listens.

    Raises:
        InvalidDocumentError: If the folder is no registry, or other machines could reach `host` and that is not meant.
        SourceUnavailableError: If the address cannot be had.
    """
    registry = DirectoryRegistry.create(path) if create else DirectoryRegistry.open(path)
    listener = listen(host, port, allow_remote=allow_remote)
    if on_ready is not None:
        on_ready(_url(listener))
    _server(make_app(registry, site=site, on_request=on_request)).run(sockets=[listener])


def listen(host: str = LOOPBACK, port: int = 0, *, allow_remote: bool = False) -> socket.socket:
    """A listening socket.

    Raises:
        InvalidDocumentError: If other machines could reach it and that is not meant.
        SourceUnavailableError: If the address cannot be had.
    """
    if not allow_remote and not _is_loopback(host):
        raise InvalidDocumentError(
            "host",
            f"other machines can reach {host!r}",
            hint="if that is meant, say --allow-remote, and --token-env NAME so that not everybody may write",
        )
    # Named as TCP, because asyncio switches off the waiting for full packets (40 ms per answer) only for such sockets.
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise SourceUnavailableError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            url=f"http://{host}:{port}",
            hint="--port 0 takes a free port" if error.errno == errno.EADDRINUSE else "",
        ) from error
    return listener


class RunningServer:
    """An application that answers in a thread of its own, until it is stopped.

    Args:
        app: The application.
        listener: The socket to answer on; it is closed with the server.
    """

    def __init__(self, app: ASGIApp, listener: socket.socket | None = None) -> None:
        self._listener = listen() if listener is None else listener
        self.url = _url(self._listener)
        self._server = _server(app)
        # The socket listens already: a client that comes before the thread is ready waits in its queue.
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        self.ask_to_stop()
        self._thread.join()
        self._listener.close()

    def ask_to_stop(self) -> None:
        """Let it end soon; `stop` waits for that."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _server(app: ASGIApp) -> uvicorn.Server:
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
    )


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
