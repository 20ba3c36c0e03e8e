"""Kernels for tests: pure Python, deterministic, with metadata and digests as a builder writes them.

A build is a mapping from paths inside the build to bytes; `publish_fake_kernel` puts some into a sink, and
`write_fake_kernel` into a folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_hub.model.backend import BackendKind
from kernel_hub.model.digest import Digest, DigestAlgorithm, Manifest, covers
from kernel_hub.model.metadata import KernelDependency, Metadata, python_name
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, Sink
from kernel_hub.model.variant import ArchLabel, parse_label

DEFAULT_LABEL = "torch-cpu"

_INIT = '''"""A fake kernel."""

from ._math import axpy, origin

__all__ = ["axpy", "origin"]
'''
_MATH = '''"""What the fake kernel computes, without torch."""


def axpy(a, x, y):
    return [a * left + right for left, right in zip(x, y)]


def origin():
    return {origin!r}
'''


def fake_build(
    label: str = DEFAULT_LABEL,
    *,
    name: str = "axpy",
    version: int = 1,
    files: Mapping[str, bytes] | None = None,
    archs: Sequence[str] = (),
    python_depends: Sequence[str] = (),
    kernel_depends: Sequence[KernelDependency] = (),
    kernel_id: str | None = None,
    with_digest: bool = True,
) -> dict[str, bytes]:
    """The files of one build.

    Args:
        label: The build's label; its backend goes into the metadata (`universal` and labels nobody knows count as CPU).
        name: The kernel's name.
        version: The kernel's version.
        files: Files to add to, or to put in place of, `__init__.py` and `_math.py`.
        archs, python_depends, kernel_depends: As in metadata.
        kernel_id: The metadata's id; by default derived from everything else.
        with_digest: Whether the metadata lists the files' digests.
    """
    origin = f"{name} v{version} {label}"
    content = {"__init__.py": _INIT.encode(), "_math.py": _MATH.format(origin=origin).encode()} | dict(files or {})
    unique = hashlib.sha256(repr((origin, sorted(content.items()))).encode()).hexdigest()[:7]
    kind = _backend_kind(label)
    manifest = Manifest(
        DigestAlgorithm.SHA256, {path: Digest.of(data) for path, data in content.items() if covers(path)}
    )
    metadata = Metadata(
        name=name,
        id=kernel_id or f"_{python_name(name)}_{kind.value}_{unique}",
        version=version,
        license="Apache-2.0",
        backend=kind,
        archs=tuple(archs),
        python_depends=tuple(python_depends),
        kernel_depends=tuple(kernel_depends),
        manifest=manifest if with_digest else None,
    )
    return {"metadata.json": metadata.format()} | content


def publish_fake_kernel(
    sink: Sink,
    repo: RepoId | str = "acme/axpy",
    *,
    version: int = 1,
    builds: Mapping[str, Mapping[str, bytes]] | Sequence[str] = (DEFAULT_LABEL,),
    extra_files: Mapping[str, bytes] | None = None,
    branch: str | None = None,
) -> str:
    """Publish a version of a kernel; the commit id.

    Args:
        sink: Where to.
        repo: The repository; made if absent. Its name, in lower case, is the kernel's name.
        version: The kernel's version, and the number of its branch.
        builds: Labels, or labels with the files of each build (see `fake_build`); any text is allowed for a label.
        extra_files: Files of the repository outside `build/`, by path.
        branch: The branch if it is not `v<version>`.
    """
    repo = RepoId.parse(repo) if isinstance(repo, str) else repo
    if not isinstance(builds, Mapping):
        builds = {label: fake_build(label, name=repo.name.lower(), version=version) for label in builds}
    additions = [
        Addition(f"build/{label}/{path}", content) for label, files in builds.items() for path, content in files.items()
    ]
    additions += [Addition(path, content) for path, content in (extra_files or {}).items()]
    sink.create_repo(repo)
    target = branch or f"v{version}"
    parent = sink.create_branch(repo, target)
    return sink.commit(
        repo, target, parent=parent, additions=additions, deletions=(), message=f"Publish version {version}"
    )


def write_fake_kernel(
    folder: Path, builds: Mapping[str, Mapping[str, bytes]] | Sequence[str] = (DEFAULT_LABEL,)
) -> Path:
    """Write builds below `folder/build`, as a local build does; the folder."""
    if not isinstance(builds, Mapping):
        builds = {label: fake_build(label) for label in builds}
    for label, files in builds.items():
        for path, content in files.items():
            target = folder / "build" / label / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    return folder


def _backend_kind(label: str) -> BackendKind:
    try:
        parsed = parse_label(label)
        return parsed.backend.kind if isinstance(parsed, ArchLabel) else BackendKind(parsed.name)
    except ValueError:
        return BackendKind.CPU
