"""Building real kernels: compiled, loaded by the ecosystem's own loader in a process of its own, and run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from kernels._rust import Build as PeerBuild
from kernels._rust import Digest as PeerDigest
from kernels._rust import DigestAlgorithm as PeerAlgorithm
from kernels._rust import Metadata as PeerMetadata

from kernel_hub.build.audit.elf import read_library
from kernel_hub.build.audit.finding import Rule
from kernel_hub.build.audit.floor import above_floor
from kernel_hub.build.pipeline import BuildReport, Progress, build
from kernel_hub.errors import BuildError, CheckFailedError, CompileError, InvalidDocumentError, ToolchainError
from kernel_hub.tree import manifest_of

AXPY = Path(__file__).parents[1] / "vectors" / "recipes" / "axpy"
NATIVE = "torch-stable-abi211-cpu-x86_64-linux"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="compiled builds are made on Linux")

LOAD = """
import sys, torch
from pathlib import Path
from kernels import get_local_kernel
kernel = get_local_kernel(Path(sys.argv[1]))
x = torch.arange(6, dtype=torch.float32)
print(kernel.axpy(3.0, x, torch.ones(6)).tolist())
try:
    kernel.axpy(3.0, x, torch.ones(5))
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""


def copy_of(kernel: Path, folder: Path) -> Path:
    shutil.copytree(kernel, folder)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    """The kernel built once, outside git, in a folder whose name needs care everywhere."""
    folder = tmp_path_factory.mktemp("project") / "a kernel = ü"
    return build(copy_of(AXPY, folder))


def test_every_recipe_of_the_folder_is_built(built: BuildReport) -> None:
    assert [item.label for item in built.builds] == ["torch-cuda", "torch-rocm", NATIVE]
    assert (built.name, built.version, built.omissions, built.dirty) == ("axpy", 1, (), None)
    assert sorted(path.name for path in built.output.iterdir()) == ["CARD.md", "torch-cuda", "torch-rocm", NATIVE]


