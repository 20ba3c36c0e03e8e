"""Attack: a file is exchanged between the moment it was looked at and the moment it is read or imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_hub.errors import DigestMismatchError, UnsafePathError
from kernel_hub.importer import import_artifact
from kernel_hub.model.artifact import Expectation
from kernel_hub.verify import verify
from kernel_hub.verify.artifact_tree import ArtifactTree
from tests.support.artifacts import from_folder, write_build

ENFORCED_BY = "kernel_hub.verify.artifact_tree.TreeFile.open"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_build(
        tmp_path / "torch-cpu", {"__init__.py": f"# {tmp_path}\nWHO = 'good'\n", "part.py": "WHO = 'good'\n"}
    )


def test_another_file_under_the_same_name_is_not_opened(root: Path, tmp_path: Path) -> None:
    file = ArtifactTree(root, None, subject="axpy").file("part.py")
    assert file is not None
    (tmp_path / "evil.py").write_text("WHO = 'good'\n")
    (tmp_path / "evil.py").replace(root / "part.py")
    with pytest.raises(UnsafePathError, match="replaced by another file"):
        file.open()


def test_a_link_under_the_same_name_is_not_followed(root: Path, tmp_path: Path) -> None:
    file = ArtifactTree(root, None, subject="axpy").file("part.py")
    assert file is not None
    (root / "part.py").rename(tmp_path / "moved.py")
    (root / "part.py").symlink_to(tmp_path / "moved.py")
    with pytest.raises(OSError, match=r"part\.py"):
        file.open()


def test_a_pipe_under_the_same_name_does_not_stall_the_reader(root: Path) -> None:
    file = ArtifactTree(root, None, subject="axpy").file("part.py")
    assert file is not None
    (root / "part.py").unlink()
    os.mkfifo(root / "part.py")
    with pytest.raises(UnsafePathError, match="replaced by another file"):
        file.open()


@pytest.mark.parametrize("path", ["__init__.py", "part.py"])
def test_source_that_changes_between_verification_and_import_is_not_run(root: Path, path: str) -> None:
    verified = verify(from_folder(root), Expectation())
    times = (root / path).stat()
    (root / path).write_text((root / path).read_text().replace("good", "evil"))
    # Same length and same times: only the bytes tell.
    os.utime(root / path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DigestMismatchError, match=r"changed after it was verified"):
        module = import_artifact(verified).module
        __import__(f"{module.__name__}.part")


def test_a_module_that_appears_after_verification_does_not_exist(root: Path) -> None:
    module = import_artifact(verify(from_folder(root), Expectation())).module
    (root / "late.py").write_text("")
    with pytest.raises(ModuleNotFoundError):
        __import__(f"{module.__name__}.late")
