"""CUDA toolkits and CUTLASS from NVIDIA's Python packages: each release in a folder of its own, so that one machine builds
for many.

`toolkits.json` lists, for each of them, the packages that make it, and the digest of each one's wheel by processor. pip
installs exactly those, with nothing else, into a folder that appears complete or not at all. From CUDA 13.0 on the
packages hold a whole compiler; those of 12.x do not. For them clang stands in, from packages of other people, with what is
there of NVIDIA's: an experiment, and marked as one wherever it shows.

Leaves out: choosing among toolkits (see `kernel_hub.build.matrix`), and removing one, which is deleting its folder.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_hub.build.machine import Machine
from kernel_hub.build.turns import in_turn
from kernel_hub.errors import InvalidDocumentError, ToolchainError

# The releases that the ecosystem's builds of the newest torch are made for, of those that can be fetched.
USUAL_RELEASES = ("13.0", "13.2")
_LABEL_RELEASE = re.compile(r"-cu(\d+)(\d)-")
_NAME = re.compile(r"\d{1,3}\.\d|cutlass_\d+_\d+")
_MERGED = "toolkit"
_CUTLASS = Path("cutlass_library") / "source"
_SHOWN_LINES = 6

Install = Callable[[str, Path], None]
"""Installs what the text of a requirements file lists into a folder; raises ToolchainError if it can't."""
Pins = Mapping[str, Mapping[str, Mapping[str, str]]]
"""By name ("13.2" for CUDA, or "cutlass_3_8"), by requirement, by processor: the SHA-256 of the wheel in hexadecimal."""


def known_pins() -> Pins:
    """The packages of everything that can be fetched."""
    pins: dict[str, Any] = json.loads(Path(__file__).with_name("toolkits.json").read_text("utf-8"))
    return pins


def fetched_homes(folder: Path) -> tuple[Path, ...]:
    """The toolkits in the folder of all fetched ones."""
    return tuple(sorted(path.parent.parent for path in folder.glob("cuda-*/nvidia/cu*/bin/nvcc")))


def fetched_clang(folder: Path) -> tuple[tuple[str, Path, Path, Path], ...]:
    """The toolkits that clang compiles for: release, folder, the program whose `clang` command that is, clang's headers."""
    found = []
    for place in sorted(folder.glob("clang-cuda-*")):
        headers = sorted(place.glob("clangd/data/lib/clang/*"))
        program = place / "ziglang" / "zig"
        if headers and program.is_file() and (place / _MERGED / "lib" / "libcudart.so").exists():
            found.append((place.name.removeprefix("clang-cuda-"), place / _MERGED, program, headers[-1]))
    return tuple(found)


def fetched_cutlass(folder: Path) -> tuple[Path, ...]:
    """The copies of CUTLASS in the folder of all fetched toolkits."""
    return tuple(sorted(path for path in folder.glob("cutlass_*/cutlass_library/source") if path.is_dir()))


def wanted_toolkits(written: Sequence[str], labels: Iterable[str], machine: Machine) -> tuple[str, ...]:
    """Which toolkits to fetch.

    Args:
        written: What the user named; an empty text stands for what `labels` need, or else for the usual releases.
        labels: The builds that were asked for.
        machine: What is here already.

    Raises:
        InvalidDocumentError: If a text is no name of a toolkit.
    """
    here = {*(str(toolkit.version) for toolkit in machine.cuda), *(library.name for library in machine.headers)}
    named = {f"{found[1]}.{found[2]}" for label in labels if (found := _LABEL_RELEASE.search(label))}
    wanted: set[str] = set()
    for text in written:
        if not text:
            wanted |= named or set(USUAL_RELEASES)
        elif not _NAME.fullmatch(text):
            raise InvalidDocumentError(
                "--fetch-toolkit", f"{text!r} is not a release of CUDA",
                hint="write a release such as 13.2, or cutlass_3_8; folders of kernels come before --fetch-toolkit",
            )  # fmt: skip
        else:
            wanted.add(text)
    return tuple(sorted(wanted - here))


def fetch_toolkit(
    name: str,
    folder: Path,
    *,
    pins: Pins | None = None,
    install: Install | None = None,
    offline: bool = False,
) -> Path:
    """Install a toolkit, or find it installed.

    Args:
        name: Which one: a release of CUDA, or a copy of CUTLASS by its name in recipes.
        folder: The folder of all fetched toolkits.
        pins: What can be fetched; default: what this release of ours knows.
        install: Installs the packages; default: pip.
        offline: Whether nothing may be fetched.

    Returns:
        The toolkit's folder, as `CUDA_HOME` or `CUTLASS_HOME` would name it.

    Raises:
        ToolchainError: If the toolkit is not known, or can't be installed; then nothing of it stays.
    """
    known = known_pins() if pins is None else pins
    packages = known.get(name)
    called = name if name.startswith("cutlass_") else f"CUDA {name}"
    if packages is None:
        raise ToolchainError(
            f"{called} cannot be fetched: it is not among what NVIDIA's Python packages hold whole",
            hint=f"what can be: {', '.join(known)}; or install it yourself and name its folder in "
            f"{'CUTLASS_HOME' if called == name else 'CUDA_HOME'}",
        )
    place = folder / _folder_name(name)
    with in_turn(folder / "lock"):
        if not place.is_dir():
            if offline:
                raise ToolchainError(
                    f"{called} is not here, and this machine is offline by its settings",
                    hint="allow it to be fetched once: KERNEL_HUB_MODE=online",
                )
            _install_in(place, requirements(packages), install or pip_install)
    home = _home_in(place)
    if home is None:
        raise ToolchainError(f"{place} holds no toolkit", hint="delete the folder and fetch it again")
    return home


