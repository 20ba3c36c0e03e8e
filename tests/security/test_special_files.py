"""Attack: pipes, sockets and devices in a build, which would stall a reader or feed it different bytes each time."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kernel_hub.errors import UnsafePathError
from kernel_hub.model.artifact import Expectation
from kernel_hub.verify import verify
from tests.support.artifacts import from_folder, from_source, write_build

ENFORCED_BY = "kernel_hub.verify.artifact_tree.ArtifactTree"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_build(tmp_path / "torch-cpu", {"__init__.py": ""})


@pytest.mark.parametrize("name", ["pipe.py", "metadata.json", "__pycache__/pipe", "pipe.pyc"])
def test_a_pipe_is_refused_without_being_opened(root: Path, name: str) -> None:
    (root / name).unlink(missing_ok=True)
    (root / name).parent.mkdir(exist_ok=True)
    os.mkfifo(root / name)
    with pytest.raises(UnsafePathError, match=f"{name} is a pipe"):
        verify(from_folder(root), Expectation())


def test_a_link_to_a_pipe_is_refused_without_being_opened(root: Path, tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    os.mkfifo(tmp_path / "blobs" / "pipe")
    (root / "a.py").symlink_to("../blobs/pipe")
    with pytest.raises(UnsafePathError, match=r"a\.py is a link to a pipe"):
        verify(from_source(root, blobs=tmp_path / "blobs"), Expectation())


def test_a_socket_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Relative, because the path of a socket may only be short.
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("listener")
        with pytest.raises(UnsafePathError, match="listener is a socket"):
            verify(from_folder(root), Expectation())


def test_a_link_to_a_device_is_refused(root: Path) -> None:
    (root / "zero.py").symlink_to("/dev/zero")
    with pytest.raises(UnsafePathError, match=r"zero\.py"):
        verify(from_folder(root), Expectation())


def test_a_name_that_is_not_utf8_is_refused(root: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(root) + b"/\xff.py")).write_text("")
    except OSError:
        pytest.skip("this filesystem takes UTF-8 names only, so the attack cannot be mounted on it")
    with pytest.raises(UnsafePathError, match="name that is not UTF-8"):
        verify(from_folder(root), Expectation())
