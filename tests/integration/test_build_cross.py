"""Building for another processor, with a compiler that runs here. Nothing that is built here can be run here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernel_hub.build.audit.check import check
from kernel_hub.build.audit.elf import read_library
from kernel_hub.build.pipeline import build
from kernel_hub.build.toolchain import find_machine

AXPY = Path(__file__).parents[1] / "vectors" / "recipes" / "axpy"
LABEL = "torch-stable-abi211-cpu-aarch64-linux"
pytestmark = pytest.mark.skipif(
    "aarch64" not in find_machine().cross, reason="there is no aarch64-linux-gnu-g++ on this machine"
)


def test_a_build_for_another_processor_passes_every_check_but_the_import(tmp_path: Path) -> None:
    shutil.copytree(AXPY, tmp_path / "axpy")
    report = build(tmp_path / "axpy", variants=[LABEL])
    module = next(report.builds[0].folder.glob("*.so"))
    library = read_library(module)
    assert library.machine == "EM_AARCH64"
    assert {"libtorch.so", "libtorch_cpu.so"} <= set(library.needed)
    checked = check(tmp_path / "axpy").builds[0]
    assert checked.findings == ()
    assert checked.imported == "not tried: this machine is x86_64 linux"
