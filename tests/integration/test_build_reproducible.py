"""Building twice and comparing the bytes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_hub.build.reproduce import compare_builds, explain
from kernel_hub.errors import CompileError

AXPY = Path(__file__).parents[1] / "vectors" / "recipes" / "axpy"


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return Path(shutil.copytree(AXPY, tmp_path / "axpy"))


def test_a_kernel_comes_out_the_same_wherever_it_is_built(kernel: Path) -> None:
    comparison = compare_builds(kernel)
    assert comparison.identical
    assert comparison.labels == ("torch-cuda", "torch-rocm", "torch-stable-abi211-cpu-x86_64-linux")
    assert sorted(path.name for path in kernel.iterdir()) == sorted(path.name for path in AXPY.iterdir())


def test_a_source_that_looks_at_its_surroundings_is_found_and_explained(kernel: Path) -> None:
    (kernel / "csrc" / "scale.cpp").write_text(
        '#if __has_include("../../../second time/kernel/build.toml")\n'
        "float scale() { return 2.0f; }\n"
        "#else\n"
        "float scale() { return 3.0f; }\n"
        "#endif\n"
    )
    comparison = compare_builds(kernel, backends=["cpu"])
    assert not comparison.identical
    said = [str(item) for item in comparison.differences]
    assert any("abi3.so: sections " in text and ".rodata" in text for text in said)
    assert any("metadata.json: line " in text for text in said)


def test_a_kernel_that_does_not_compile_is_not_compared(kernel: Path) -> None:
    (kernel / "csrc" / "scale.cpp").write_text("broken")
    with pytest.raises(CompileError):
        compare_builds(kernel, backends=["cpu"])


def two(folder: Path, one: bytes, other: bytes) -> str:
    (folder / "one").write_bytes(one)
    (folder / "other").write_bytes(other)
    return explain(folder / "one", folder / "other")


def test_texts_are_explained_by_their_first_differing_line(tmp_path: Path) -> None:
    assert two(tmp_path, b"a\nb\nc\n", b"a\nB\nC\n") == "line 2 is 'b' and 'B'"
    assert two(tmp_path, b"a\n", b"a\nb\n") == "one has 2 bytes, the other 4"


def test_native_modules_are_explained_by_section_and_text(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / f"{name}.c").write_text(f'const char text[] = "/home/{name}/kernel";\n')
        argv = ["gcc", "-shared", "-fPIC", f"{name}.c", "-o", name]
        subprocess.run(argv, cwd=tmp_path, check=True)
    said = explain(tmp_path / "one", tmp_path / "other")
    assert ".rodata" in said
    assert "/home/one/kernel" in said
