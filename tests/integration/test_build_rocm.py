"""Building for ROCm with a stand-in for its compiler, which hands what is not device code to g++: which commands are run.

What hipcc itself makes of them is not seen here; no machine of the tests has it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_hub.build.audit.elf import read_library
from kernel_hub.build.pipeline import build
from kernel_hub.model.metadata import Metadata

AXPY = Path(__file__).parents[1] / "vectors" / "recipes" / "axpy"
LABEL = "torch-stable-abi211-rocm71-x86_64-linux"
HIPCC = """#!/bin/sh
if [ "$1" = --version ]; then echo 'HIP version: 7.1.25424-4179531dcd'; exit 0; fi
for word in "$@"; do
  case "$word" in --offload-arch=*) echo "$word" >>'{said}';; hip) set -- "$@" c++;; *) set -- "$@" "$word";; esac
  shift
done
exec g++ "$@"
"""


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ROCm on the search path; where its compiler says what it was asked for."""
    said, root = tmp_path / "said", tmp_path / "rocm"
    (root / "bin").mkdir(parents=True)
    (root / "lib").mkdir()
    (root / "bin" / "hipcc").write_text(HIPCC.format(said=said), encoding="ascii")
    (root / "bin" / "hipcc").chmod(0o755)
    argv = ["gcc", "-shared", "-nostdlib", "-Wl,-soname,libamdhip64.so.7", "-xc", os.devnull, "-o", "libamdhip64.so"]
    subprocess.run(argv, cwd=root / "lib", check=True)
    monkeypatch.setenv("PATH", f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return said


def test_device_code_goes_through_hipcc_and_the_build_needs_its_runtime(said: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(AXPY, tmp_path / "axpy"))
    (folder / "build.noarch.toml").unlink()
    recipe = (folder / "build.toml").read_text("utf-8").replace("cpu", "rocm").replace("scale.cpp", "scale.hip")
    (folder / "build.toml").write_text(recipe.replace("cxx-flags", "hip-flags"), "utf-8")
    (folder / "csrc" / "scale.cpp").rename(folder / "csrc" / "scale.hip")
    report = build(folder)
    assert [made.label for made in report.builds] == [LABEL]
    place = report.builds[0].folder
    assert "libamdhip64.so.7" in read_library(next(place.glob("*.so"))).needed
    asked = said.read_text("utf-8").split()
    assert {"--offload-arch=gfx942", "--offload-arch=gfx1201"} <= set(asked)
    metadata = Metadata.parse((place / "metadata.json").read_bytes())
    assert sorted(f"--offload-arch={arch}" for arch in metadata.archs) == sorted(asked)
    assert [tool["name"] for tool in metadata.built_with["compilers"]] == ["g++", "hipcc"]
    assert metadata.built_with["toolkit"] == "ROCm 7.1"
