"""`kernel-hub check`: findings with place and fix, for folders and for published kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.sources.directory import DirectoryRegistry
from tests.cli.conftest import Run

_RECIPE = """
[general]
name = "scale"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
"""


@pytest.fixture
def kernel(run: Run, tmp_path: Path) -> Path:
    """A kernel in Python that is built."""
    folder = tmp_path / "scale"
    package = folder / "torch-ext" / "scale"
    package.mkdir(parents=True)
    (folder / "build.toml").write_text(_RECIPE, encoding="utf-8")
    (package / "__init__.py").write_text('__all__ = ["scale"]\n\n\ndef scale(x):\n    return x\n', encoding="utf-8")
    assert run("build", str(folder)).code == 0
    return folder


@pytest.fixture
def published(run: Run, kernel: Path, registry: DirectoryRegistry, tmp_path: Path) -> str:
    """The kernel in a registry."""
    words = ("--to", str(tmp_path / "registry"), "--repo", "acme/scale", "--allow-dirty")
    result = run("publish", str(kernel), *words)
    assert result.code == 0, result.err
    return "acme/scale@v1"


def test_sound_builds_pass(run: Run, kernel: Path) -> None:
    result = run("check", str(kernel), "--no-import")
    assert (result.code, result.out, result.err) == (0, "torch-cpu: passed (import: not asked for)\n", "")


def test_a_build_alone_and_this_folder_can_be_checked(run: Run, kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("check", str(kernel / "build" / "torch-cpu"), "--no-import").code == 0
    monkeypatch.chdir(kernel)
    assert run("check", "--no-import").code == 0


def test_findings_name_file_line_and_fix_and_fail(run: Run, kernel: Path) -> None:
    entry = kernel / "torch-ext" / "scale" / "__init__.py"
    entry.write_text("import os\nimport numpy\n\n__all__ = []\n", encoding="utf-8")
    run("build", str(kernel))
    plain = run("check", str(kernel), "--no-import")
    assert plain.code == 8
    first, place, fix = plain.out.splitlines()
    assert first == "torch-cpu: 1 finding (import: not asked for)"
    assert place.startswith("  __init__.py:2: numpy ")
    assert fix.startswith("    fix: ")
    as_json = run("check", str(kernel), "--no-import", "--json")
    assert (as_json.code, as_json.json["passed"]) == (8, False)
    finding = as_json.json["builds"][0]["findings"][0]
    assert (finding["rule"], finding["path"], finding["line"], finding["subject"]) == (
        "foreign-import", "__init__.py", 2, "numpy",
    )  # fmt: skip
    assert finding["fix"]


def test_a_changed_file_is_found(run: Run, kernel: Path) -> None:
    (kernel / "build" / "torch-cpu" / "__init__.py").write_text("__all__ = []\n", encoding="utf-8")
    findings = run("check", str(kernel), "--no-import", "--json").json["builds"][0]["findings"]
    assert [finding["rule"] for finding in findings] == ["digest"]


def test_a_build_is_imported_unless_that_is_declined(run: Run, kernel: Path) -> None:
    pytest.importorskip("torch")
    entry = kernel / "torch-ext" / "scale" / "__init__.py"
    entry.write_text('raise RuntimeError("no such luck")\n', encoding="utf-8")
    run("build", str(kernel))
    result = run("check", str(kernel), "--json")
    assert result.code == 8
    problems = [finding["problem"] for finding in result.json["builds"][0]["findings"]]
    assert any("no such luck" in problem for problem in problems)


def test_a_published_kernel_is_fetched_and_checked(run: Run, published: str) -> None:
    pytest.importorskip("torch")
    result = run("check", published, "--backend", "cpu")
    assert (result.code, result.out) == (0, "torch-cpu: passed (import: imported)\n"), result.err


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["no-such-folder"], 2, "UsageError"),
        (["acme/absent@v1"], 3, "RepositoryNotFoundError"),
        ([".", "--backend", "cpu"], 2, "UsageError"),
        (["home"], 8, "PublishRefusedError"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_checked_is_an_error(
    run: Run, registry: DirectoryRegistry, words: list[str], code: int, kind: str
) -> None:
    result = run("check", *words, "--json")
    assert (result.code, result.error["type"]) == (code, kind)
