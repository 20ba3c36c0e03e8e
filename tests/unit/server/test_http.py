"""Where the server listens, and how it starts and ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError, SourceUnavailableError
from kernel_hub.server.http import listen
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.hub import running_hub
from tests.support.raw_http import ask

PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize("host", ["0.0.0.0", "", "192.0.2.1", "::", "example.org"])
def test_address_that_others_can_reach_must_be_meant(host: str) -> None:
    with pytest.raises(InvalidDocumentError, match="other machines can reach"):
        listen(host)


def test_taken_port_is_named() -> None:
    with listen() as taken, pytest.raises(SourceUnavailableError, match=str(taken.getsockname()[1])):
        listen(port=taken.getsockname()[1])


def test_stopped_server_refuses_connections(tmp_path: Path) -> None:
    with running_hub(tmp_path / "registry") as hub:
        assert ask(hub.url, "/api/kernels").status == 200
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(hub.url.rpartition(":")[2])))


def test_answers_do_not_wait_for_full_packets(tmp_path: Path) -> None:
    """With the system's default an answer of two packets waits 40 ms for the client's acknowledgement."""
    with listen() as listener, socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
        assert accepted.proto == socket.IPPROTO_TCP


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one child process")
def test_serve_says_where_it_is_and_ends_when_interrupted(tmp_path: Path) -> None:
    DirectoryRegistry.create(tmp_path / "registry")
    code = (
        "import sys; from kernel_hub.server.http import serve\n"
        "try:\n"
        "    serve(sys.argv[1], on_ready=lambda url: print(url, flush=True))\n"
        "except KeyboardInterrupt:\n"
        "    pass\n"
    )
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "PYTHONWARNINGS": "error"}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "registry")], stdout=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert ask(url, "/api/kernels").document == []
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) == 0


def test_serve_refuses_a_folder_that_is_no_registry(tmp_path: Path) -> None:
    from kernel_hub.server.http import serve

    with pytest.raises(InvalidDocumentError, match="is no registry"):
        serve(tmp_path)
