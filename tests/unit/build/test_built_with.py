"""What metadata says of the compilers and flags that made a build."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_hub.build.built_with import Tool, built_with
from kernel_hub.build.identity import compiler_identity, toolkit_identity
from kernel_hub.build.machine import Compiler
from kernel_hub.build.matrix import NativeJob, plan
from kernel_hub.build.toolchain import find_machine
from kernel_hub.build.vendors import usual_cuda_homes
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.digest import Digest
from kernel_hub.model.metadata import Metadata
from tests.unit.build.machines import machine, recipe

CUDA = """
[torch]
stable-abi = "2.11"
cxx-flags = ["-DBINDING"]
[kernel.scale]
backend = "cuda"
depends = ["torch"]
src = ["scale.cu"]
cuda-capabilities = ["8.0", "9.0+PTX"]
cuda-flags = ["-lineinfo"]
[kernel.plain]
backend = "cuda"
depends = ["torch"]
src = ["plain.cpp"]
cxx-flags = ["-funroll-loops"]
"""


@pytest.fixture
def job() -> NativeJob:
    found = plan({"build.toml": recipe(CUDA, backends='["cuda"]')}, machine(cuda=("13.0",))).jobs[0]
    assert isinstance(found, NativeJob)
    return found


def fake_compiler(folder: Path, says: str) -> Compiler:
    """A compiler that answers every question with one text."""
    path = folder / "own-g++"
    path.write_text(f"#!/bin/sh\necho '{says}'\n", encoding="ascii")
    path.chmod(0o755)
    return Compiler(path, "own-g++ 1.0")


def test_compilers_toolkit_and_flags_are_said_and_no_folder_is(job: NativeJob) -> None:
    tool = Tool("g++", "g++ 12", (("cc1plus", Digest.of(b"x")),))
    said = built_with(job, [tool], "_axpy_cuda_abc", {})
    assert said["compilers"] == [
        {"name": "g++", "version": "g++ 12", "programs": {"cc1plus": str(Digest.of(b"x"))}},
    ]
    assert (said["against"], said["toolkit"]) == ("torch 2.13", "CUDA 13.0")
    assert {"-std=c++17", "-O3", "-fno-gnu-unique", "-DTORCH_EXTENSION_NAME=_axpy_cuda_abc"} <= set(said["flags"])
    assert said["binding-flags"] == ["-DBINDING"]
    assert said["components"] == {
        "scale": {"cuda-flags": ["-lineinfo"], "archs": ["8.0", "9.0+PTX"]},
        "plain": {"cxx-flags": ["-funroll-loops"]},
    }
    assert "/" not in json.dumps(said)


def test_it_survives_being_written_and_read_and_the_ecosystems_reader_accepts_it(job: NativeJob) -> None:
    theirs = pytest.importorskip("kernels._rust").Metadata
    said = built_with(job, [], "_axpy_cuda_abc", {})
    written = Metadata("axpy", "_axpy_cuda_abc", 1, "MIT", BackendKind.CUDA, built_with=said)
    assert Metadata.parse(written.format()) == written
    assert theirs.from_bytes(written.format()).id == "_axpy_cuda_abc"


def test_the_program_that_really_compiles_is_the_one_whose_digest_counts() -> None:
    compiler = find_machine().compiler
    if compiler is None:
        pytest.skip("there is no C++ compiler here")
    tool = compiler_identity(compiler)
    programs = dict(tool.programs)
    assert {compiler.path.name, "cc1plus", "as", "ld"} <= set(programs)
    assert programs[compiler.path.name] == Digest.of(compiler.path.resolve().read_bytes())
    assert len({str(digest) for digest in programs.values()}) == len(programs)


def test_a_program_that_the_compiler_names_is_digested_and_one_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.write_bytes(b"one")
    compiler = fake_compiler(tmp_path, str(part))
    assert dict(compiler_identity(compiler).programs)["cc1plus"] == Digest.of(b"one")
    part.write_bytes(b"another")
    assert dict(compiler_identity(compiler).programs)["cc1plus"] == Digest.of(b"another")
    part.unlink()
    assert [name for name, _ in compiler_identity(compiler).programs] == ["own-g++"]


@pytest.mark.skipif(not usual_cuda_homes(), reason="nvcc is not installed on this machine")
def test_a_cuda_toolkit_is_named_by_all_the_programs_of_its_compiler() -> None:
    tool = toolkit_identity(find_machine().cuda[0])
    assert {name for name, _ in tool.programs} == {"nvcc", "cudafe++", "cicc", "ptxas", "fatbinary"}
    assert tool.version.count(".") == 2
