"""`kernel-hub serve`: a registry folder behind the Hub's HTTP API, until interrupted."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.sources.directory import DirectoryRegistry
from tests.cli.conftest import Run
from tests.support.fake_kernels import publish_fake_kernel

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="interrupts the server by a signal")


# A shell that starts tests in the background makes them ignore interruptions, and children inherit that.
PROGRAM = (
    "import signal, sys\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from kernel_hub.cli import main\n"
    "sys.exit(main())\n"
)


@dataclass(slots=True)
class Server:
    """A server in a process of its own; code and notices are known once it has ended."""

    url: str
    code: int = -1
    notices: str = ""


@contextmanager
def serving(*words: str) -> Iterator[Server]:
    """A server that is interrupted at the end."""
    program = [sys.executable, "-c", PROGRAM, "serve", *words, "--port", "0", "--json"]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            document = ""
            while not document.endswith("}\n"):
                line = child.stdout.readline()
                assert line, child.stderr.read()
                document += line
            server = Server(json.loads(document)["url"])
            yield server
        finally:
            child.send_signal(signal.SIGINT)
            child.wait()
            notices = child.stderr.read()
        server.code, server.notices = child.returncode, notices


def get(url: str, token: str | None = None) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_the_registry_is_served_until_an_interruption(registry: DirectoryRegistry, tmp_path: Path) -> None:
    commit = publish_fake_kernel(registry)
    with serving(str(tmp_path / "registry"), "--verbose") as server:
        assert server.url.startswith("http://127.0.0.1:")
        branches = get(f"{server.url}/api/kernels/acme/axpy/refs")["branches"]
    assert {branch["name"]: branch["targetCommit"] for branch in branches}["v1"] == commit
    assert server.code == 130
    assert "200 GET /api/kernels/acme/axpy/refs" in server.notices
    assert server.notices.endswith("interrupted\n")


def test_a_new_registry_is_made_on_request_only(home: Path, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "new"
    result = run("serve", str(folder), "--port", "0", "--json")
    assert (result.code, result.error["type"]) == (2, "InvalidDocumentError")
    assert not folder.exists()
    with serving(str(folder), "--create"):
        DirectoryRegistry.open(folder)


def test_a_private_server_asks_for_the_token_in_the_named_variable(
    registry: DirectoryRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_fake_kernel(registry)
    monkeypatch.setenv("SERVER_TOKEN", "hf_" + "x" * 34)
    with serving(str(tmp_path / "registry"), "--token-env", "SERVER_TOKEN", "--private") as server:
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(f"{server.url}/api/kernels/acme/axpy/refs")
        refused.value.close()
        assert refused.value.code in (401, 404)
        assert get(f"{server.url}/api/kernels/acme/axpy/refs", "hf_" + "x" * 34)["branches"]


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["--token-env", "NOT_SET_ANYWHERE"], "UsageError", 2),
        (["--host", "0.0.0.0"], "InvalidDocumentError", 2),
        (["--host", "192.0.2.1", "--allow-remote"], "SourceUnavailableError", 5),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_served_is_an_error(
    run: Run, registry: DirectoryRegistry, tmp_path: Path, words: list[str], kind: str, code: int
) -> None:
    result = run("serve", str(tmp_path / "registry"), "--port", "0", *words, "--json")
    assert (result.code, result.error["type"]) == (code, kind)


def test_what_may_not_or_cannot_be_listened_on_names_the_option(
    run: Run, registry: DirectoryRegistry, tmp_path: Path
) -> None:
    words = ("serve", str(tmp_path / "registry"))
    remote = run(*words, "--host", "0.0.0.0", "--json").error["hint"]
    assert "--allow-remote" in remote
    assert "--token-env" in remote
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run(*words, "--port", str(taken.getsockname()[1]), "--json")
    assert result.code == 5
    assert "--port 0" in result.error["hint"]


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_what_is_no_port_is_refused(run: Run, tmp_path: Path, port: str) -> None:
    result = run("serve", str(tmp_path), "--create", "--port", port, "--json")
    assert (result.code, result.error["type"]) == (2, "UsageError")
    assert port in result.error["message"]
