"""The argument vectors of compilers."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from kernel_hub.build.command import Floor, Layout, Step, compile_steps, link_step, target_version
from kernel_hub.build.matrix import NativeJob, plan
from tests.unit.build.machines import machine, recipe

LIBRARIES = Path("/site/lib")
LAYOUT = Layout(Path("/src/axpy"), Path("/scratch/include"), Path("/scratch/objects"), Path("/scratch/_m.abi3.so"))
FLOOR = Floor(
    Path("/scratch/floor/libcompat.a"), (Path("/f/libm.so.6"), Path("/f/libc.so.6")), (Path("/usr/libc_nonshared.a"),)
)
PYTHON = Path("/usr/include/python3.11")
CPU = '[kernel.a]\nbackend = "cpu"\ndepends = []\nsrc = ["csrc/a.h", "csrc/a.cpp"]\ninclude = ["csrc"]\ncxx-flags = ["-mavx2"]\n'


def job(text: str, torch: str = "2.13") -> NativeJob:
    found = plan({"build.toml": recipe(text)}, machine(torch)).jobs[0]
    assert isinstance(found, NativeJob)
    return found


def steps(text: str, torch: str = "2.13") -> tuple[Step, ...]:
    return compile_steps(job(text, torch), "_m", LAYOUT, Path("/usr/bin/g++"), PYTHON)


def stable(version: str) -> str:
    return f'[torch]\nsrc = ["torch-ext/b.cpp"]\nstable-abi = "{version}"\n' + CPU


def test_sources_compile_one_by_one_and_headers_do_not() -> None:
    assert [step.name for step in steps(stable("2.11"))] == ["binding: torch-ext/b.cpp", "a: csrc/a.cpp"]
    assert [step.output for step in steps(stable("2.11"))] == [
        Path("/scratch/objects/-/torch-ext/b.cpp.o"),
        Path("/scratch/objects/a/csrc/a.cpp.o"),
    ]


def test_sources_are_named_relative_to_the_kernels_folder() -> None:
    step = steps(stable("2.11"))[1]
    assert step.folder == LAYOUT.folder
    assert step.argv[:5] == ("/usr/bin/g++", "-c", "csrc/a.cpp", "-o", "/scratch/objects/a/csrc/a.cpp.o")
    assert "-Icsrc" in step.argv


def test_a_components_flags_come_last_and_stay_with_it() -> None:
    binding, component = steps(stable("2.11"))
    assert component.argv[-1] == "-mavx2"
    assert "-mavx2" not in binding.argv


def test_the_defines_that_sources_rely_on_are_set() -> None:
    argv = steps(stable("2.11"))[0].argv
    assert {
        "-DTORCH_EXTENSION_NAME=_m",
        "-DCPU_KERNEL",
        "-DPy_LIMITED_API=0x03090000",
        "-DTORCH_TARGET_VERSION=0x020b000000000000",
    } <= set(argv)


def test_output_depends_on_nothing_but_the_sources() -> None:
    argv = set(steps(stable("2.11"))[0].argv)
    assert {"-fvisibility=hidden", "-fno-gnu-unique", "-fPIC"} <= argv
    assert {
        "-ffile-prefix-map=/src/axpy=.",
        "-ffile-prefix-map=/site/torch=torch",
        "-ffile-prefix-map=/scratch/include=generated",
    } <= argv
    assert not any(flag.startswith("-march=native") or flag == "-g" for flag in argv)


def test_a_folder_with_an_equals_sign_is_not_mapped() -> None:
    layout = Layout(Path("/src/a=b"), LAYOUT.generated, LAYOUT.objects, LAYOUT.library)
    argv = compile_steps(job(stable("2.11")), "_m", layout, Path("/usr/bin/g++"), PYTHON)[0].argv
    assert not any("a=b" in flag for flag in argv)


@pytest.mark.parametrize(
    ("text", "torch", "standard"),
    [
        (stable("2.11"), "2.13", "-std=c++17"),
        (stable("2.12"), "2.13", "-std=c++20"),
        ("[torch]\n" + CPU, "2.11", "-std=c++17"),
        ("[torch]\n" + CPU, "2.12", "-std=c++20"),
    ],
)
def test_the_standard_follows_the_torch_that_is_built_for(text: str, torch: str, standard: str) -> None:
    assert [flag for flag in steps(text, torch)[0].argv if flag.startswith("-std=")] == [standard]


def test_a_classic_build_has_no_target_version() -> None:
    argv = steps("[torch]\n" + CPU)[0].argv
    assert not any("TORCH_TARGET_VERSION" in flag for flag in argv)
    assert "-D_GLIBCXX_USE_CXX11_ABI=1" in argv


def test_a_link_takes_libraries_in_an_order_that_keeps_the_floor() -> None:
    argv = link_step(job(stable("2.11")), LAYOUT, [Path("/scratch/a.o")], Path("/usr/bin/g++"), FLOOR, LIBRARIES).argv
    order = [
        "/scratch/a.o",
        "/scratch/floor/libcompat.a",
        "-lstdc++",
        "/f/libm.so.6",
        "/f/libc.so.6",
        "-lgcc_s",
        "-ltorch_cpu",
    ]
    assert [part for part in argv if part in order] == order
    assert "-nodefaultlibs" in argv
    assert "-Wl,--exclude-libs,libcompat.a" in argv
    assert not any("rpath" in part for part in argv)


def test_the_stable_abi_is_linked_without_the_classic_core() -> None:
    assert "-lc10" not in link_step(job(stable("2.11")), LAYOUT, [], Path("/usr/bin/g++"), FLOOR, LIBRARIES).argv
    assert "-lc10" in link_step(job("[torch]\n" + CPU), LAYOUT, [], Path("/usr/bin/g++"), FLOOR, LIBRARIES).argv


@pytest.mark.parametrize(("abi", "text"), [("2.11", "0x020b000000000000"), ("2.9", "0x0209000000000000")])
def test_the_target_version_has_major_and_minor_in_its_highest_bytes(abi: str, text: str) -> None:
    assert target_version(Version(abi)) == text
    assert int(text, 16) == Version(abi).major << 56 | Version(abi).minor << 48


def test_a_tvm_ffi_build_has_its_own_defines_and_library() -> None:
    found = job('[tvm-ffi]\nsrc = ["tvm-ffi-ext/b.cpp"]\n' + CPU)
    argv = compile_steps(found, "_m", LAYOUT, Path("/usr/bin/g++"), None)[0].argv
    assert {"-DTVM_FFI_EXTENSION_NAME=_m", "-DCPU_KERNEL", "-std=c++17"} <= set(argv)
    assert not any("Py_LIMITED_API" in flag or "TORCH" in flag for flag in argv)
    assert "/site/tvm_ffi/include" in argv
    linked = link_step(found, LAYOUT, [], Path("/usr/bin/g++"), FLOOR, LIBRARIES).argv
    assert "-ltvm_ffi" in linked
    assert not any("torch" in part for part in linked)
