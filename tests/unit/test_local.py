"""Builds in a folder of the caller's: a project, a folder of builds, or one build."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.local import find_builds
from tests.support.fake_kernels import write_fake_kernel

LABELS = ["torch-cpu", "torch-cuda"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder of a kernel's sources that was built."""
    folder = write_fake_kernel(tmp_path / "axpy", LABELS)
    (folder / "build.toml").touch()
    (folder / "torch-ext" / "axpy").mkdir(parents=True)
    (folder / "torch-ext" / "axpy" / "__init__.py").touch()
    return folder


def test_a_project_has_the_builds_below_its_build_folder_and_its_sources_are_none(project: Path) -> None:
    found = find_builds(project, named_by="local path")
    assert found.folders == {label: project / "build" / label for label in LABELS}
    assert not found.single


def test_a_project_that_was_not_built_is_said_to_hold_no_build(project: Path) -> None:
    (project / "build").rename(project / "elsewhere")
    with pytest.raises(InvalidDocumentError, match="holds no build") as caught:
        find_builds(project, named_by="local path")
    assert "kernel-hub build" in caught.value.hint()


def test_a_repository_without_recipe_has_the_builds_below_its_build_folder(tmp_path: Path) -> None:
    folder = write_fake_kernel(tmp_path, LABELS)
    assert list(find_builds(folder, named_by="local path").folders) == LABELS


def test_a_folder_of_builds_has_them(project: Path) -> None:
    assert list(find_builds(project / "build", named_by="local path").folders) == LABELS


def test_one_build_may_have_any_name(project: Path) -> None:
    folder = (project / "build" / "torch-cpu").rename(project / "mine")
    found = find_builds(folder, named_by="local path")
    assert (found.folders, found.single) == ({"mine": folder}, True)


@pytest.mark.parametrize("name", ["absent", "file"])
def test_what_is_no_folder_is_named_with_what_named_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidDocumentError, match=f"LOCAL_KERNELS: the folder .*{name}"):
        find_builds(tmp_path / name, named_by="LOCAL_KERNELS")
