"""`kernel-hub demo`: the first example of a clone, and what it says where it cannot run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
_EXAMPLE = """
def run(kernel, workspace, tell):
    tell("a stage")
    (workspace / "made").touch()
    if {fails}:
        raise RuntimeError("the example failed")
    return {{"kernel": kernel.name, "within_bounds": {within}, "lines": ["first", "second"]}}
"""


def checkout(folder: Path, *, within: bool = True, fails: bool = False) -> Path:
    """A clone whose example does nothing."""
    for path, content in (
        ("examples/01_load.py", _EXAMPLE.format(within=within, fails=fails)),
        ("registry/flash-attn/build.toml", ""),
    ):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text(content, encoding="utf-8")
    return folder


def test_the_kernel_of_this_clone_is_built_published_loaded_and_equal_to_torch(home: Path, tmp_path: Path) -> None:
    words = ["demo", "--json", "--keep", str(tmp_path / "kept")]
    done = subprocess.run(
        [sys.executable, "-m", "kernel_hub", *words],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["within_bounds"] is True
    assert [(row["dtype"], row["causal"]) for row in answer["results"]] == [
        ("float32", False),
        ("float32", True),
        ("bfloat16", False),
        ("bfloat16", True),
    ]
    assert all(row["ours"] <= 2 * row["torch"] for row in answer["results"])
    assert answer["plan"]["chosen"] in [entry["label"] for entry in answer["plan"]["accepted"]]
    assert answer["plan"]["rejected"]
    assert {path.name for path in (tmp_path / "kept").iterdir()} >= {"build", "registry", "home"}
    # The fixture's own empty configuration is all there is: the demo leaves the user's folders alone.
    assert [path.name for path in home.iterdir()] == ["config.toml"]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_what_the_example_says_is_printed_and_its_folder_removed(run: Run, tmp_path: Path, scratch: Path) -> None:
    clone = checkout(tmp_path / "clone")
    assert run("demo", "--checkout", str(clone)).out.startswith("first\nsecond\nto keep ")
    assert run("demo", "--checkout", str(clone)).err == "a stage\n"
    assert run("demo", "--checkout", str(clone), "--json").json == {"kernel": "flash-attn", "within_bounds": True}
    assert list(scratch.iterdir()) == []


def test_a_result_outside_the_bounds_exits_with_8(run: Run, tmp_path: Path, scratch: Path) -> None:
    result = run("demo", "--checkout", str(checkout(tmp_path / "clone", within=False)), "--json")
    assert result.code == 8
    assert result.json["within_bounds"] is False
    assert result.err.splitlines()[1].startswith("error: ")


def test_a_failure_keeps_the_folder_and_says_where(run: Run, tmp_path: Path, scratch: Path) -> None:
    result = run("demo", "--checkout", str(checkout(tmp_path / "clone", fails=True)))
    (kept,) = scratch.iterdir()
    assert result.code == 1
    assert f"kept in {kept}\n" in result.err
    assert (kept / "made").exists()


def test_a_folder_to_keep_must_be_new(run: Run, tmp_path: Path) -> None:
    clone = checkout(tmp_path / "clone")
    result = run("demo", "--checkout", str(clone), "--keep", str(clone), "--json")
    assert (result.code, result.error["type"]) == (2, "UsageError")
    kept = run("demo", "--checkout", str(clone), "--keep", str(tmp_path / "new" / "kept"))
    assert kept.code == 0
    assert f"export KERNEL_HUB_REGISTRIES='local={tmp_path / 'new' / 'kept' / 'registry'}'" in kept.out
    assert (tmp_path / "new" / "kept" / "made").exists()


@pytest.mark.parametrize(
    ("missing", "named"), [("examples/01_load.py", "01_load.py"), ("registry/flash-attn/build.toml", "flash-attn")]
)
def test_without_a_clone_it_says_what_is_missing(run: Run, tmp_path: Path, missing: str, named: str) -> None:
    clone = checkout(tmp_path / "clone")
    (clone / missing).unlink()
    result = run("demo", "--checkout", str(clone), "--json")
    assert (result.code, result.error["type"]) == (2, "InvalidDocumentError")
    assert named in result.error["message"]
    assert "clone" in result.error["hint"]


def test_another_kernel_can_be_named(run: Run, tmp_path: Path, scratch: Path) -> None:
    clone = checkout(tmp_path / "clone")
    other = tmp_path / "other"
    other.mkdir()
    words = ("demo", "--checkout", str(clone), "--kernel", str(other), "--json")
    assert run(*words).error["message"].startswith("--kernel: ")
    (other / "build.toml").touch()
    assert run(*words).json["kernel"] == "other"
