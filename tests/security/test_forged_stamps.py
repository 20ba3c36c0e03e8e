"""Attack: another user of a shared home writes a stamp that says that changed files were verified."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_hub.errors import DigestMismatchError
from kernel_hub.model.artifact import Expectation
from kernel_hub.verify import Stamps, verify
from tests.support.artifacts import from_folder, write_build

ENFORCED_BY = "kernel_hub.verify.stamps.Stamps"


@pytest.fixture
def forged(tmp_path: Path) -> tuple[Path, Path]:
    """A changed build, and a stamp that claims the identities it had before."""
    root = write_build(tmp_path / "torch-cpu", {"__init__.py": "", "part.py": "X = 1\n"})
    verify(from_folder(root), Expectation(), stamps=Stamps(tmp_path / "stamps"))
    (stamp,) = (tmp_path / "stamps").iterdir()
    before = (root / "part.py").stat()
    (root / "part.py").write_text("X = 2\n")
    after = (root / "part.py").stat()
    text = stamp.read_text()
    for old, new in ((before.st_mtime_ns, after.st_mtime_ns), (before.st_ctime_ns, after.st_ctime_ns)):
        text = text.replace(str(old), str(new))
    stamp.write_text(text)
    return root, stamp


def test_the_forgery_would_be_believed_if_it_were_ones_own(forged: tuple[Path, Path]) -> None:
    """That the other tests here test something."""
    root, stamp = forged
    verify(from_folder(root), Expectation(), stamps=Stamps(stamp.parent))


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_stamp_that_others_may_write_is_not_believed(forged: tuple[Path, Path], mode: int) -> None:
    root, stamp = forged
    stamp.chmod(mode)
    with pytest.raises(DigestMismatchError, match=r"part\.py: changed"):
        verify(from_folder(root), Expectation(), stamps=Stamps(stamp.parent))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_stamp_of_another_user_is_not_believed(forged: tuple[Path, Path]) -> None:
    root, stamp = forged
    os.chown(stamp, 65534, 65534)
    with pytest.raises(DigestMismatchError, match=r"part\.py: changed"):
        verify(from_folder(root), Expectation(), stamps=Stamps(stamp.parent))


def test_without_stamps_every_file_is_read(forged: tuple[Path, Path]) -> None:
    root, _ = forged
    with pytest.raises(DigestMismatchError, match=r"part\.py: changed"):
        verify(from_folder(root), Expectation())
