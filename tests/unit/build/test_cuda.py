"""Architectures of CUDA builds and nvcc's argument vector."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from kernel_hub.build.command import Layout, compile_steps
from kernel_hub.build.cuda import chosen_archs, code_options, default_archs, listed_archs
from kernel_hub.build.machine import Machine
from kernel_hub.build.matrix import Matrix, NativeJob, plan
from tests.unit.build.machines import machine, recipe

STABLE = '[torch]\nsrc = ["b.cpp"]\nstable-abi = "2.11"\n'
KERNEL = '[kernel.k]\nbackend = "cuda"\ndepends = []\nsrc = ["k.cu", "k.cpp"]\n'
KERNEL += 'cxx-flags = ["-Wall"]\ncuda-flags = ["-lineinfo"]\n'
CUDA = '["cuda"]'


def built(text: str, *toolkits: str, torch: str = "2.13") -> Matrix:
    return plan({"build.toml": recipe(text, backends=CUDA)}, machine(torch, cuda=toolkits))


def job(text: str, toolkit: str = "13.0") -> NativeJob:
    found = built(text, toolkit).jobs[0]
    assert isinstance(found, NativeJob)
    return found


@pytest.mark.parametrize(
    ("toolkit", "archs"),
    [
        ("13.0", "7.5 8.0 8.6 8.7 8.9 9.0 10.0 11.0 12.0 12.1+PTX"),
        ("13.2", "7.5 8.0 8.6 8.7 8.9 9.0 10.0 11.0 12.0 12.1+PTX"),
        ("12.8", "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.1 12.0+PTX"),
        ("12.9", "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0 10.0 10.1 12.0+PTX"),
        ("12.6", "7.0 7.2 7.5 8.0 8.6 8.7 8.9 9.0+PTX"),
    ],
)
def test_the_defaults_follow_the_toolkit(toolkit: str, archs: str) -> None:
    assert default_archs(Version(toolkit)) == tuple(archs.split())
    assert chosen_archs((), Version(toolkit)) == tuple(archs.split())


@pytest.mark.parametrize(
    ("asked", "toolkit", "chosen"),
    [
        ("8.0 9.0", "13.0", "8.0 9.0"),
        ("9.0 8.0 9.0", "13.0", "8.0 9.0"),
        ("8.0 9.0a 9.0+PTX", "13.0", "8.0 9.0+PTX 9.0a"),
        ("8.0 9.0 9.0a", "13.0", "8.0 9.0a"),
        ("8.0 8.6 8.9", "12.6", "8.0 8.6 8.9"),
        ("8.1", "13.0", "8.1"),
        ("8.0+PTX", "13.0", "8.0+PTX"),
        ("7.0 8.0", "13.0", "8.0"),
        ("10.0f 12.0a", "13.0", "10.0f 12.0a"),
        ("10.0a", "12.6", ""),
        ("10.0", "12.6", ""),
        ("7.0", "13.0", ""),
        ("6.0+PTX", "13.0", ""),
        ("7.5+PTX", "13.0", "7.5+PTX"),
        ("nonsense", "13.0", ""),
    ],
)
def test_what_is_asked_for_is_met_with_what_the_toolkit_builds(asked: str, toolkit: str, chosen: str) -> None:
    assert chosen_archs(asked.split(), Version(toolkit)) == tuple(chosen.split())


def test_architectures_do_not_depend_on_the_order_they_are_asked_in() -> None:
    asked = ["9.0a", "8.0", "9.0+PTX", "8.6"]
    assert chosen_archs(asked, Version("13.0")) == chosen_archs(asked[::-1], Version("13.0"))


def test_metadata_lists_each_once_in_order_of_the_text() -> None:
    assert listed_archs(["9.0", "10.0", "9.0", "7.5"]) == ("10.0", "7.5", "9.0")


def test_code_options_name_machine_code_and_ptx() -> None:
    assert code_options(["8.0", "9.0a", "12.1+PTX"]) == (
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_121,code=[sm_121,compute_121]",
    )


def test_each_toolkit_gives_a_build_of_its_own() -> None:
    matrix = built(STABLE + KERNEL, "12.6", "13.0")
    assert [str(job.label) for job in matrix.jobs] == [
        "torch-stable-abi211-cu126-x86_64-linux",
        "torch-stable-abi211-cu130-x86_64-linux",
    ]
    assert [len(job.archs) for job in matrix.jobs] == [8, 10]


def test_the_recipes_toolkit_range_is_kept() -> None:
    matrix = built('[general.cuda]\nminver = "12.8"\nmaxver = "12.9"\n' + STABLE + KERNEL, "12.6", "12.8", "13.0")
    assert [str(job.label) for job in matrix.jobs] == ["torch-stable-abi211-cu128-x86_64-linux"]
    assert [str(item) for item in matrix.omissions] == [
        "cuda of build.toml: CUDA 12.6 is here, the recipe asks for 12.8 or newer",
        "cuda of build.toml: CUDA 13.0 is here, the recipe asks for 12.9 or older",
    ]


def test_a_component_for_newer_toolkits_is_left_out_of_older_builds() -> None:
    newer = '[kernel.n]\nbackend = "cuda"\ndepends = []\nsrc = ["n.cu"]\ncuda-minver = "13.0"\ncuda-capabilities = ["9.0a"]\n'
    old, new = built(STABLE + KERNEL + newer, "12.8", "13.0").jobs
    assert isinstance(old, NativeJob)
    assert isinstance(new, NativeJob)
    assert [item.name for item in old.components] == ["k"]
    assert [item.name for item in new.components] == ["k", "n"]
    assert "9.0a" in new.archs
    assert "9.0a" not in old.archs


def test_archs_that_the_toolkit_cannot_make_are_the_reason() -> None:
    matrix = built(STABLE + KERNEL + 'cuda-capabilities = ["10.0a"]\n', "12.6")
    assert [str(item) for item in matrix.omissions] == [
        "cuda of build.toml: CUDA 12.6 compiles nothing for the cuda-capabilities of k"
    ]


def test_a_component_without_device_code_states_no_archs() -> None:
    assert job(STABLE + KERNEL.replace('"k.cu", ', "")).archs == ()


def test_without_a_toolkit_or_with_an_unnameable_one_there_is_no_build() -> None:
    assert [str(item) for item in built(STABLE + KERNEL).omissions] == [
        "cuda of build.toml: there is no CUDA toolkit here"
    ]
    assert "its minor version has two digits" in str(built(STABLE + KERNEL, "12.10").omissions[0])


def test_a_classic_build_needs_a_torch_for_the_same_toolkit() -> None:
    matrix = built('[torch]\nsrc = ["b.cpp"]\n' + KERNEL, "13.0")
    assert matrix.jobs == ()
    assert "the torch here is for CPU only" in str(matrix.omissions[0])


def test_device_sources_go_through_nvcc_and_others_do_not() -> None:
    layout = Layout(Path("/src"), Path("/w/include"), Path("/w/o"), Path("/w/m.so"))
    steps = compile_steps(job(STABLE + KERNEL), "_m", layout, Path("/usr/bin/g++"), Path("/py"))
    by_source = {step.argv[2]: step.argv for step in steps}
    assert [by_source[name][0] for name in ("b.cpp", "k.cu", "k.cpp")] == [
        "/usr/bin/g++", "/opt/cuda-13.0/bin/nvcc", "/usr/bin/g++",
    ]  # fmt: skip
    assert "-lineinfo" in by_source["k.cu"]
    assert "-Wall" not in by_source["k.cu"]
    assert "-Wall" in by_source["k.cpp"]
    assert "-DCUDA_KERNEL" in by_source["k.cu"]
    assert "-DUSE_CUDA=1" in by_source["k.cpp"]
    assert ("-ccbin", "/usr/bin/g++") in list(zip(by_source["k.cu"], by_source["k.cu"][1:], strict=False))
    assert ("-Xcompiler", "-fno-gnu-unique") in list(zip(by_source["k.cu"], by_source["k.cu"][1:], strict=False))
    assert "--orig_src_path_name=k.cu" in by_source["k.cu"]


def through_clang() -> Machine:
    """A machine where clang stands in for nvcc."""
    here = machine(cuda=("12.6",))
    return replace(here, cuda=(replace(here.cuda[0], clang_headers=Path("/opt/clang/headers")),))


def test_where_clang_stands_in_for_nvcc_it_is_told_each_architecture_and_the_plan_says_so() -> None:
    text = STABLE + KERNEL.replace("-lineinfo", "-DN=1") + 'cuda-capabilities = ["8.0", "9.0+PTX"]\n'
    job = plan({"build.toml": recipe(text, backends=CUDA)}, through_clang()).jobs[0]
    assert isinstance(job, NativeJob)
    assert (str(job.label), job.remark) == (
        "torch-stable-abi211-cu126-x86_64-linux", "through clang, experimental",
    )  # fmt: skip
    layout = Layout(*map(Path, ("/k", "/w/include", "/w/objects", "/w/m.so")))
    argv = next(
        step.argv for step in compile_steps(job, "m", layout, Path("/usr/bin/g++"), None) if "cuda" in step.argv
    )
    assert argv[:2] == ("/opt/cuda-12.6/bin/nvcc", "clang")
    wanted = {
        "--cuda-gpu-arch=sm_80", "--no-cuda-include-ptx=sm_80", "--cuda-gpu-arch=sm_90", "--cuda-include-ptx=sm_90",
        "--cuda-path=/opt/cuda-12.6", "--gcc-toolchain=/usr", "-DN=1",
    }  # fmt: skip
    assert wanted <= set(argv)
    assert not {"-fno-gnu-unique", "-Xcompiler", "-ccbin"} & set(argv)
    assert argv.index("-x") < argv.index("-c")


def test_flags_of_nvcc_that_clang_does_not_take_are_the_reason() -> None:
    matrix = plan({"build.toml": recipe(STABLE + KERNEL, backends=CUDA)}, through_clang())
    assert [item.reason for item in matrix.omissions] == [
        "CUDA 12.6 is here through clang alone, which does not take -lineinfo"
    ]
