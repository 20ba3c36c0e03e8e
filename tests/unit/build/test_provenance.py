"""Where sources come from, in git and outside."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kernel_hub.build.provenance import origin_of


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a kernel in a folder of it."""
    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / "a.cpp").write_text("a")
    (tmp_path / "other.txt").write_text("other")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_committed_kernel_is_named_by_its_folders_tree(repository: Path) -> None:
    origin = origin_of(repository / "kernel")
    assert origin.unique == git(repository, "rev-parse", "HEAD:kernel")[:7]
    assert origin.state is not None
    assert (origin.state.commit, origin.state.dirty) == (git(repository, "rev-parse", "HEAD"), False)


def test_what_changes_outside_the_folder_changes_nothing(repository: Path) -> None:
    before = origin_of(repository / "kernel")
    (repository / "other.txt").write_text("changed")
    assert origin_of(repository / "kernel") == before


@pytest.mark.parametrize("name", ["a.cpp", "new.cpp"])
def test_a_changed_or_new_file_makes_it_dirty(repository: Path, name: str) -> None:
    clean = origin_of(repository / "kernel").unique
    (repository / "kernel" / name).write_text("changed")
    origin = origin_of(repository / "kernel")
    assert origin.unique == f"{clean}_dirty"
    assert origin.state is not None
    assert origin.state.dirty


def test_output_bytecode_and_ignored_files_do_not_make_it_dirty(repository: Path) -> None:
    kernel = repository / "kernel"
    clean = origin_of(kernel)
    (kernel / "build").mkdir()
    (kernel / "build" / "x").write_text("")
    (kernel / "pkg" / "__pycache__").mkdir(parents=True)
    (kernel / "pkg" / "__pycache__" / "x.pyc").write_text("")
    assert origin_of(kernel, leaving_out=(kernel / "build",)) == clean


def test_a_repository_cannot_make_git_run_a_program(repository: Path) -> None:
    proof = repository / "ran"
    script = repository / "script"
    script.write_text(f"#!/bin/sh\ntouch '{proof}'\n")
    script.chmod(0o755)
    git(repository, "config", "core.fsmonitor", str(script))
    git(repository, "config", "diff.external", str(script))
    (repository / "kernel" / "a.cpp").write_text("changed")
    assert origin_of(repository / "kernel").unique.endswith("_dirty")
    assert not proof.exists()


def test_outside_git_the_name_follows_from_the_contents(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.cpp").write_text("a")
    one, two = origin_of(tmp_path / "one"), origin_of(tmp_path / "two")
    assert one == two
    assert one.state is None
    assert re.fullmatch(r"[a-z2-7]{13}", one.unique)
    (tmp_path / "two" / "a.cpp").write_text("b")
    assert origin_of(tmp_path / "two") != one


def test_outside_git_output_and_hidden_files_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("a")
    before = origin_of(tmp_path)
    (tmp_path / ".cache").write_text("x")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "x").write_text("x")
    assert origin_of(tmp_path, leaving_out=(tmp_path / "build",)) == before
    assert origin_of(tmp_path) != before


def test_a_kernel_that_is_in_no_commit_yet_has_no_state(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.cpp").write_text("a")
    assert origin_of(tmp_path).state is None
