"""Builds on disk for tests: any files, with true metadata unless a test asks for false one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_hub.model.artifact import LOCAL_PATH, Artifact, Expectation, FromFolder, FromSource, VerifiedArtifact
from kernel_hub.model.digest import DigestAlgorithm
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import BlobId, Pin
from kernel_hub.tree import manifest_of
from kernel_hub.verify import verify

COMMIT = "c0ffee" * 6 + "c0de"


def write_build(
    root: Path,
    files: Mapping[str, str | bytes],
    *,
    algorithm: DigestAlgorithm | None = DigestAlgorithm.SHA256,
    **metadata: Any,
) -> Path:
    """Write a build's files and the metadata that belongs to them; `algorithm=None` leaves the digest out."""
    for path, content in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    root.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "name": "axpy",
        "id": "_axpy_cpu_0123abc",
        "version": 1,
        "license": "Apache-2.0",
        "python-depends": [],
        "kernel-depends": [],
        "backend": {"type": "cpu"},
    } | metadata
    if algorithm is not None and "digest" not in metadata:
        manifest = manifest_of(root, algorithm)
        listed = {path: digest.base64 for path, digest in manifest.files.items()}
        document["digest"] = {"algorithm": algorithm.value, "files": listed}
    (root / "metadata.json").write_text(json.dumps(document, indent=2))
    return root


def from_folder(root: Path, *, label: str = "torch-cpu") -> Artifact:
    """The artifact of a folder that the caller named."""
    return Artifact(FromFolder(root, LOCAL_PATH), label, root)


def from_source(
    root: Path,
    *,
    label: str = "torch-cpu",
    announced: Mapping[str, BlobId] | None = None,
    blobs: Path | None = None,
    archs: tuple[str, ...] = (),
    repo: str = "acme/axpy",
    commit: str = COMMIT,
) -> Artifact:
    """The artifact of a fetched build."""
    pin = Pin(RepoId.parse(repo), commit, version=1, ref="v1")
    return Artifact(FromSource(pin, "https://hub.test"), label, root, announced=announced, archs=archs, blobs=blobs)


def verified_build(
    root: Path, files: Mapping[str, str | bytes], *, label: str = "torch-cpu", **metadata: Any
) -> VerifiedArtifact:
    """Write a build and verify it."""
    return verify(from_folder(write_build(root, files, **metadata), label=label), Expectation())
