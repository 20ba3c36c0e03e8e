"""The kernels that are measured: deterministic, loadable by both clients, and of the shapes that cost differently.

`small` is one build of a few files; `variants` is the same beside 40 compiled builds for other machines, which no client
should care about; `python` is a kernel of 600 Python files, and `bundled` the same with the bundle that `publish` writes beside
such a build.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.bundle import bundle_path, make_bundle
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.fake_kernels import DEFAULT_LABEL, fake_build, publish_fake_kernel

NAMESPACE = "acme"
VERSION = 1
EXPECTED = {"axpy": [12.0, 24.0], "origin": "axpy v1 torch-cpu"}

_COMPILED_BYTES = 200_000
_PYTHON_FILES = 600


@dataclass(frozen=True, slots=True)
class Published:
    """A kernel on the Hub that is measured.

    Attributes:
        repo: Its name.
        commit: Where its version is.
        file_count: The files of the build that fits here.
    """

    repo: str
    commit: str
    file_count: int


def publish(registry_folder: Path) -> dict[str, Published]:
    """Publish every kernel into a new registry folder whose namespace is a trusted publisher; by short name."""
    registry = DirectoryRegistry.create(registry_folder, clock_s=lambda: 1_700_000_000)
    registry.set_publisher(NAMESPACE, True)
    more = {"_layout.py": b"BLOCK = 64\n", "_ops.py": b'"""Nothing native."""\n'}
    small = fake_build(files=more)
    compiled = {label: fake_build(label, files=_native(label)) for label in _compiled_labels()}
    python = fake_build(files={f"parts/part_{number:03}.py": _part(number) for number in range(_PYTHON_FILES - 3)})
    builds = {
        "small": {DEFAULT_LABEL: small},
        "variants": {DEFAULT_LABEL: small, **compiled},
        "python": {DEFAULT_LABEL: python},
        "bundled": {DEFAULT_LABEL: python},
    }
    beside = {"bundled": {bundle_path(DEFAULT_LABEL): _bundle(python)}}
    found = {}
    for name, content in builds.items():
        repo = f"{NAMESPACE}/{name}"
        extra_files = {"README.md": b"# A kernel\n", **beside.get(name, {})}
        commit = publish_fake_kernel(registry, repo, version=VERSION, builds=content, extra_files=extra_files)
        found[name] = Published(repo, commit, len(content[DEFAULT_LABEL]))
    return found


def _compiled_labels() -> list[str]:
    toolkits = ("cu126", "cu128", "cu130", "rocm64", "rocm70")
    return [
        f"torch{torch}-cxx11-{toolkit}-{cpu}-linux"
        for torch in ("210", "211", "212", "213")
        for toolkit in toolkits
        for cpu in ("x86_64", "aarch64")
    ]


def _native(label: str) -> dict[str, bytes]:
    # Nobody loads it; different bytes per build, so that no two share a blob.
    block = hashlib.sha256(label.encode()).digest()
    return {"_native.abi3.so": block * (_COMPILED_BYTES // len(block))}


def _bundle(files: Mapping[str, bytes]) -> bytes:
    bundle = make_bundle(files)
    if bundle is None:
        raise ValueError("these files are not worth a bundle")
    return bundle


def _part(number: int) -> bytes:
    return f'"""Part {number}."""\n\n\ndef part_{number}(value):\n    return value * {number}\n'.encode()
