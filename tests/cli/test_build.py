"""`kernel-hub build`: builds of a kernel that needs no compiler, and what happens when one is needed and fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.model.metadata import Metadata
from tests.cli.conftest import Run

_RECIPE = """
[general]
name = "scale"
version = 3
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch-noarch]
"""
_NATIVE = """
[general]
name = "scale"
version = 3
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/torch_binding.cpp"]

[torch.stable-abi]
cpu = "2.11"

[kernel.broken]
backend = "cpu"
depends = ["torch"]
src = ["broken.cpp"]
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """The sources of a kernel in Python alone."""
    folder = tmp_path / "scale"
    package = folder / "torch-ext" / "scale"
    package.mkdir(parents=True)
    (folder / "build.toml").write_text(_RECIPE, encoding="utf-8")
    (package / "__init__.py").write_text('__all__ = ["scale"]\n\n\ndef scale(x):\n    return x\n', encoding="utf-8")
    return folder


def test_every_build_is_made_and_reported(run: Run, kernel: Path) -> None:
    answer = run("build", str(kernel), "--json").json
    assert (answer["name"], answer["version"], answer["output"]) == ("scale", 3, str(kernel / "build"))
    assert [build["label"] for build in answer["builds"]] == ["torch-cpu", "torch-cuda"]
    for build in answer["builds"]:
        written = Metadata.parse((Path(build["folder"]) / "metadata.json").read_bytes())
        assert written.id == build["id"]
        assert build["size_bytes"] == sum(path.stat().st_size for path in Path(build["folder"]).rglob("*.*"))


def test_text_names_what_was_built_and_progress_is_for_terminals(run: Run, kernel: Path) -> None:
    result = run("build", str(kernel))
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"scale version 3: {kernel / 'build'}\n  built: torch-cpu (")


def test_this_folder_is_the_default(run: Run, kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(kernel)
    assert run("build").code == 0
    assert (kernel / "build" / "torch-cpu" / "metadata.json").is_file()


def test_builds_can_be_chosen_and_put_elsewhere(run: Run, kernel: Path, tmp_path: Path) -> None:
    for words in (("--backend", "cuda"), ("--variant", "torch-cuda")):
        output = tmp_path / words[0].strip("-")
        answer = run("build", str(kernel), "--output", str(output), *words, "--json").json
        assert [build["folder"] for build in answer["builds"]] == [str(output / "torch-cuda")]


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["--backend", "rocm"], "ToolchainError", 8),
        (["--variant", "torch-xpu"], "ToolchainError", 8),
        (["--jobs", "0"], "UsageError", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_built_here_is_an_error(run: Run, kernel: Path, words: list[str], kind: str, code: int) -> None:
    plain, as_json = run("build", str(kernel), *words), run("build", str(kernel), *words, "--json")
    assert plain.code == as_json.code == as_json.error["exit_code"] == code
    assert as_json.error["type"] == kind
    assert plain.err.startswith("error: ")


def test_a_folder_without_recipe_is_named(run: Run, tmp_path: Path) -> None:
    result = run("build", str(tmp_path), "--json")
    assert (result.code, result.error["type"]) == (2, "InvalidDocumentError")
    assert str(tmp_path) in result.error["message"]


def test_a_compiler_that_fails_is_reported_with_its_log(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "broken"
    (folder / "torch-ext" / "scale").mkdir(parents=True)
    (folder / "torch-ext" / "scale" / "__init__.py").write_text("", encoding="utf-8")
    (folder / "torch-ext" / "torch_binding.cpp").write_text("int bound;\n", encoding="utf-8")
    (folder / "broken.cpp").write_text("this is not C++\n", encoding="utf-8")
    (folder / "build.toml").write_text(_NATIVE, encoding="utf-8")
    result = run("build", str(folder), "--json")
    assert (result.code, result.error["type"]) == (8, "CompileError")
    assert not (folder / "build" / "torch-stable-abi211-cpu-x86_64-linux").exists()
