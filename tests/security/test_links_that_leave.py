"""Attack: links inside a build that lead Python, or the digest, to files of somebody else."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.errors import UnsafePathError
from kernel_hub.model.artifact import Expectation
from kernel_hub.verify import verify
from tests.support.artifacts import from_folder, from_source, write_build

ENFORCED_BY = "kernel_hub.verify.artifact_tree.ArtifactTree"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "deep").mkdir()
    (tmp_path / "blobs" / "deep" / "blob").write_text("X = 1\n")
    (tmp_path / "blobs" / "link").symlink_to("../outside/evil.py")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "evil.py").write_text("X = 1\n")
    return write_build(tmp_path / "build" / "torch-cpu", {"__init__.py": "", "sub/__init__.py": "", "sub/a.py": ""})


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("evil.py", "../../outside/evil.py"),
        ("sub/evil.py", "../../../outside/evil.py"),
        ("evil.py", "sub/../../../outside/evil.py"),
        ("evil.py", "../../blobs/deep/blob"),
        ("evil.py", "../../blobs/../outside/evil.py"),
        ("evil.py", "../../blobs/link"),
        ("evil.py", "{absolute}/outside/evil.py"),
        ("evil.py", "{absolute}/build/torch-cpu/__init__.py"),
        ("evil.py", "/dev/null"),
        ("evil.py", "nowhere"),
        ("evil.py", "evil.py"),
        ("evil.py", "."),
        ("evil.py", ".."),
        ("evil.py", "sub"),
        ("evil.py", "sub/"),
        ("evil.py", "sub/.."),
        ("evil", "../../outside"),
        ("evil", "sub"),
        ("sub/up", ".."),
        ("__pycache__/evil.py", "../../../outside/evil.py"),
        ("metadata.json", "../../outside/evil.py"),
        ("metadata.json.sigstore", "../../outside/evil.py"),
    ],
)
def test_a_link_that_is_not_one_step_inside_is_refused(root: Path, tmp_path: Path, path: str, target: str) -> None:
    (root / path).unlink(missing_ok=True)
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).symlink_to(target.format(absolute=tmp_path))
    with pytest.raises(UnsafePathError, match=path):
        verify(from_source(root, blobs=tmp_path / "blobs"), Expectation())
    with pytest.raises(UnsafePathError, match=path):
        verify(from_folder(root), Expectation())


def test_links_in_a_circle_are_refused(root: Path) -> None:
    (root / "a.py").symlink_to("b.py")
    (root / "b.py").symlink_to("a.py")
    with pytest.raises(UnsafePathError):
        verify(from_folder(root), Expectation())


def test_a_link_to_a_link_is_refused(root: Path) -> None:
    (root / "a.py").symlink_to("sub/a.py")
    (root / "b.py").symlink_to("a.py")
    with pytest.raises(UnsafePathError, match=r"b\.py is a link to another link"):
        verify(from_folder(root), Expectation())


def test_the_blobs_of_a_cache_are_nothing_to_a_folder_of_the_caller(root: Path, tmp_path: Path) -> None:
    (tmp_path / "blobs" / "blob").write_text("")
    (root / "evil.py").symlink_to("../../blobs/blob")
    with pytest.raises(UnsafePathError, match="leaves the artifact"):
        verify(from_folder(root), Expectation())


def test_a_folder_whose_name_only_begins_like_the_builds_is_outside(tmp_path: Path) -> None:
    root = write_build(tmp_path / "torch-cpu", {"__init__.py": ""})
    (tmp_path / "torch-cpu-evil").mkdir()
    (tmp_path / "torch-cpu-evil" / "x.py").write_text("")
    (root / "x.py").symlink_to("../torch-cpu-evil/x.py")
    with pytest.raises(UnsafePathError, match="leaves the artifact"):
        verify(from_folder(root), Expectation())


def test_a_link_to_a_file_of_the_same_build_is_an_ordinary_file(tmp_path: Path) -> None:
    (tmp_path / "torch-cpu" / "sub").mkdir(parents=True)
    (tmp_path / "torch-cpu" / "alias.py").symlink_to("sub/real.py")
    root = write_build(tmp_path / "torch-cpu", {"__init__.py": "", "sub/real.py": "X = 1\n"})
    assert verify(from_folder(root), Expectation()).files.keys() == {"__init__.py", "alias.py", "sub/real.py"}
