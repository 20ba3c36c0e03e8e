"""Second opinions: what other checkers find beside our own rules, and that their absence is said."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.build.audit.elf import read_library
from kernel_hub.build.audit.finding import Finding, Rule
from kernel_hub.build.audit.known import find_knowledge
from kernel_hub.build.audit.native import Knowledge, check_native
from kernel_hub.build.audit.reviews import ABI3AUDIT, TORCH_ABI_AUDIT, NativeModule, Review, Reviews, news, review
from kernel_hub.build.toolchain import find_torch
from kernel_hub.model.variant import ArchLabel, parse_label

STABLE = "torch-stable-abi211-cpu-x86_64-linux"
SOURCES = {
    "good.c": "void *PyModule_Create2(void *, int);\nvoid *PyInit_m(void) { return PyModule_Create2(0, 1013); }\n",
    "python.c": (
        "void *PyCode_NewEmpty(void *, void *, int), *PyModule_AddType(void *, void *);\n"
        "void *PyInit_m(void) { PyModule_AddType(0, 0); return PyCode_NewEmpty(0, 0, 0); }\n"
    ),
    "newer.c": "int torch_tag_core(void), torch_no_such(void);\nint f(void) { return torch_tag_core() + torch_no_such(); }\n",
    "cxx.cpp": "namespace c10 { int unstable(int); }\nint f() { return c10::unstable(1); }\n",
}


def label(text: str = STABLE) -> ArchLabel:
    found = parse_label(text)
    assert isinstance(found, ArchLabel)
    return found


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, NativeModule]:
    """A stripped module of each source."""
    folder = tmp_path_factory.mktemp("modules")
    found = {}
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
        path = folder / f"{name.partition('.')[0]}.abi3.so"
        compiler = "g++" if name.endswith("cpp") else "gcc"
        argv = [compiler, "-shared", "-fPIC", "-s", name, "-o", path.name]
        subprocess.run(argv, cwd=folder, check=True, capture_output=True)
        found[name.partition(".")[0]] = NativeModule(path, path.name, label())
    return found


@pytest.fixture(scope="module")
def seen(modules: dict[str, NativeModule]) -> Reviews:
    return review(tuple(modules.values()), Knowledge())


def subjects(seen: Reviews, module: NativeModule) -> set[tuple[Rule, str]]:
    return {(item.rule, item.subject) for item in seen.findings[module.file]}


def test_both_checkers_look_at_every_module_also_stripped(modules: dict[str, NativeModule], seen: Reviews) -> None:
    assert [(item.name, item.count, item.unrun) for item in seen.reviews] == [
        (ABI3AUDIT, 4, ""), (TORCH_ABI_AUDIT, 4, ""),
    ]  # fmt: skip
    assert all(item.version for item in seen.reviews)
    assert subjects(seen, modules["good"]) == set()


def test_a_breach_of_pythons_limited_api_is_found(modules: dict[str, NativeModule], seen: Reviews) -> None:
    assert {(Rule.PYTHON_ABI, "PyCode_NewEmpty"), (Rule.PYTHON_ABI, "PyModule_AddType")} == subjects(
        seen, modules["python"]
    )


def test_a_torch_function_that_is_newer_or_unknown_is_found(modules: dict[str, NativeModule], seen: Reviews) -> None:
    assert {(Rule.TORCH_ABI, "torch_tag_core"), (Rule.TORCH_ABI, "torch_no_such")} == subjects(seen, modules["newer"])


def test_torchs_unstable_interface_is_found(modules: dict[str, NativeModule], seen: Reviews) -> None:
    assert {(Rule.TORCH_ABI, "c10::unstable(int)")} == subjects(seen, modules["cxx"])


def test_our_rules_find_all_of_that_and_it_is_not_said_twice(modules: dict[str, NativeModule], seen: Reviews) -> None:
    known = find_knowledge(find_torch())
    for module in modules.values():
        ours = list(check_native(read_library(module.file), module.path, module.label, None, known))
        assert news(ours, seen.findings[module.file]) == ()
        assert bool(ours) == bool(seen.findings[module.file])


def test_what_our_rules_miss_is_kept() -> None:
    theirs = Finding(Rule.TORCH_ABI, "m.so", "c10::f()", "", "")
    assert news([Finding(Rule.TORCH_ABI, "other.so", "_ZN3c101fEv", "", "")], [theirs]) == (theirs,)
    assert news([Finding(Rule.PYTHON_ABI, "m.so", "PyX", "", "")], [theirs]) == (theirs,)


def test_a_newer_target_or_newer_headers_are_taken_into_account(modules: dict[str, NativeModule]) -> None:
    newer = replace(modules["newer"], label=label("torch-stable-abi212-cpu-x86_64-linux"))
    assert subjects(review([newer], Knowledge(shims={})), newer) == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("torch213-cxx11-cpu-x86_64-linux", [True, False]), ("tvm-ffi01-cpu-x86_64-linux", [False, False])],
)
def test_a_checker_is_not_asked_about_what_it_is_not_for(
    modules: dict[str, NativeModule], text: str, expected: list[bool]
) -> None:
    module = replace(modules["cxx"], label=label(text))
    seen = review([module], Knowledge())
    assert [item.wanted for item in seen.reviews] == expected
    assert seen.findings.get(module.file, []) == []


def test_no_module_is_no_work(modules: dict[str, NativeModule]) -> None:
    assert [str(item).partition(": ")[2] for item in review([], Knowledge()).reviews] == [
        "not run: there is no native module for it"
    ] * 2


def test_a_checker_that_is_not_installed_is_said_to_be_missing(
    modules: dict[str, NativeModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("abi3audit", "torch_abi_audit"):
        monkeypatch.setitem(sys.modules, name, None)
    seen = review([modules["cxx"]], Knowledge())
    hint = "it is not installed: pip install 'kernel-hub[build]'"
    assert seen.reviews == (Review(ABI3AUDIT, unrun=hint), Review(TORCH_ABI_AUDIT, unrun=hint))
    assert str(seen.reviews[0]) == f"abi3audit: not run: {hint}"
    assert seen.findings == {}


def test_a_checker_that_cannot_read_a_module_is_said_not_to_have_run(
    tmp_path: Path, modules: dict[str, NativeModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(modules["good"].file, tmp_path / "m.abi3.so")
    (tmp_path / "m.abi3.so").write_bytes(b"\x7fELF no more")
    module = NativeModule(tmp_path / "m.abi3.so", "m.abi3.so", label())
    seen = review([module], Knowledge())
    assert seen.reviews[0].unrun.startswith("it could not read")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert review([modules["good"]], Knowledge()).reviews[1].unrun.startswith("it could not read good.abi3.so: ")
