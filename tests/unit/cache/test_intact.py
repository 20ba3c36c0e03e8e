"""Whether a file in the cache is what was announced: also where it is no file at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from kernel_hub.cache.blob_writer import is_intact
from kernel_hub.model.source import FileEntry, LfsBlob

ENTRY = FileEntry("a", 3, LfsBlob(hashlib.sha256(b"abc").hexdigest()))


def test_a_file_with_the_announced_bytes_is_intact(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert is_intact(tmp_path / "a", ENTRY)


@pytest.mark.parametrize("content", [b"", b"abd", b"abcd"])
def test_other_bytes_are_not(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    assert not is_intact(tmp_path / "a", ENTRY)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    assert not is_intact(tmp_path / "a", ENTRY)


def test_a_folder_and_nothing_are_not(tmp_path: Path) -> None:
    assert not is_intact(tmp_path, ENTRY)
    assert not is_intact(tmp_path / "absent", ENTRY)