def requirements(packages: Mapping[str, Mapping[str, str]]) -> str:
    """The text of a requirements file that names packages with their digests."""
    return "".join(
        f"{name} {' '.join(f'--hash=sha256:{digest}' for digest in digests.values())}\n"
        for name, digests in packages.items()
    )


def pip_install(text: str, folder: Path) -> None:
    """Install what a requirements file lists, by its digests alone, with the pip of this environment.

    Raises:
        ToolchainError: With pip's own words.
    """
    listed = folder.parent / f"{folder.name}.txt"
    listed.write_text(text, encoding="ascii")
    options = ("--require-hashes", "--no-deps", "--only-binary=:all:", "--no-compile", "--disable-pip-version-check")
    argv = (sys.executable, "-m", "pip", "install", *options, "--target", str(folder), "--requirement", str(listed))
    try:
        ended = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise ToolchainError(f"pip cannot be started: {error}") from error
    finally:
        listed.unlink(missing_ok=True)
    if ended.returncode == 0:
        return
    said = ended.stderr.strip()
    if "No module named pip" in said:
        raise ToolchainError(
            "toolkits are fetched by pip, which is not installed", hint=f"{sys.executable} -m ensurepip"
        )
    words = "\n".join(f"  {line}" for line in said.splitlines()[-_SHOWN_LINES:])
    hint = (
        ""
        if "DO NOT MATCH THE HASHES" in said
        else "if the package index cannot be reached, name another: PIP_INDEX_URL"
    )
    raise ToolchainError(f"pip could not install the toolkit:\n{words}", hint=hint)


def _install_in(place: Path, text: str, install: Install) -> None:
    with tempfile.TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as scratch:
        stage = Path(scratch) / "toolkit"
        stage.mkdir()
        install(text, stage)
        if (stage / "ziglang").is_dir():
            _merge(stage)
        for home in (*stage.glob("nvidia/cu*"), stage / _MERGED):
            _link_runtime(home / "lib")
        if _home_in(stage) is None:
            raise ToolchainError("the packages hold no CUDA compiler and no CUTLASS")
        stage.rename(place)


def _home_in(folder: Path) -> Path | None:
    """Where a toolkit lies in a folder that packages were installed in; None if there is none that is whole."""
    compilers = [nvcc.parents[1] for nvcc in folder.glob("nvidia/cu*/bin/nvcc")]
    if (folder / _MERGED).is_dir():
        compilers = [folder / _MERGED]
    whole = [home for home in compilers if (home / "lib" / "libcudart.so").exists()]
    if (folder / _CUTLASS / "include" / "cutlass" / "version.h").is_file():
        whole.append(folder / _CUTLASS)
    return whole[0] if whole else None


def _folder_name(name: str) -> str:
    if name.startswith("cutlass_"):
        return name
    return f"clang-cuda-{name}" if name.startswith("12.") else f"cuda-{name}"


def _merge(stage: Path) -> None:
    """Make one folder of what clang looks for in a CUDA toolkit; 12.x lies in several packages, and lacks `fatbinary`."""
    root, packages = stage / _MERGED, stage / "nvidia"
    for name in ("cuda_nvcc", "cuda_runtime", "cuda_cccl"):
        for part in ("include", "lib", "nvvm"):
            if (packages / name / part).is_dir():
                shutil.copytree(packages / name / part, root / part, dirs_exist_ok=True)
    (root / "bin").mkdir(exist_ok=True)
    for program in (packages / "cuda_nvcc" / "bin" / "ptxas", *packages.glob("cu13/bin/fatbinary")):
        shutil.copy2(program, root / "bin")
    # Clang's own headers include it, and no package of a compiler carries it.
    (root / "include" / "curand_mtgp32_kernel.h").touch()


def _link_runtime(libraries: Path) -> None:
    """Make the link that linkers look for, which Python packages can't carry."""
    numbered = sorted(libraries.glob("libcudart.so.*"))
    if numbered and not (libraries / "libcudart.so").exists():
        (libraries / "libcudart.so").symlink_to(numbered[0].name)
