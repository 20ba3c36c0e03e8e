"""Requests as no well-behaved client would send them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class RawAnswer:
    """An answer, with header names in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.content)


def ask(
    url: str,
    path: str,
    *,
    method: str = "GET",
    body: bytes | Any = None,
    headers: Mapping[str, str] | None = None,
) -> RawAnswer:
    """Send a path exactly as it is written, on a connection of its own. An iterable body is sent in chunks."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return RawAnswer(response.status, found, response.read())
    finally:
        connection.close()


def ask_json(url: str, path: str, document: Any, *, method: str = "POST", **headers: str) -> RawAnswer:
    """Send a JSON document."""
    body = json.dumps(document).encode()
    return ask(url, path, method=method, body=body, headers={"Content-Type": "application/json"} | headers)


def ndjson(*lines: tuple[str, Mapping[str, Any]]) -> bytes:
    """The body of a commit."""
    return b"".join(json.dumps({"key": key, "value": value}).encode() + b"\n" for key, value in lines)
