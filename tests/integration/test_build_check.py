"""Checking whole builds: one that keeps every rule, and one breach of each rule at a time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.build.audit.check import check
from kernel_hub.build.audit.finding import Rule
from kernel_hub.build.interface_reader import record_api
from kernel_hub.build.pipeline import build
from kernel_hub.build.publish import publish
from kernel_hub.build.toolchain import find_machine
from kernel_hub.errors import CheckFailedError, PublishRefusedError
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry
from kernel_hub.tree import manifest_of

VECTORS = Path(__file__).parents[1] / "vectors"
AXPY = VECTORS / "recipes" / "axpy"
NATIVE = "torch-stable-abi211-cpu-x86_64-linux"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(AXPY, folder / "axpy")
    return build(folder / "axpy", output=folder / "out", variants=["torch-cuda", NATIVE]).output


@pytest.fixture
def builds(made: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(made, tmp_path / "builds"))


def seal(folder: Path, **changes: object) -> None:
    """Make metadata say this, and the digest fit what is there."""
    metadata = Metadata.parse((folder / "metadata.json").read_bytes())
    changed = replace(metadata, **changes).with_manifest(manifest_of(folder))  # type: ignore[arg-type]
    (folder / "metadata.json").write_bytes(changed.format())


def rules(folder: Path) -> set[Rule]:
    return {finding.rule for item in check(folder, run=False).builds for finding in item.findings}


def test_a_good_build_passes_and_imports(made: Path) -> None:
    report = check(made)
    assert report.passed
    assert [(item.label, item.imported) for item in report.builds] == [("torch-cuda", "imported"), (NATIVE, "imported")]
    assert report.notes == ()
    assert [(item.count, item.unrun) for item in report.reviews] == [(1, "")] * 2


def native_module(folder: Path) -> Path:
    return next(folder.glob("*.abi3.so"))


def add(name: str, content: bytes = b"") -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        seal(folder)

    return spoil


def drop(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        seal(folder)

    return spoil


def linked(folder: Path) -> None:
    (folder / "l.py").symlink_to("layers.py")
    seal(folder)


def changed(folder: Path) -> None:
    (folder / "layers.py").write_text("x = 1\n")


def digestless(folder: Path) -> None:
    metadata = Metadata.parse((folder / "metadata.json").read_bytes())
    (folder / "metadata.json").write_bytes(replace(metadata, manifest=None).format())


SPOILED: dict[str, tuple[str, Callable[[Path], object], Rule]] = {
    "metadata is cut short": ("torch-cuda", lambda folder: (folder / "metadata.json").write_bytes(b"{"), Rule.METADATA),
    "metadata names another backend": ("torch-cuda", lambda folder: seal(folder, backend=BackendKind.ROCM), Rule.LABEL),
    "the id cannot be imported": ("torch-cuda", lambda folder: seal(folder, id="a-b"), Rule.METADATA),
    "a file was changed": ("torch-cuda", changed, Rule.DIGEST),
    "a file is missing": ("torch-cuda", lambda folder: (folder / "layers.py").unlink(), Rule.DIGEST),
    "a file is extra": ("torch-cuda", lambda folder: (folder / "x.txt").write_text(""), Rule.DIGEST),
    "there is no digest": ("torch-cuda", digestless, Rule.DIGEST),
    "a file is a link": ("torch-cuda", linked, Rule.FILES),
    "a file is a pipe": ("torch-cuda", lambda folder: os.mkfifo(folder / "pipe"), Rule.FILES),
    "a name that Windows cannot hold": ("torch-cuda", add("aux.py"), Rule.FILES),
    "bytecode": ("torch-cuda", add("layers.pyc"), Rule.BYTECODE),
    "no entry": ("torch-cuda", drop("__init__.py"), Rule.ENTRY),
    "a twin of the package": ("torch-cuda", add("axpy/__init__.py"), Rule.ENTRY),
    "native code under a label without": ("torch-cuda", add("x.so"), Rule.LIBRARY),
    "no native module": (NATIVE, lambda folder: drop(native_module(folder).name)(folder), Rule.LIBRARY),
    "a native module that is none": (NATIVE, lambda folder: add(native_module(folder).name, b"text")(folder), Rule.LIBRARY),
    "a foreign import": ("torch-cuda", add("m.py", b"import numpy\n"), Rule.FOREIGN_IMPORT),
}  # fmt: skip


@pytest.mark.parametrize("case", SPOILED)
def test_a_breach_is_found_by_its_rule_and_only_that(builds: Path, case: str) -> None:
    label, spoil, rule = SPOILED[case]
    spoil(builds / label)
    assert rules(builds) == {rule}
    assert not check(builds, run=False).passed


# Each has its own tests: device code in a module, a trial import, what a version offers.
APART = {Rule.ARCHS, Rule.IMPORT, Rule.INTERFACE}


def test_every_rule_has_a_vector_that_breaks_it_and_one_that_does_not() -> None:
    cases = [json.loads((VECTORS / "audit" / name).read_text("utf-8")) for name in ("native.json", "python.json")]
    broken = {rule for _, _, rule in SPOILED.values()} | APART
    for case in (*cases[0], *cases[1]):
        broken |= {Rule(finding[0]) for finding in case["findings"]}
    assert broken == set(Rule)
    assert all(any(not case["findings"] for case in of_kind) for of_kind in cases)


def test_a_label_in_another_spelling_is_found(builds: Path) -> None:
    (builds / NATIVE).rename(builds / NATIVE.replace("211", "2011"))
    assert rules(builds) == {Rule.LABEL}


def test_a_folder_that_is_no_label_is_found(builds: Path) -> None:
    (builds / "torch-cuda").rename(builds / "latest")
    report = check(builds)
    assert {finding.rule for item in report.builds for finding in item.findings} == {Rule.LABEL}
    assert report.builds[0].imported.startswith("not tried")


def test_a_build_that_raises_on_import_is_found_with_its_words(builds: Path) -> None:
    (builds / "torch-cuda" / "layers.py").write_text("raise RuntimeError('no such luck')\n")
    seal(builds / "torch-cuda")
    findings = check(builds).builds[0].findings
    assert [finding.rule for finding in findings] == [Rule.IMPORT]
    assert "no such luck" in findings[0].problem


def test_a_build_that_offers_what_it_has_not_is_found(builds: Path) -> None:
    (builds / "torch-cuda" / "__init__.py").write_text("__all__ = ['absent']\n")
    seal(builds / "torch-cuda")
    assert "__all__ names what is not there: absent" in check(builds).builds[0].findings[0].problem


def test_a_dependency_that_is_not_here_is_no_breach(builds: Path) -> None:
    (builds / "torch-cuda" / "layers.py").write_text("import helion\n")
    seal(builds / "torch-cuda", python_depends=("helion",))
    report = check(builds)
    assert report.passed
    assert report.builds[0].imported == "not tried: helion is not installed here"


def test_a_build_for_another_machine_is_not_imported(made: Path) -> None:
    report = check(made, machine=replace(find_machine(), cpu="aarch64"))
    assert report.builds[1].imported == "not tried: this machine is aarch64 linux"


def test_a_check_does_not_write_into_the_build(made: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in made.rglob("*")}
    check(made)
    assert {path: path.stat().st_mtime_ns for path in made.rglob("*")} == before


def test_without_torch_here_its_functions_are_said_to_be_unchecked(made: Path) -> None:
    report = check(made, machine=replace(find_machine(), torch=None))
    assert report.passed
    assert report.notes == ("torch is not installed here: its C functions were not checked",)
    assert report.builds[1].imported == "not tried: torch is not installed here"


def test_publishing_refuses_what_fails(builds: Path, tmp_path: Path) -> None:
    registry = DirectoryRegistry.create(tmp_path / "registry")
    (builds / "torch-cuda" / "layers.py").write_text("import axpy\n")
    seal(builds / "torch-cuda")
    with pytest.raises(CheckFailedError, match=r"layers\.py:1: axpy is imported by name") as caught:
        publish(builds, registry, RepoId("acme", "axpy"))
    assert [finding.rule for finding in caught.value.findings] == [Rule.SELF_IMPORT]
    assert registry.repos() == ()


def test_building_refuses_what_would_not_load_and_tells_the_rest(tmp_path: Path) -> None:
    shutil.copytree(AXPY, tmp_path / "axpy")
    package = tmp_path / "axpy" / "torch-ext" / "axpy"
    (package / "layers.py").write_text("import numpy\n")
    report = build(tmp_path / "axpy", backends=["cuda"])
    assert [finding.rule for finding in report.builds[0].findings] == [Rule.FOREIGN_IMPORT]
    (package / "layers.py").write_text("from axpy import ops\n")
    with pytest.raises(CheckFailedError, match="self-import"):
        build(tmp_path / "axpy", backends=["cuda"])


def test_a_folder_without_builds_cannot_be_checked(tmp_path: Path) -> None:
    with pytest.raises(PublishRefusedError, match="holds no build"):
        check(tmp_path)


def test_a_build_is_held_to_what_its_version_offers(builds: Path) -> None:
    offered = record_api(builds / NATIVE)
    assert list(offered.functions) == ["axpy"]
    assert check(builds, run=False, against=offered).passed
    entry = builds / "torch-cuda" / "__init__.py"
    entry.write_text(entry.read_text().replace("def axpy(a, x, y)", "def axpy(a, y, x=None)"))
    seal(builds / "torch-cuda")
    findings = check(builds, run=False, against=offered).builds[0].findings
    assert [(item.rule, item.subject, item.problem) for item in findings] == [
        (Rule.INTERFACE, "axpy(x)", "was moved"), (Rule.INTERFACE, "axpy(y)", "was moved"),
    ]  # fmt: skip
    entry.write_text("__all__ = sorted([])\n")
    seal(builds / "torch-cuda")
    found = check(builds, run=False, against=offered).builds[0].findings
    assert [item.rule for item in found] == [Rule.PUBLIC_NAMES, Rule.INTERFACE]


def test_a_second_opinion_that_our_rules_do_not_share_is_a_finding(builds: Path) -> None:
    # Without torch here, our own rule for torch's functions has nothing to go by.
    module = native_module(builds / NATIVE)
    source = "int torch_no_such_function(void);\nint f(void) { return torch_no_such_function(); }\n"
    argv = ["gcc", "-shared", "-fPIC", "-xc", "-", "-o", str(module.with_name("more.so"))]
    subprocess.run(argv, input=source.encode(), check=True, capture_output=True)
    seal(builds / NATIVE)
    report = check(builds, run=False, machine=replace(find_machine(), torch=None))
    assert [(item.rule, item.path, item.subject) for item in report.builds[1].findings] == [
        (Rule.TORCH_ABI, "more.so", "torch_no_such_function")
    ]
    assert "torch-abi-audit" in report.builds[1].findings[0].problem
