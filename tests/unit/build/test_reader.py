"""Reading recipes, against vectors and against the ecosystem's own reader."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from kernels._rust import Backend as PeerBackend
from kernels._rust import Build as PeerBuild
from packaging.version import Version

from kernel_hub.build.reader import parse_recipe
from kernel_hub.build.recipe import (
    BackendRules,
    Component,
    Home,
    NoarchFramework,
    Recipe,
    TorchFramework,
    TvmFfiFramework,
)
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.metadata import AtFixedRevision, AtVersion
from kernel_hub.model.requirement import RepoId

VECTORS = Path(__file__).parents[2] / "vectors"
REFUSED = json.loads((VECTORS / "recipes" / "refused.json").read_text("utf-8"))
HEAD = b'[general]\nname = "axpy"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n'


def full() -> Recipe:
    return parse_recipe((VECTORS / "recipes" / "full.toml").read_bytes())


def open_as_peer(folder: Path, content: bytes) -> PeerBuild:
    (folder / "build.toml").write_bytes(content)
    return PeerBuild.open(folder)


@pytest.mark.parametrize("case", REFUSED, ids=[case["case"] for case in REFUSED])
def test_a_faulty_recipe_is_refused_at_its_key(case: dict[str, str]) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        parse_recipe(case["recipe"].encode())
    assert caught.value.location == case["location"]
    assert case["problem"] in caught.value.problem


@pytest.mark.parametrize("case", REFUSED, ids=[case["case"] for case in REFUSED])
def test_the_vectors_state_what_the_peer_refuses(case: dict[str, str], tmp_path: Path) -> None:
    if case["peer_refuses"]:
        with pytest.raises(ValueError, match=r"parse|legacy|edition|general"):
            open_as_peer(tmp_path, case["recipe"].encode())
    else:
        open_as_peer(tmp_path, case["recipe"].encode())


@pytest.mark.parametrize(
    "name",
    [
        "recipes/full.toml",
        "recipes/axpy/build.toml",
        "recipes/axpy/build.noarch.toml",
        "recipes/classic/build.toml",
        "recipes/cuda/build.toml",
        "recipes/tvm-ffi/build.toml",
        "repo-format/build.v5.toml",
        "repo-format/build.noarch.toml",
    ],
)
def test_a_recipe_reads_as_the_peer_reads_it(name: str, tmp_path: Path) -> None:
    content = (VECTORS / name).read_bytes()
    recipe = parse_recipe(content)
    peer = open_as_peer(tmp_path, content)
    assert {backend.value for backend in recipe.backends} == {str(backend).lower() for backend in peer.general.backends}
    for backend in recipe.backends:
        theirs = peer.all_kernel_depends(PeerBackend.from_str(backend.value))
        assert {str(item.repo) for item in recipe.kernel_depends_of(backend)} == {item.repo_id for item in theirs}


def test_every_key_of_the_edition_reaches_the_value() -> None:
    recipe = full()
    base, extra = AtVersion(RepoId("acme", "base-ops"), 2), AtFixedRevision(RepoId("acme", "extra"), "main")
    assert (recipe.name, recipe.python_name, recipe.version, recipe.license) == (
        "two-step",
        "two_step",
        3,
        "Apache-2.0",
    )
    assert recipe.backends == tuple(
        BackendKind(name) for name in ("cpu", "cuda", "rocm", "xpu", "metal", "cann", "neuron", "tpu")
    )
    assert recipe.upstream == "https://example.org/upstream/two-step.git"
    assert recipe.source == "git@example.org:acme/two-step.git"
    assert recipe.home == Home(RepoId("acme", "two-step"), "staging")
    assert recipe.python_depends == ("einops", "tvm-ffi")
    assert recipe.kernel_depends == (base, extra)
    assert recipe.rules[BackendKind.CUDA] == BackendRules(
        Version("12.6"), Version("13.0"), ("nvidia-cutlass-dsl",), (AtVersion(RepoId("acme", "cuda-only"), 1),)
    )
    assert recipe.framework == TorchFramework(
        src=("torch-ext/torch_binding.cpp", "torch-ext/torch_binding.h"),
        include=(".",),
        pyext=("py", "pyi", "json", "tar.gz"),
        minver=Version("2.11"),
        maxver=Version("2.13"),
        cxx_flags=("-Wall",),
        stable_abi={BackendKind.CPU: Version("2.11"), BackendKind.CUDA: Version("2.9")},
    )
    assert [component.name for component in recipe.components_of(BackendKind.CPU)] == ["first", "first_avx512"]
    assert recipe.components_of(BackendKind.CUDA) == (
        Component(
            name="second",
            backend=BackendKind.CUDA,
            depends=("torch", "cutlass_4_0"),
            src=("cuda/second.cu",),
            cxx_flags=("-Wextra",),
            archs=("8.0", "9.0a", "9.0+PTX"),
            device_flags=("--use_fast_math", "-Xptxas", "-v"),
            cuda_minver=Version("12.8"),
        ),
    )
    assert recipe.components_of(BackendKind.ROCM)[0].archs == ("gfx942",)
    assert recipe.components_of(BackendKind.ROCM)[0].device_flags == ("-ffast-math",)
    assert recipe.components_of(BackendKind.XPU)[0].device_flags == ("-fsycl",)
    assert recipe.notes == ()


def test_dependencies_of_a_backend_follow_the_general_ones() -> None:
    recipe = full()
    assert recipe.python_depends_of(BackendKind.CUDA) == ("einops", "tvm-ffi", "nvidia-cutlass-dsl")
    assert recipe.python_depends_of(BackendKind.TPU) == ("einops", "tvm-ffi")
    assert [str(item.repo) for item in recipe.kernel_depends_of(BackendKind.CUDA)] == [
        "acme/base-ops",
        "acme/extra",
        "acme/cuda-only",
    ]


def test_one_stable_abi_holds_for_every_backend() -> None:
    recipe = parse_recipe(HEAD.replace(b'["cpu"]', b'["cpu", "cuda"]') + b'[torch]\nstable-abi = "2.10"\n')
    assert isinstance(recipe.framework, TorchFramework)
    assert recipe.framework.stable_abi == dict.fromkeys((BackendKind.CPU, BackendKind.CUDA), Version("2.10"))


def test_a_stable_abi_for_another_kernels_backend_is_ignored() -> None:
    recipe = parse_recipe(HEAD + b'[torch.stable-abi]\ncpu = "2.11"\nxpu = "2.12"\n')
    assert isinstance(recipe.framework, TorchFramework)
    assert recipe.framework.stable_abi == {BackendKind.CPU: Version("2.11")}


def test_noarch_keys_have_underscores() -> None:
    recipe = parse_recipe((VECTORS / "repo-format" / "build.noarch.toml").read_bytes())
    assert recipe.framework == NoarchFramework(("py", "json"), ("8.0", "9.0"), ("gfx942",))


def test_tvm_ffi_is_a_framework() -> None:
    recipe = parse_recipe(HEAD + b'[tvm-ffi]\nsrc = ["b.cpp"]\ncxx-flags = ["-Wall"]\n')
    assert recipe.framework == TvmFfiFramework(src=("b.cpp",), pyext=("py", "pyi"), cxx_flags=("-Wall",))


def test_components_of_a_noarch_recipe_are_noted_because_the_peer_takes_them() -> None:
    content = HEAD + b'[torch-noarch]\n[kernel.a]\nbackend = "cpu"\ndepends = []\nsrc = []\n'
    assert "are not used" in parse_recipe(content).notes[0]


def test_edition_4_is_upgraded_with_a_note() -> None:
    content = HEAD.replace(b"edition = 5\n", b"") + b'[torch]\nstable-abi = "2.11"\n'
    recipe = parse_recipe(content)
    assert recipe.notes == ("build.toml has no edition and was read as edition 4; add edition = 5 to [general]",)
    assert replace(recipe, notes=()) == parse_recipe(HEAD + b'[torch]\nstable-abi = "2.11"\n')


def test_edition_3_is_upgraded_with_a_note_that_says_how_to_keep_it() -> None:
    recipe = parse_recipe(b'[general]\nname = "axpy"\nlicense = "MIT"\nbackends = ["cuda"]\n')
    assert (recipe.version, recipe.framework) == (1, NoarchFramework(("py", "pyi")))
    assert recipe.notes == ("build.toml was read as edition 3; add edition = 5, version = 1, [torch-noarch] to it",)


def test_ten_megabytes_are_refused_unread() -> None:
    with pytest.raises(InvalidDocumentError, match="is longer than 1048576 bytes"):
        parse_recipe(HEAD + b"#" * 10_000_000)


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(InvalidDocumentError, match="is not TOML"):
        parse_recipe(b"a = " + b"[" * 100_000)


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(InvalidDocumentError, match=r"is not UTF-8 \(byte 1\)"):
        parse_recipe(b"a\xff")


def test_paths_names_each_file_and_folder_once() -> None:
    assert full().paths() == (
        "torch-ext/torch_binding.cpp",
        "torch-ext/torch_binding.h",
        ".",
        "csrc/first.cpp",
        "csrc",
        "csrc/avx512.cpp",
        "cuda/second.cu",
        "xpu/third.cpp",
        "metal/fourth.cpp",
    )


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("backend", "backends"), ("licence", "license"), ("upsteam", "upstream"), ("edition_number", "edition")],
)
def test_an_unknown_key_that_resembles_one_is_told_which(wrong: str, right: str) -> None:
    text = f'[general]\nname = "axpy"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n{wrong} = "x"\n'
    with pytest.raises(InvalidDocumentError) as caught:
        parse_recipe(f"{text}[torch-noarch]\n".encode())
    assert caught.value.location == f"general.{wrong}"
    assert caught.value.hint() == f"did you mean {right!r}?"


def test_an_unknown_key_that_resembles_none_gets_no_guess() -> None:
    text = '[general]\nname = "axpy"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\nzzz = "x"\n'
    with pytest.raises(InvalidDocumentError) as caught:
        parse_recipe(f"{text}[torch-noarch]\n".encode())
    assert (caught.value.location, caught.value.hint()) == ("general.zzz", "")


@pytest.mark.parametrize("name", ["a", "1a", "Axpy", "axpy-", "a_b"])
def test_a_name_that_is_none_is_told_the_whole_rule(name: str) -> None:
    text = f'[general]\nname = "{name}"\nversion = 1\nedition = 5\nlicense = "MIT"\nbackends = ["cpu"]\n'
    with pytest.raises(
        InvalidDocumentError, match=r"at least two characters, .*beginning with a letter and not ending"
    ):
        parse_recipe(f"{text}[torch-noarch]\n".encode())
