"""`kernel-hub check`: findings with place and fix, for folders and for published kernels."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from kernel_hub.sources.directory import DirectoryRegistry
from tests.cli.conftest import Run
from tests.support.fake_kernels import publish_fake_kernel
from tests.support.hub import HubServer

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


def entry_of(kernel: Path) -> Path:
    return kernel / "torch-ext" / "scale" / "__init__.py"


def test_code_of_an_untrusted_publisher_is_checked_and_not_run(
    run: Run, kernel: Path, hub_server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "ran"
    entry_of(kernel).write_text(f"import numpy\nopen({str(marker)!r}, 'w').close()\n__all__ = []\n")
    run("build", str(kernel))
    label, folder = "torch-cpu", kernel / "build" / "torch-cpu"
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    # As the ecosystem's own tools would publish it, which ask no check first.
    publish_fake_kernel(hub_server.registry, "acme/scale", builds={label: files})
    hub_server.registry.set_publisher("acme", False)
    monkeypatch.setenv("HF_ENDPOINT", hub_server.url)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    result = run("check", "acme/scale@v1", "--backend", "cpu", "--json")
    (build,) = result.json["builds"]
    assert (result.code, build["import"]) == (8, "not tried: this user does not trust its publisher")
    assert [finding["rule"] for finding in build["findings"]] == ["foreign-import"]
    assert not marker.exists()
    pytest.importorskip("torch")
    allowed = run("check", "acme/scale@v1", "--backend", "cpu", "--json", "--trust-remote-code").json["builds"][0]
    assert not allowed["import"].startswith("not tried: this user")


def test_a_changed_interface_is_refused_against_a_published_version(run: Run, kernel: Path, published: str) -> None:
    words = ("check", str(kernel), "--no-import", "--against")
    assert run(*words, published).code == 0
    entry_of(kernel).write_text('__all__ = ["scale"]\n\n\ndef scale(y, z):\n    return y\n')
    run("build", str(kernel))
    result = run(*words, published, "--json")
    assert result.code == 8
    assert [(item["rule"], item["subject"]) for item in result.json["builds"][0]["findings"]] == [
        ("public-interface", "scale(x)"), ("public-interface", "scale(z)"),
    ]  # fmt: skip
    assert "general.version" in run(*words, published).out


def test_the_kernels_own_repository_is_what_a_bare_version_is_of(run: Run, kernel: Path, published: str) -> None:
    unnamed = run("check", str(kernel), "--no-import", "--against", "v1", "--json")
    assert (unnamed.code, unnamed.error["type"]) == (2, "UsageError")
    recipe = kernel / "build.toml"
    recipe.write_text(recipe.read_text() + '\n[general.hub]\nrepo-id = "acme/scale"\n')
    assert run("check", str(kernel), "--no-import", "--against", "v1").code == 0
    missing = run("check", str(kernel), "--no-import", "--against", "v2", "--json")
    assert (missing.code, missing.error["type"]) == (3, "VersionNotFoundError")


def test_a_published_version_can_be_held_to_an_older_one(run: Run, kernel: Path, published: str) -> None:
    recipe = kernel / "build.toml"
    recipe.write_text(recipe.read_text().replace("version = 1", "version = 2"))
    entry_of(kernel).write_text("__all__ = []\n")
    run("build", str(kernel))
    assert run("publish", str(kernel), "--to", "registry", "--repo", "acme/scale", "--allow-dirty").code == 0
    words = ("check", "acme/scale@v2", "--backend", "cpu", "--no-import", "--json", "--against", "v1")
    answer = run(*words).json
    assert answer["passed"] is True
    assert answer["notes"] == ["version 2 was not held to what version 1 offers: a version is a new start"]


def test_a_record_is_written_and_builds_are_held_to_it(run: Run, kernel: Path, tmp_path: Path) -> None:
    written = tmp_path / "api.json"
    assert run("check", str(kernel), "--no-import", "--api", str(written)).code == 0
    assert list(json.loads(written.read_text())["functions"]) == ["scale"]
    for known in (written, kernel):
        assert run("check", str(kernel), "--no-import", "--against", str(known)).code == 0
    written.write_text(written.read_text().replace('"scale"', '"scales"', 1).replace('"scale"', '"scales"'))
    assert "scales is no longer offered" in run("check", str(kernel), "--no-import", "--against", str(written)).out
    written.write_text("{}")
    assert run("check", str(kernel), "--no-import", "--against", str(written)).code == 2
    assert run("check", str(kernel), "--no-import", "--api", str(tmp_path)).code == 2
    assert run("check", str(kernel), "--no-import", "--against", "no such thing").code == 2


def test_checkers_that_did_not_run_are_told(run: Run, kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reviews = run("check", str(kernel), "--no-import", "--json").json["reviews"]
    assert [(item["name"], item["not_run"]) for item in reviews] == [
        ("abi3audit", "there is no native module for it"), ("torch-abi-audit", "there is no native module for it"),
    ]  # fmt: skip
    shutil.move(kernel / "build" / "torch-cpu", kernel / "build" / "torch-stable-abi211-cpu-x86_64-linux")
    (kernel / "build" / "torch-stable-abi211-cpu-x86_64-linux" / "m.so").touch()
    for name in ("abi3audit", "torch_abi_audit"):
        monkeypatch.setitem(sys.modules, name, None)
    lines = run("check", str(kernel), "--no-import").out.splitlines()
    assert lines[-2:] == [
        "abi3audit: not run: it is not installed: pip install 'kernel-hub[build]'",
        "torch-abi-audit: not run: it is not installed: pip install 'kernel-hub[build]'",
    ]
