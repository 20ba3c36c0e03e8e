"""Loads kernels in a process of their own and tells what came of it, with some doors shut."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.child import PROJECT, become_ordinary

_PROGRAM = """
import errno, json, logging, os, sys

wish = json.loads(sys.argv[1])
notices = []
attempts = []


class Keep(logging.Handler):
    def emit(self, record):
        notices.append([record.levelname, record.getMessage()])


logging.getLogger("kernel_hub").addHandler(Keep())
logging.getLogger("kernel_hub").setLevel(logging.INFO)

import kernel_hub

WRITING = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.utime", "os.truncate"}


def watch(event, arguments):
    if wish["no_sockets"] and event in ("socket.connect", "socket.getaddrinfo", "socket.bind", "socket.sendto"):
        attempts.append(event)
        raise OSError(errno.ENETUNREACH, "this process has no network")
    if wish["no_writes_below"]:
        writes = event in WRITING or (
            event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        )
        paths = [os.fsdecode(path) for path in arguments if isinstance(path, (str, bytes, os.PathLike))]
        if writes and any(path.startswith(wish["no_writes_below"]) for path in paths):
            raise RuntimeError(f"{event} {arguments} in a tree that may not be written")


sys.addaudithook(watch)
results = []
for call in wish["calls"]:
    try:
        module = kernel_hub.get_kernel("acme/axpy", backend="cpu", **call)
        (record,) = [kernel for kernel in kernel_hub.loaded_kernels() if kernel.module is module][:1]
        results.append({"value": module.axpy(2, [1], [1]), "origin": str(record.origin)})
    except kernel_hub.KernelHubError as error:
        results.append({"error": type(error).__name__, "text": str(error)})
print(json.dumps({"results": results, "notices": notices, "attempts": attempts}))
"""


@dataclass(frozen=True)
class Told:
    """What a child tells.

    Attributes:
        results: For each call, `value` and `origin`, or `error` and `text`.
        notices: The log's records at INFO and above, as level and text.
        attempts: What it tried to do with sockets that it may not use.
    """

    results: list[dict[str, Any]]
    notices: list[tuple[str, str]]
    attempts: list[str]

    @property
    def values(self) -> list[Any]:
        """The kernels' results; for a call that failed, its whole answer."""
        return [result.get("value", result) for result in self.results]

    @property
    def warnings(self) -> list[str]:
        return [text for level, text in self.notices if level == "WARNING"]


def start_loading(
    environ: dict[str, str],
    calls: Sequence[dict[str, Any]],
    *,
    no_sockets: bool = False,
    no_writes_below: Path | None = None,
    ordinary: bool = False,
) -> subprocess.Popen[str]:
    """Begin to load `acme/axpy` in a child, once for each of `calls`; the arguments are those of `get_kernel`.

    Args:
        environ: The child's environment.
        calls: The calls.
        no_sockets: Whether every use of a socket fails.
        no_writes_below: A folder; every attempt to write below it fails the child, even if it would have been refused.
        ordinary: Whether permissions of files hold for the child although it is root's.
    """
    wish = {
        "calls": list(calls),
        "no_sockets": no_sockets,
        "no_writes_below": str(no_writes_below) if no_writes_below else "",
    }
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, json.dumps(wish)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=become_ordinary if ordinary else None,
        env=environ | {"PYTHONPATH": str(PROJECT), "PYTHONWARNINGS": "error"},
    )


def finish_loading(child: subprocess.Popen[str]) -> Told:
    """Wait for a child."""
    output, errors = child.communicate(timeout=300)
    assert child.returncode == 0, errors
    told = json.loads(output)
    return Told(told["results"], [(level, text) for level, text in told["notices"]], told["attempts"])


def load(environ: dict[str, str], *calls: dict[str, Any], **doors: Any) -> Told:
    """Load in a child and wait; see `start_loading`."""
    return finish_loading(start_loading(environ, calls or ({"version": 1},), **doors))
