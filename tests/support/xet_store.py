"""A store of chunks on this machine, as far as `hf_xet` reads from one, and the Hub's side that leads to it.

Files lie in it as one xorb each, of uncompressed chunks (https://huggingface.co/docs/xet, "Xorb format" and "CAS API").
Ids are SHA-256 digests here, because the client does not check them; writing is not offered.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support import faults as fault
from tests.support.faults import Faults

STORE_TOKEN = "a-token-of-the-store"
_CHUNK_BYTES = 1 << 16


def xet_id(content: bytes) -> str:
    """The id of a file in the store."""
    return hashlib.sha256(b"xet:" + content).hexdigest()


@dataclass
class XetStore:
    """A running store.

    Attributes:
        url: Its address.
        files: By id.
        asked: Every request: method, path and headers by lower-case name.
        status: Another status to answer everything with, once it is set.
        silent: While this is set, nothing is answered.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    status: int = 200
    silent: threading.Event = field(default_factory=threading.Event)
    speaks: threading.Event = field(default_factory=threading.Event)

    def put(self, content: bytes) -> str:
        """Add a file; its id."""
        self.files[xet_id(content)] = content
        return xet_id(content)

    def offer(self, faults: Faults, *contents: bytes) -> None:
        """Let a Hub offer files that are published there too.

        Args:
            faults: Of that Hub.
            contents: The files' bytes.
        """
        ids = {hashlib.sha256(content).hexdigest(): self.put(content) for content in contents}

        def offered(rows: Any) -> Any:
            return [row | {"xetHash": ids[row["lfs"]["oid"]]} if _is_among(row, ids) else row for row in rows]

        faults.add(fault.edited(offered), "/tree/")
        faults.add(fault.status(200, headers=self.token_headers()), "/xet-read-token/")

    def token_headers(self) -> dict[str, str]:
        """How a Hub gives out a token of the store."""
        return {
            "x-xet-cas-url": self.url,
            "x-xet-access-token": STORE_TOKEN,
            "x-xet-token-expiration": str(int(time.time()) + 3600),
        }


def _is_among(row: Any, ids: dict[str, str]) -> bool:
    return row.get("lfs", {}).get("oid") in ids


@contextlib.contextmanager
def running_store() -> Iterator[XetStore]:
    """A store until the block ends."""
    store = XetStore()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(store))
    store.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        store.speaks.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(store: XetStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *told: object) -> None:
            del told

        def do_GET(self) -> None:
            self._note()
            kind, _, id = self.path.rpartition("/")
            content = store.files.get(id)
            if store.silent.is_set():
                store.speaks.wait()
            if store.status != 200:
                self._answer(store.status, b"")
            elif content is None or kind not in ("/v1/reconstructions", "/xorbs"):
                self._answer(404, b"")
            elif kind == "/xorbs":
                first, last = self.headers["range"].removeprefix("bytes=").split("-")
                self._answer(206, _xorb(content)[int(first) : int(last) + 1])
            else:
                self._answer(200, json.dumps(_plan(store.url, id, content)).encode())

        def do_POST(self) -> None:
            self._note()
            self.rfile.read(int(self.headers.get("content-length", "0")))
            self._answer(200, b"")

        def _note(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            store.asked.append((self.command, self.path, headers))

        def _answer(self, status: int, content: bytes) -> None:
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

    return Handler


def _chunks(content: bytes) -> list[bytes]:
    return [content[start : start + _CHUNK_BYTES] for start in range(0, len(content), _CHUNK_BYTES)]


def _xorb(content: bytes) -> bytes:
    """Each chunk after its header: format, length as stored, kind of compression, length in full."""
    parts = []
    for chunk in _chunks(content):
        length = len(chunk).to_bytes(3, "little")
        parts += [b"\0", length, b"\0", length, chunk]
    return b"".join(parts)


def _plan(url: str, id: str, content: bytes) -> dict[str, Any]:
    chunks = {"start": 0, "end": len(_chunks(content))}
    stored = {"start": 0, "end": len(_xorb(content)) - 1}
    return {
        "offset_into_first_range": 0,
        "terms": [{"hash": id, "unpacked_length": len(content), "range": chunks}],
        "fetch_info": {id: [{"range": chunks, "url": f"{url}/xorbs/{id}", "url_range": stored}]},
    }