def test_the_peer_loads_and_runs_the_native_build(built: BuildReport) -> None:
    ran = subprocess.run([sys.executable, "-c", LOAD, str(built.output)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "[1.0, 7.0, 13.0, 19.0, 25.0, 31.0]",
        "axpy, csrc/axpy.cpp:14, x has 6 elements, y has 5",
    ]


def test_a_native_build_carries_python_and_the_extensions_it_asks_for(built: BuildReport) -> None:
    folder = built.output / NATIVE
    module = built.builds[2].id
    assert sorted(files_of(folder)) == sorted(
        ["__init__.py", "_ops.py", f"{module}.abi3.so", "layers.py", "metadata.json", "table.json"]
    )


def test_a_noarch_build_carries_every_file(built: BuildReport) -> None:
    assert sorted(files_of(built.output / "torch-cuda")) == [
        "__init__.py", "_ops.py", "_types.pyi", "layers.py", "metadata.json", "notes.txt", "table.json",
    ]  # fmt: skip


def test_the_peer_reads_the_recipe_metadata_and_digest(built: BuildReport) -> None:
    PeerBuild.open(AXPY)
    for item in built.builds:
        metadata = PeerMetadata.read_from_file(item.folder / "metadata.json")
        assert (str(metadata.name), metadata.id, metadata.version) == ("axpy", item.id, 1)
        assert metadata.digest is not None
        metadata.digest.validate(PeerDigest.hash_variant(PeerAlgorithm.SHA256, item.folder))


def test_metadata_states_dependencies_and_archs(built: BuildReport) -> None:
    native = json.loads((built.output / NATIVE / "metadata.json").read_bytes())
    cuda = json.loads((built.output / "torch-cuda" / "metadata.json").read_bytes())
    rocm = json.loads((built.output / "torch-rocm" / "metadata.json").read_bytes())
    assert (native["backend"], native["python-depends"]) == ({"type": "cpu"}, [])
    assert (cuda["backend"], cuda["python-depends"]) == ({"type": "cuda", "archs": ["9.0", "8.0"]}, ["einops"])
    assert rocm["backend"] == {"type": "rocm"}
    assert native["source"] == "https://example.org/acme/axpy.git"


def test_the_native_module_needs_no_newer_system_and_no_run_path(built: BuildReport) -> None:
    library = read_library(built.output / NATIVE / f"{built.builds[2].id}.abi3.so")
    assert above_floor(library.undefined) == ()
    assert library.run_paths == ()
    assert not library.executable_stack
    assert not any(symbol.unique for symbol in library.defined)
    assert set(library.needed) <= {
        "libtorch.so", "libtorch_cpu.so", "libstdc++.so.6", "libm.so.6", "libc.so.6", "libgcc_s.so.1",
    }  # fmt: skip
    # Weak ones are type names of the C++ library, which its headers never hide.
    offered = {symbol.name for symbol in library.defined if not symbol.weak}
    assert offered - {"_end", "_edata", "__bss_start"} == {f"PyInit_{built.builds[2].id}"}


def test_the_output_names_no_folder_of_the_build_machine(built: BuildReport) -> None:
    for name, content in files_of(built.output).items():
        assert str(built.output.parent).encode() not in content, name
        assert sys.prefix.encode() not in content, name


def test_two_builds_in_different_folders_are_byte_identical(built: BuildReport, tmp_path: Path) -> None:
    again = build(copy_of(AXPY, tmp_path / "elsewhere"), output=tmp_path / "out")
    assert files_of(again.output) == files_of(built.output)


def test_one_backend_or_label_can_be_asked_for(tmp_path: Path) -> None:
    folder = copy_of(AXPY, tmp_path / "k")
    assert [item.label for item in build(folder, backends=["rocm"]).builds] == ["torch-rocm"]
    assert [item.label for item in build(folder, variants=["torch-cuda"]).builds] == ["torch-cuda"]
    with pytest.raises(ToolchainError, match="has no build for backend 'xpu' here"):
        build(folder, backends=["xpu"])
    with pytest.raises(ToolchainError, match="has no build 'torch-tpu' here") as caught:
        build(folder, variants=["torch-tpu"])
    assert caught.value.hint() == f"builds here: torch-cuda, torch-rocm, {NATIVE}"


def test_a_compiler_error_is_shown_in_its_own_words_and_leaves_the_old_build(tmp_path: Path) -> None:
    folder = copy_of(AXPY, tmp_path / "k")
    build(folder, backends=["cuda"])
    before = files_of(folder / "build")
    (folder / "csrc" / "scale.cpp").write_text("float scale() {\n  return undeclared_name;\n}\n")
    with pytest.raises(CompileError) as caught:
        build(folder, backends=["cpu"])
    error = caught.value
    assert "scale: csrc/scale.cpp failed" in error.message
    assert "csrc/scale.cpp:2:10: error:" in error.message
    assert "undeclared_name" in error.message
    assert "csrc/scale.cpp" in error.command
    assert "undeclared_name" in error.log_path.read_text()
    assert files_of(folder / "build") == before


def test_a_symbol_above_the_floor_fails_the_build_by_name(tmp_path: Path) -> None:
    folder = copy_of(AXPY, tmp_path / "k")
    # Of libstdc++ 3.4.30, and not in the archive of what is linked in.
    (folder / "csrc" / "scale.cpp").write_text(
        "#include <filesystem>\n"
        'float scale() { return std::filesystem::recursive_directory_iterator(".")->is_directory() ? 1.0f : 2.0f; }\n'
    )
    with pytest.raises(
        CheckFailedError, match=r"recursive_directory_iterator.*@GLIBCXX_3\.4\.26 is newer than"
    ) as caught:
        build(folder, backends=["cpu"])
    assert {finding.rule for finding in caught.value.findings} == {Rule.SYMBOL_VERSION}
    assert not (folder / "build" / NATIVE).exists()


def test_each_step_is_told(tmp_path: Path) -> None:
    told: list[Progress] = []
    build(copy_of(AXPY, tmp_path / "k"), backends=["cpu"], on_progress=told.append)
    assert sorted(item.step for item in told) == [
        "assemble", "axpy: csrc/axpy.cpp", "binding: torch-ext/torch_binding.cpp", "link", "scale: csrc/scale.cpp",
    ]  # fmt: skip
    assert [(item.done, item.total) for item in told][:4] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_commit_of_the_sources_is_recorded_and_its_tree_names_the_build(tmp_path: Path) -> None:
    folder = copy_of(AXPY, tmp_path / "repo" / "axpy")

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        return subprocess.run(
            ["git", *identity, "-C", str(tmp_path / "repo"), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    clean = build(folder, backends=["cuda"])
    assert clean.dirty is False
    assert clean.builds[0].id == f"_axpy_cuda_{git('rev-parse', 'HEAD:axpy')[:7]}"
    provenance = PeerMetadata.read_from_file(clean.builds[0].folder / "metadata.json").provenance
    assert provenance is not None
    assert provenance.kernel is not None
    assert (provenance.kernel.commit, provenance.kernel.dirty) == (git("rev-parse", "HEAD"), False)
    # The output and the working folder are in nobody's way: the next build is of the same commit.
    assert build(folder, backends=["cuda"]).dirty is False
    (folder / "torch-ext" / "axpy" / "extra.py").write_text("")
    changed = build(folder, backends=["cuda"])
    assert changed.dirty is True
    assert changed.builds[0].id == f"{clean.builds[0].id}_dirty"


@pytest.mark.parametrize(
    ("hurt", "problem"),
    [
        (lambda root: (root / "csrc" / "scale.cpp").unlink(), r"scale\.cpp does not exist"),
        (lambda root: (root / "torch-ext" / "axpy" / "__init__.py").unlink(), r"__init__\.py does not exist"),
        (lambda root: (root / "torch-ext" / "axpy" / "axpy.py").write_text(""), "called like the package"),
        (lambda root: [path.unlink() for path in root.glob("build*.toml")], r"has no build\.toml"),
        (lambda root: (root / "build.noarch.toml").write_text((root / "build.toml").read_text().replace("version = 1", "version = 2")), "is 2, but 1"),  # noqa: E501
        (lambda root: link(root / "csrc" / "scale.cpp", root.parent / "scale.cpp"), "leads out of the kernel's folder"),
        (lambda root: link(root / "torch-ext" / "axpy" / "layers.py", root.parent / "l.py"), "leads out of the kernel's"),
        (lambda root: link(root / "build.toml", root.parent / "b.toml"), "leads out of the kernel's folder"),
        (lambda root: (root / "torch-ext" / "axpy" / "more").symlink_to(root / "csrc"), "is a link to a folder"),
        (lambda root: (root / "build.toml").write_text("#" * 10_000_000), "is longer than 1048576 bytes"),
    ],
    ids=["source missing", "package missing", "twin of the package", "no recipe", "two versions", "source links out", "python links out", "recipe links out", "folder linked", "huge recipe"],  # noqa: E501
)  # fmt: skip
def test_a_hostile_or_broken_project_is_refused(hurt, problem: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = copy_of(AXPY, tmp_path / "k")
    hurt(folder)
    with pytest.raises(InvalidDocumentError, match=problem):
        build(folder, backends=["cuda"])
    assert not (folder / "build").exists()


def link(path: Path, target: Path) -> None:
    """Replace a file by a link to a copy of it elsewhere."""
    target.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(target)


def test_two_recipes_for_one_label_are_refused(tmp_path: Path) -> None:
    folder = copy_of(AXPY, tmp_path / "k")
    shutil.copy(folder / "build.noarch.toml", folder / "build.more.toml")
    with pytest.raises(BuildError, match=r"build\.more\.toml and build\.noarch\.toml both make the build torch-cuda"):
        build(folder)


def test_a_failed_assembly_leaves_the_build_that_was_there(tmp_path: Path) -> None:
    folder = copy_of(AXPY, tmp_path / "k")
    build(folder, backends=["cuda"])
    before = manifest_of(folder / "build" / "torch-cuda")
    (folder / "torch-ext" / "axpy" / "more").symlink_to(folder / "csrc")
    with pytest.raises(InvalidDocumentError):
        build(folder, backends=["cuda"])
    assert manifest_of(folder / "build" / "torch-cuda") == before


CLASSIC = Path(__file__).parents[1] / "vectors" / "recipes" / "classic"
LOAD_CLASSIC = """
import sys, torch
from pathlib import Path
from kernels import get_local_kernel
kernel = get_local_kernel(Path(sys.argv[1]))
print(kernel.scaled_add(2.0, torch.ones(3), torch.ones(3)).tolist())
try:
    kernel.scaled_add(2.0, torch.ones(3), torch.ones(2))
except RuntimeError as error:
    print(str(error).splitlines()[0])
"""


def test_a_kernel_on_the_classic_interface_is_built_for_the_torch_here_and_runs(tmp_path: Path) -> None:
    report = build(copy_of(CLASSIC, tmp_path / "k"))
    torch = version("torch").split(".")
    assert [item.label for item in report.builds] == [f"torch{torch[0]}{torch[1]}-cxx11-cpu-x86_64-linux"]
    ran = subprocess.run(
        [sys.executable, "-c", LOAD_CLASSIC, str(report.output)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["[3.0, 3.0, 3.0]", "shapes [3] and [2] differ"]
