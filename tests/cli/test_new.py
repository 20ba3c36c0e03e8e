"""`kernel-hub new`: a project written, listed or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_a_project_is_written_below_this_folder_and_listed(run: Run, tmp_path: Path) -> None:
    answer = run("new", "my-kernel", "--backends", "cpu, triton", "--json").json
    assert (answer["folder"], answer["backends"], answer["abi"], answer["written"]) == (
        "my-kernel", ["cpu", "triton"], "stable", True,
    )  # fmt: skip
    there = {path.relative_to(tmp_path / "my-kernel").as_posix() for path in (tmp_path / "my-kernel").rglob("*.*")}
    assert set(answer["files"]) <= there
    assert '"my-kernel"' in (tmp_path / "my-kernel" / "build.toml").read_text()


def test_people_are_told_what_comes_next(run: Run, tmp_path: Path) -> None:
    result = run("new", "my-kernel", "--output", str(tmp_path / "elsewhere"))
    assert result.out.startswith(f"{tmp_path / 'elsewhere'}: made\n")
    assert result.out.rstrip().endswith("kernel-hub build && kernel-hub check && python -m pytest tests")


def test_a_dry_run_writes_nothing_and_lists_the_same(run: Run, tmp_path: Path) -> None:
    words = ("new", "my-kernel", "--abi", "tvm-ffi", "--license", "MIT", "--json")
    dry = run(*words, "--dry-run").json
    assert not (tmp_path / "my-kernel").exists()
    assert run(*words).json == dry | {"written": True}
    assert 'license = "MIT"' in (tmp_path / "my-kernel" / "build.toml").read_text()


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["Bad Name"], 2, "InvalidDocumentError"),
        (["my-kernel", "--backends", "metal"], 2, "InvalidDocumentError"),
        (["my-kernel", "--backends", ","], 2, "InvalidDocumentError"),
        (["my-kernel", "--abi", "c"], 2, "UsageError"),
        (["taken"], 8, "BuildError"),
        (["taken", "--dry-run"], 8, "BuildError"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_made_is_a_typed_error(run: Run, tmp_path: Path, words: list[str], code: int, kind: str) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    result = run("new", *words, "--json")
    assert (result.code, result.error["type"]) == (code, kind)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "taken"]
