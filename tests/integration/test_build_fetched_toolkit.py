"""Toolkits that pip installs: through the real pip from a folder of wheels; and, where asked for, NVIDIA's own.

The test with NVIDIA's packages, some 1 GB, runs if TEST_FETCH_TOOLKITS is 1.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from packaging.version import Version

from kernel_hub.build.audit.check import check
from kernel_hub.build.pipeline import build
from kernel_hub.build.toolchain import find_machine
from kernel_hub.build.toolkits import fetch_toolkit
from kernel_hub.errors import ToolchainError
from kernel_hub.settings import BuildSettings

KERNEL = Path(__file__).parents[1] / "vectors" / "recipes" / "cuda"
NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release 13.2, V13.2.86'\n"


def wheel(folder: Path) -> Path:
    """A wheel with a compiler that only says its release, laid out as NVIDIA's are."""
    info = "nvidia_cuda_nvcc-13.2.86.dist-info"
    files = {
        "nvidia/cu13/bin/nvcc": NVCC,
        "nvidia/cu13/lib/libcudart.so.13": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: nvidia-cuda-nvcc\nVersion: 13.2.86\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: py3-none-any\n",
    }
    record = [f"{info}/RECORD,,"]
    path = folder / "nvidia_cuda_nvcc-13.2.86-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = (0o100755 if name.endswith("nvcc") else 0o100644) << 16
            archive.writestr(member, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
            record.append(f"{name},sha256={digest},{len(text)}")
        archive.writestr(f"{info}/RECORD", "\n".join(record) + "\n")
    return path


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all that pip knows."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def pins(digest: str) -> dict[str, dict[str, dict[str, str]]]:
    return {"13.2": {"nvidia-cuda-nvcc==13.2.86": {"any": digest}}}


def test_pip_installs_what_its_digest_names_and_the_toolkit_is_found(wheels: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(wheel(wheels).read_bytes()).hexdigest()
    toolkits = tmp_path / "toolkits"
    home = fetch_toolkit("13.2", toolkits, pins=pins(digest))
    said = BuildSettings(compiler="", cuda_homes=(), toolkits=toolkits)
    found = {toolkit.version: toolkit for toolkit in find_machine(said).cuda}[Version("13.2")]
    assert (found.nvcc, found.libraries) == (home / "bin" / "nvcc", home / "lib")


def test_a_wheel_with_another_digest_is_not_installed(wheels: Path, tmp_path: Path) -> None:
    wheel(wheels)
    with pytest.raises(ToolchainError, match="DO NOT MATCH THE HASHES"):
        fetch_toolkit("13.2", tmp_path / "toolkits", pins=pins("0" * 64))
    assert not (tmp_path / "toolkits" / "cuda-13.2").exists()


def test_an_index_that_does_not_answer_is_told_in_pips_words(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="No matching distribution found for nvidia-cuda-nvcc") as caught:
        fetch_toolkit("13.2", tmp_path / "toolkits", pins=pins("0" * 64))
    assert "PIP_INDEX_URL" in caught.value.hint()


@pytest.mark.skipif(os.environ.get("TEST_FETCH_TOOLKITS") != "1", reason="fetches 1 GB: TEST_FETCH_TOOLKITS=1")
def test_nvidias_own_packages_build_one_kernel_for_four_releases(tmp_path: Path) -> None:
    toolkits = tmp_path / "toolkits"
    for release in ("12.6", "12.8", "13.0", "13.2"):
        fetch_toolkit(release, toolkits)
    machine = find_machine(BuildSettings(compiler="", cuda_homes=(), toolkits=toolkits))
    labels = [f"torch-stable-abi211-cu{number}-x86_64-linux" for number in (126, 128, 130, 132)]
    modules = []
    for name in ("one", "another folder"):
        shutil.copytree(KERNEL, tmp_path / name)
        report = build(tmp_path / name, variants=labels, machine=machine)
        assert [made.label for made in report.builds] == labels
        checked = check(tmp_path / name, machine=machine)
        assert [(made.findings, made.imported) for made in checked.builds] == [
            ((), "imported, functions bound lazily")
        ] * 4
        modules.append([next(made.folder.glob("*.so")).read_bytes() for made in report.builds])
    assert modules[0] == modules[1]
