"""Publishing to a Hub over HTTP: hundreds of files, a server that refuses at times, a publisher that dies."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.build.pipeline import build
from kernel_hub.build.publish import Status, publish
from kernel_hub.build.sending import Bounds
from kernel_hub.errors import SourceUnavailableError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition
from kernel_hub.sources.hub import HubSink
from kernel_hub.sources.hub_http import Limits
from tests.support.child import PROJECT

AXPY = Path(__file__).parents[1] / "vectors" / "recipes" / "axpy"
REPO = RepoId("acme", "axpy")
FILES = 600
OTHERS = {"docs/guide.md": b"kept", "build/torch29-cxx11-cpu-x86_64-linux/metadata.json": b"{}"}

PUBLISH = """
import sys
from pathlib import Path
from kernel_hub.build.publish import publish
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.hub import HubSink
publish(Path(sys.argv[1]), HubSink(sys.argv[2], token="t"), RepoId("acme", "axpy"))
"""
LOAD = """
import sys
from kernels import get_kernel
kernel = get_kernel("acme/axpy", version=1, trust_remote_code=True)
import torch
print(kernel.axpy(1.0, torch.ones(2), torch.zeros(2)).tolist())
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A build of hundreds of files."""
    folder = tmp_path / "axpy"
    shutil.copytree(AXPY, folder)
    for index in range(FILES):
        (folder / "torch-ext" / "axpy" / f"part_{index}.py").write_text(f"NUMBER = {index}\n")
    build(folder, backends=["cuda"])
    return folder


def seed(hub: Any) -> None:
    """Other builds and documents on the branch."""
    hub.registry.create_repo(REPO)
    hub.registry.commit(
        REPO,
        "v1",
        parent=hub.registry.create_branch(REPO, "v1"),
        additions=[Addition(path, content) for path, content in OTHERS.items()],
        deletions=(),
        message="by hand",
    )


def paths(hub: Any) -> set[str]:
    return {entry.path for entry in hub.registry.files(REPO, hub.registry.refs(REPO).branches["v1"])}


def is_commit(scope: dict[str, Any]) -> bool:
    return scope["type"] == "http" and scope["method"] == "POST" and "/commit/" in scope["path"]


class Refusing:
    """Answers the first commits with the given statuses before it lets one through."""

    def __init__(self, app: Any, statuses: list[int]) -> None:
        self._app = app
        self._statuses = statuses

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if is_commit(scope) and self._statuses:
            while (await receive()).get("more_body"):
                pass
            headers = [(b"retry-after", b"1"), (b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": self._statuses.pop(0), "headers": headers})
            await send({"type": "http.response.body", "body": b"not now"})
            return
        await self._app(scope, receive, send)


def test_hundreds_of_files_arrive_although_the_server_refuses_at_times(
    kernel: Path, start_hub: Callable[..., Any]
) -> None:
    waited: list[float] = []
    hub = start_hub(wrap=lambda app: Refusing(app, [504, 429, 429]))
    seed(hub)
    report = publish(kernel, HubSink(hub.url, token="t", sleep=waited.append), REPO)
    assert report.status is Status.PUBLISHED
    assert paths(hub) == set(report.added) | set(OTHERS)
    assert len(report.added) > FILES
    assert len(waited) == 3
    before = dict(hub.registry.refs(REPO).branches)
    hub.log.clear()
    again = publish(kernel, HubSink(hub.url, token="t"), REPO)
    assert again.status is Status.UNCHANGED
    assert dict(hub.registry.refs(REPO).branches) == before
    assert hub.log.matching(method="POST") == ()


class Killing:
    """Kills a process when its commit begins to arrive."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.victim: int | None = None
        self.killed = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if is_commit(scope) and self.victim is not None:
            os.kill(self.victim, signal.SIGKILL)
            self.victim = None
            self.killed += 1
            return
        await self._app(scope, receive, send)


def test_a_publisher_that_dies_midway_leaves_the_old_state_and_can_be_run_again(
    kernel: Path, start_hub: Callable[..., Any], tmp_path: Path
) -> None:
    killing: list[Killing] = []

    def wrap(app: Any) -> Killing:
        killing.append(Killing(app))
        return killing[0]

    hub = start_hub(wrap=wrap)
    seed(hub)
    before = paths(hub)
    environment = hub.child_environment(tmp_path / "home", PYTHONPATH=str(PROJECT))
    # The child waits for its first line, so that the server knows whom to kill before anything is sent.
    with subprocess.Popen(
        [sys.executable, "-c", f"input()\n{PUBLISH}", str(kernel), hub.url], env=environment, stdin=subprocess.PIPE
    ) as child:
        killing[0].victim = child.pid
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()
        assert child.wait(timeout=120) == -signal.SIGKILL
    assert killing[0].killed == 1
    assert paths(hub) == before
    report = publish(kernel, HubSink(hub.url, token="t"), REPO)
    assert paths(hub) == set(report.added) | set(OTHERS)


def test_the_peer_loads_what_was_published(start_hub: Callable[..., Any], tmp_path: Path) -> None:
    hub = start_hub()
    shutil.copytree(AXPY, tmp_path / "axpy")
    build(tmp_path / "axpy")
    publish(tmp_path / "axpy", HubSink(hub.url, token="t"), REPO)
    ran = subprocess.run(
        [sys.executable, "-c", LOAD], env=hub.child_environment(tmp_path / "home"), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "[2.0, 2.0]"


class Stopping:
    """Lets the given number of commits through, and answers no more of them until it is told to."""

    def __init__(self, app: Any, commits: int) -> None:
        self._app = app
        self.left: float = commits

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if is_commit(scope):
            if self.left <= 0:
                while (await receive()).get("more_body"):
                    pass
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b"not now"})
                return
            self.left -= 1
        await self._app(scope, receive, send)


def labels(hub: Any) -> set[str]:
    return {path.split("/")[1] for path in paths(hub) if path.endswith("/metadata.json")}


def test_a_publication_in_parts_that_is_broken_off_leaves_whole_builds_and_goes_on(
    tmp_path: Path, start_hub: Callable[..., Any]
) -> None:
    shutil.copytree(AXPY, tmp_path / "axpy")
    built = build(tmp_path / "axpy", backends=["cuda", "rocm"])
    stops: list[Stopping] = []

    def wrap(app: Any) -> Stopping:
        stops.append(Stopping(app, commits=1))
        return stops[0]

    hub = start_hub(wrap=wrap)
    sink = HubSink(hub.url, token="t", limits=Limits(tries=1))
    with pytest.raises(SourceUnavailableError, match="503"):
        publish(tmp_path / "axpy", sink, REPO, bounds=Bounds(files=12))
    assert labels(hub) == {"torch-cuda"}
    cuda = {str(path.relative_to(built.output.parent)) for path in (built.output / "torch-cuda").rglob("*.*")}
    assert {path for path in paths(hub) if path.startswith("build/torch-cuda/")} == cuda
    stops[0].left = float("inf")
    report = publish(tmp_path / "axpy", sink, REPO, bounds=Bounds(files=12))
    assert not [path for path in report.added if path.startswith("build/torch-cuda/")]
    assert labels(hub) == {"torch-cuda", "torch-rocm"}
