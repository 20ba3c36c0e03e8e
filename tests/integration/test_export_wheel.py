"""Wheels of builds: installed by pip into a fresh environment, imported beside torch, and run."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from kernel_hub.build.pipeline import build
from kernel_hub.build.wheel import ExportedWheel, export_wheel
from kernel_hub.errors import BuildError, CheckFailedError
from tests.integration.test_build_check import seal

AXPY = Path(__file__).parents[1] / "vectors" / "recipes" / "axpy"
NATIVE = "torch-stable-abi211-cpu-x86_64-linux"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="compiled builds are made on Linux")
PROGRAM = """
import axpy, torch, sys
print(axpy.axpy(3.0, torch.arange(3.0), torch.ones(3)).tolist())
print(axpy.layers.Axpy()(1.0, torch.ones(1), torch.ones(1)).item())
print([name for name in sys.modules if name.startswith("axpy._axpy_cpu_")][0].partition(".")[2])
print(axpy.__file__)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(AXPY, folder / "axpy")
    (folder / "axpy" / "LICENSE").write_text("Do as you please.\n")
    return build(folder / "axpy", output=folder / "out", variants=["torch-cuda", NATIVE]).output


@pytest.fixture(scope="module")
def native(made: Path) -> ExportedWheel:
    return export_wheel(made / NATIVE, made.parent / "dist", licenses=[made.parent / "axpy" / "LICENSE"])


def test_pip_installs_it_and_it_computes_beside_torch(native: ExportedWheel, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    subprocess.run(
        [*pip, "install", "-q", "--no-deps", "--no-index", str(native.path)],
        check=True, capture_output=True, env=environment,
    )  # fmt: skip
    # Torch is where these tests run, and is not installed once more for one import.
    site = next(path for path in sys.path if (Path(path) / "torch" / "__init__.py").is_file())
    ran = subprocess.run(
        [str(python), "-W", "ignore", "-c", PROGRAM],
        env=environment | {"PYTHONPATH": site}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    result, layer, module, place = ran.stdout.splitlines()
    assert (result, layer) == ("[1.0, 7.0, 13.0]", "3.0")
    assert module.startswith("_axpy_cpu_")
    assert place.startswith(str(tmp_path / "venv"))


def test_its_record_lists_every_file_with_its_digest(native: ExportedWheel) -> None:
    with zipfile.ZipFile(native.path) as archive:
        names = archive.namelist()
        (record,) = [name for name in names if name.endswith("/RECORD")]
        rows = list(csv.reader(io.StringIO(archive.read(record).decode())))
        assert [row[0] for row in rows] == names
        assert rows[-1] == [record, "", ""]
        for name, digest, size in rows[:-1]:
            content = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(content)), name
    assert f"{native.name.dist_info}/licenses/LICENSE" in names
    assert native.requires == ("torch>=2.11",)


def test_the_build_is_in_it_byte_for_byte(native: ExportedWheel, made: Path) -> None:
    files = {path.relative_to(made / NATIVE).as_posix(): path for path in (made / NATIVE).rglob("*") if path.is_file()}
    with zipfile.ZipFile(native.path) as archive:
        inside = {name.removeprefix("axpy/"): name for name in archive.namelist() if name.startswith("axpy/")}
        assert set(inside) == set(files)
        assert all(archive.read(name) == files[path].read_bytes() for path, name in inside.items())


def test_two_exports_are_the_same_bytes(native: ExportedWheel, made: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(made / NATIVE, tmp_path / NATIVE, copy_function=shutil.copyfile)
    again = export_wheel(elsewhere, tmp_path / "dist", licenses=[made.parent / "axpy" / "LICENSE"])
    assert again.path.read_bytes() == native.path.read_bytes()


def test_a_build_without_compiled_code_is_for_every_machine(made: Path, tmp_path: Path) -> None:
    wheel = export_wheel(made / "torch-cuda", tmp_path, distribution="acme-axpy")
    assert wheel.path.name == "acme_axpy-1+torch.cuda-py3-none-any.whl"
    assert wheel.requires == ("einops", "torch")


def test_a_module_for_newer_systems_has_the_tag_of_those(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made / NATIVE, tmp_path / NATIVE))
    source = "extern int pthread_create(void *, void *, void *, void *);\nint f(void) { return pthread_create(0, 0, 0, 0); }\n"
    argv = ["gcc", "-shared", "-fPIC", "-xc", "-", "-o", str(folder / "newer.so")]
    subprocess.run(argv, input=source.encode(), check=True, capture_output=True)
    seal(folder)
    assert export_wheel(folder, tmp_path / "dist").name.tag == "cp39-abi3-manylinux_2_34_x86_64"


def test_a_changed_build_is_refused_and_leaves_nothing(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made / NATIVE, tmp_path / NATIVE))
    (folder / "layers.py").write_text("")
    with pytest.raises(CheckFailedError, match="was changed after the digest was made"):
        export_wheel(folder, tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


def test_a_folder_that_cannot_be_made_is_an_error_of_the_builder(made: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BuildError, match="can't be made"):
        export_wheel(made / "torch-cuda", tmp_path / "file" / "dist")
