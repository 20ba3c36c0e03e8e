"""Each rule for native modules on compiled vectors, stripped and not, because loading goes by what `strip` keeps."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_hub.build.audit.elf import read_library
from kernel_hub.build.audit.finding import Finding
from kernel_hub.build.audit.known import find_knowledge
from kernel_hub.build.audit.native import Knowledge, check_native
from kernel_hub.build.toolchain import find_torch
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.variant import ArchLabel, parse_label

CASES = json.loads((Path(__file__).parents[2] / "vectors" / "audit" / "native.json").read_text("utf-8"))
COMPILERS = {"c": ("gcc", "a.c"), "c++": ("g++", "a.cpp")}


@pytest.fixture(scope="module")
def known() -> Knowledge:
    return find_knowledge(find_torch())


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Libraries to link with, by the placeholder that flags name them by."""
    folder = tmp_path_factory.mktemp("libraries")
    found = {}
    for key, name in (("{other}", "libother.so.7"), ("{libcudart.so.13}", "libcudart.so.13")):
        link(["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{name}", "-xc", "/dev/null", "-o", name], folder)
        found[key] = str(folder / name)
    return found


def link(argv: list[str], folder: Path) -> None:
    subprocess.run(argv, cwd=folder, check=True, capture_output=True)


def findings_in(path: Path, label_text: str, known: Knowledge, module: str | None = "m") -> list[Finding]:
    label = parse_label(label_text)
    assert isinstance(label, ArchLabel)
    return sorted(check_native(read_library(path), path.name, label, module, known))


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_a_vector_breaks_the_rules_it_is_said_to_break(
    case: dict[str, object], known: Knowledge, libraries: dict[str, str], tmp_path: Path
) -> None:
    compiler, name = COMPILERS[str(case["language"])]
    (tmp_path / name).write_text(str(case["source"]))
    flags = [libraries.get(flag, flag) for flag in case["flags"]]  # type: ignore[attr-defined]
    link([compiler, "-O1", "-fPIC", "-shared", name, "-o", "m.so", *flags], tmp_path)
    shutil.copy(tmp_path / "m.so", tmp_path / "stripped.so")
    link(["strip", "stripped.so"], tmp_path)
    for library in ("m.so", "stripped.so"):
        found = findings_in(tmp_path / library, str(case["label"]), known)
        assert [[finding.rule.value, finding.subject] for finding in found] == case["findings"]


def test_a_library_beside_the_module_needs_no_entry(known: Knowledge, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    link(["gcc", "-shared", "-fPIC", "a.c", "-o", "libmore.so"], tmp_path)
    assert findings_in(tmp_path / "libmore.so", "torch-stable-abi211-cpu-x86_64-linux", known, module=None) == []


def test_what_is_not_known_here_is_not_held_against_a_module(tmp_path: Path) -> None:
    declared = "extern int torch_tag_core(void), PyCode_NewEmpty(void);\n"
    (tmp_path / "a.c").write_text(f"{declared}int f(void) {{ return torch_tag_core() + PyCode_NewEmpty(); }}\n")
    link(["gcc", "-shared", "-fPIC", "a.c", "-o", "m.so"], tmp_path)
    assert findings_in(tmp_path / "m.so", "torch-stable-abi211-cpu-x86_64-linux", Knowledge(), module=None) == []


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"not a library", b"\x7fELF\x02\x01\x01" + bytes(200)])
def test_a_file_that_is_no_library_is_malformed(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.so").write_bytes(content)
    with pytest.raises(InvalidDocumentError, match=r"m\.so"):
        read_library(tmp_path / "m.so")


def test_a_library_cut_short_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    link(["gcc", "-shared", "-fPIC", "a.c", "-o", "m.so"], tmp_path)
    content = (tmp_path / "m.so").read_bytes()
    for size_bytes in range(0, len(content) - 64, 1024):
        (tmp_path / "cut.so").write_bytes(content[:size_bytes])
        with pytest.raises(InvalidDocumentError):
            read_library(tmp_path / "cut.so")


def test_an_object_file_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    link(["gcc", "-c", "a.c", "-o", "a.o"], tmp_path)
    with pytest.raises(InvalidDocumentError, match="is not a shared library"):
        read_library(tmp_path / "a.o")
