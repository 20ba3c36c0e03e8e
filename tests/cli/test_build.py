"""`kernel-hub build` and `variants`: kernels that need no compiler, and what happens when one is missing or fails."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from kernel_hub.cli.command import MissingExtraError
from kernel_hub.model.metadata import Metadata
from tests.cli.conftest import Run

AXPY = Path(__file__).parents[1] / "vectors" / "recipes" / "axpy"
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


def test_several_kernels_are_built_at_once_and_one_that_fails_keeps_no_other(
    run: Run, kernel: Path, tmp_path: Path
) -> None:
    shutil.copytree(kernel, tmp_path / "another")
    (tmp_path / "broken").mkdir()
    folders = [str(tmp_path / name) for name in ("broken", "scale", "another")]
    answer = run("build", *folders, "--json")
    assert answer.code == 2
    broken, scale, another = answer.json["kernels"]
    assert (broken["folder"], broken["error"]["type"]) == (folders[0], "InvalidDocumentError")
    assert [len(kernel["builds"]) for kernel in (scale, another)] == [2, 2]
    text = run("build", *folders)
    assert text.out.count("  built: ") == 4
    assert text.err.startswith(f"error: {folders[0]}: has no build.toml")
    assert run("build", *folders[1:], "--check-reproducible").code == 0


def test_several_kernels_have_no_common_output(run: Run, kernel: Path, tmp_path: Path) -> None:
    result = run("build", str(kernel), str(kernel), "--output", str(tmp_path / "out"))
    assert (result.code, result.err.startswith("error: --output: ")) == (2, True)


def test_a_toolkit_is_named_by_its_release_and_not_fetched_offline(run: Run, kernel: Path) -> None:
    wrong = run("build", "--fetch-toolkit", str(kernel))
    assert (wrong.code, "is not a release of CUDA" in wrong.err) == (2, True)
    offline = run("build", str(kernel), "--fetch-toolkit=13.1", "--json")
    assert (offline.code, offline.error["type"]) == (8, "ToolchainError")
    assert "CUDA 13.1 is not here" in offline.error["message"]


def test_the_compiler_that_the_environment_names_is_taken(
    run: Run, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "own-g++"
    program.write_text("#!/bin/sh\necho 'own-g++ 1.0'\n", encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "torch-stable-abi211-cpu-" in run("variants", str(mixed)).out
    monkeypatch.setenv("CXX", "no-such-compiler -O0")
    listed = run("variants", str(mixed), "--json").json["omissions"]
    assert listed[0]["reason"] == "CXX names 'no-such-compiler -O0', which is no program here"


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


@pytest.fixture
def mixed(kernel: Path) -> Path:
    """A kernel in Python for CUDA that has a compiled build for the processor as well."""
    (kernel / "build.toml").write_text(_RECIPE.replace('"cpu", ', ""), encoding="utf-8")
    (kernel / "build.native.toml").write_text(_NATIVE.replace("broken", "part"), encoding="utf-8")
    (kernel / "torch-ext" / "torch_binding.cpp").write_text("int bound;\n", encoding="utf-8")
    (kernel / "part.cpp").write_text("int part;\n", encoding="utf-8")
    return kernel


def test_a_backend_without_its_compiler_is_a_failure_after_the_others_are_built(
    run: Run, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plain = run("build", str(mixed))
    assert plain.code == 8
    assert "built: torch-cuda (" in plain.out
    assert plain.err.startswith("error: scale has backends that were not built here:\n  cpu of build.native.toml: ")
    assert "there is no C++ compiler g++" in plain.err
    assert "hint: install g++" in plain.err and "--allow-missing" in plain.err
    as_json = run("build", str(mixed), "--json")
    assert (as_json.code, as_json.error["type"], as_json.error["exit_code"]) == (8, "ToolchainError", 8)
    assert [build["label"] for build in as_json.json["builds"]] == ["torch-cuda"]
    assert (mixed / "build" / "torch-cuda" / "metadata.json").is_file()


def test_missing_backends_can_be_accepted_or_left_out(
    run: Run, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run("build", str(mixed), "--allow-missing").code == 0
    assert run("build", str(mixed), "--backend", "cuda").code == 0
    assert run("build", str(mixed), "--variant", "torch-cuda").code == 0
    alone = run("build", str(mixed), "--backend", "cpu", "--allow-missing")
    assert (alone.code, "install g++" in alone.err) == (8, True)


def test_a_backend_without_its_toolkit_is_missing_too(
    run: Run, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = _NATIVE.replace("broken", "part").replace('["cpu"]', '["rocm"]').replace("cpu =", "rocm =")
    (mixed / "build.native.toml").write_text(recipe.replace('backend = "cpu"', 'backend = "rocm"'), encoding="utf-8")
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    result = run("build", str(mixed))
    assert result.code == 8
    assert "rocm of build.native.toml: ROCM_PATH names " in result.err
    assert "install ROCm and name its folder in ROCM_PATH" in result.err


def test_variants_are_listed_without_building(
    run: Run, mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    listed, dry = run("variants", str(mixed), "--json"), run("build", str(mixed), "--dry-run", "--json")
    assert listed.code == dry.code == 0
    assert listed.json == dry.json
    assert [item["label"] for item in listed.json["variants"]] == ["torch-cuda"]
    assert [(item["backend"], item["remedy"]) for item in listed.json["omissions"]] == [
        ("cpu", "install g++ (apt install g++)")
    ]
    text = run("variants", str(mixed)).out
    assert text.startswith("torch-cuda (build.toml)\nnot: cpu of build.native.toml: ")
    assert not (mixed / "build").exists()


def test_a_reproducible_kernel_passes_and_is_left_alone(run: Run, kernel: Path) -> None:
    before = sorted(kernel.rglob("*"))
    result = run("build", str(kernel), "--check-reproducible")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("torch-cpu: built twice, every byte the same\ntorch-cuda: ")
    assert run("build", str(kernel), "--check-reproducible", "--json").json["identical"] is True
    assert sorted(kernel.rglob("*")) == before


def test_a_kernel_that_comes_out_in_two_ways_exits_with_8_and_says_where(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = Path(shutil.copytree(AXPY, tmp_path / "axpy"))
    (folder / "csrc" / "scale.cpp").write_text(
        '#if __has_include("../../../second time/kernel/build.toml")\n'
        "float scale() { return 2.0f; }\n#else\nfloat scale() { return 3.0f; }\n#endif\n",
        encoding="ascii",
    )
    label = "torch-stable-abi211-cpu-x86_64-linux"
    result = run("build", str(folder), "--check-reproducible", "--variant", label, "--json")
    assert (result.code, result.json["identical"], result.json["labels"]) == (8, False, [label])
    told = {difference["path"]: difference["explanation"] for difference in result.json["differences"]}
    assert any(path.endswith(".so") and ".rodata" in said for path, said in told.items())


def test_findings_of_a_build_are_shown(run: Run, kernel: Path) -> None:
    entry = kernel / "torch-ext" / "scale" / "__init__.py"
    entry.write_text('import numpy\n\n__all__ = ["numpy"]\n', encoding="utf-8")
    assert "    finding: __init__.py:1: numpy" in run("build", str(kernel)).out
    builds = run("build", str(kernel), "--json").json["builds"]
    assert [finding["rule"] for finding in builds[0]["findings"]] == ["foreign-import"]
    assert builds[0]["findings"][0]["line"] == 1


@pytest.mark.parametrize("library", ["elftools", "abi3info", "jinja2"])
@pytest.mark.parametrize("words", [("build",), ("build", "--check-reproducible"), ("check",)], ids=" ".join)
def test_without_the_builders_libraries_every_command_says_what_to_install(
    run: Run, kernel: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    result = run(*words, str(kernel))
    assert (result.code, result.out) == (MissingExtraError.exit_code, "")
    assert library in result.err
    assert "pip install 'kernel-hub[build]'" in result.err


def test_a_file_where_the_builds_go_is_an_error_that_names_it(run: Run, kernel: Path) -> None:
    (kernel / "build").write_text("")
    result = run("build", str(kernel), "--json")
    assert (result.code, result.error["type"]) == (8, "BuildError")
    assert str(kernel / "build") in result.error["message"]
