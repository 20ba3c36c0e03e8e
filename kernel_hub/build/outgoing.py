"""Builds on disk on their way out: found, read, verified against their own digest, and identified as the target will.

Leaves out: sending them (see `kernel_hub.build.publish`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.build.audit.check import build_folders
from kernel_hub.build.card import MAX_BYTES
from kernel_hub.bundle import FOLDER as BUNDLE_FOLDER
from kernel_hub.bundle import bundle_path, make_bundle
from kernel_hub.errors import InvalidDocumentError, PublishRefusedError, UnsafePathError
from kernel_hub.model.commit import StoredBlob
from kernel_hub.model.digest import Manifest, covers
from kernel_hub.model.metadata import MAX_BYTES as MAX_METADATA_BYTES
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.repo_path import ATTESTATION_FOLDER, attestation_path, check_file_path
from kernel_hub.model.source import FileEntry, GitBlob, LfsBlob
from kernel_hub.model.variant import NoarchLabel, parse_label
from kernel_hub.signatures.attestation import Envelope, Statement, attestation_beside
from kernel_hub.tree import manifest_of, paths_of

FOLDERS = ("build/", f"{ATTESTATION_FOLDER}/", f"{BUNDLE_FOLDER}/")
"""Where everything of every build of a branch lies."""

_SIGNATURE = "metadata.json.sigstore"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file to publish.

    Attributes:
        path: In the repository.
        source: Where it lies on this disk, or its bytes if it was made for publishing.
        size_bytes: Its length.
        git_id: Its identity as a git blob.
        lfs_id: Its identity in large-file storage.
    """

    path: str
    source: bytes | Path
    size_bytes: int
    git_id: str
    lfs_id: str

    @classmethod
    def of(cls, path: str, source: Path) -> OutgoingFile:
        """The file at `source`, read once, in pieces."""
        size_bytes = source.stat().st_size
        git, lfs = hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False), hashlib.sha256()
        with source.open("rb") as file:
            while piece := file.read(1 << 20):
                git.update(piece)
                lfs.update(piece)
        return cls(check_file_path(path, document="publish"), source, size_bytes, git.hexdigest(), lfs.hexdigest())

    @classmethod
    def of_bytes(cls, path: str, content: bytes) -> OutgoingFile:
        """A file that lies nowhere yet."""
        blob = StoredBlob.of(content)
        return cls(check_file_path(path, document="publish"), content, blob.size_bytes, blob.git_id, blob.digest)

    def is_listed_as(self, entry: FileEntry) -> bool:
        """Whether a listing's row is of these bytes; only the target decides which identity it shows."""
        match entry.blob:
            case GitBlob(id=found):
                return found == self.git_id
            case LfsBlob(id=found):
                return found == self.lfs_id and entry.size_bytes == self.size_bytes


@dataclass(frozen=True, slots=True)
class OutgoingBuild:
    """A verified build.

    Attributes:
        label: Its folder's name.
        folder: Where it lies.
        metadata: What it says of itself.
        files: Everything to publish of it, by path; its attestation and bundle too, which lie beside `build/`.
    """

    label: str
    folder: Path
    metadata: Metadata
    files: tuple[OutgoingFile, ...]

    @property
    def places(self) -> tuple[str, ...]:
        """Paths, or their beginnings, that belong to this build alone."""
        return f"build/{self.label}/", attestation_path(self.label), bundle_path(self.label)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What a folder offers to publish.

    Attributes:
        builds: In order of their labels; all of one kernel and version.
        card: The template of the card; None if there is none.
        benchmarks: Benchmark files.
        api: The record of what the version offers; None if it is not known.
    """

    builds: tuple[OutgoingBuild, ...]
    card: str | None
    benchmarks: tuple[OutgoingFile, ...]
    api: OutgoingFile | None = None

    @property
    def metadata(self) -> Metadata:
        """The metadata of a build, for what all agree on."""
        return self.builds[0].metadata


def collect(folder: Path, *, attested: bool = True) -> Outgoing:
    """Find and verify the builds of a folder.

    They are looked for in `build/` of the folder, then in the folder itself; last, the folder is taken for one build.

    Args:
        folder: Where to look.
        attested: Whether their attestations belong to them, which must then be about them as they are.

    Raises:
        PublishRefusedError: If there is none, one is not what its digest says, or they are of different kernels.
        InvalidDocumentError: If metadata or a label is malformed, or a path can't be published.
        UnsafePathError: If a build holds something that is no regular file.
    """
    found = build_folders(folder)
    return _outgoing(found[0].parent, found, attested=attested)


def _outgoing(place: Path, folders: Sequence[Path], *, attested: bool) -> Outgoing:
    builds = tuple(_build(path, attested=attested) for path in folders)
    first = builds[0]
    for build in builds[1:]:
        for key in ("name", "version", "license"):
            ours, theirs = getattr(first.metadata, key), getattr(build.metadata, key)
            if ours != theirs:
                raise PublishRefusedError(
                    f"{build.label} has {key} {theirs!r}, {first.label} has {ours!r}",
                    hint="publish builds of one kernel and version together; remove what is left of others",
                )
    beside = (place, place.parent)
    benchmarks = place.parent / "benchmarks"
    return Outgoing(
        builds,
        next((_template(path / "CARD.md") for path in beside if (path / "CARD.md").is_file()), None),
        tuple(
            OutgoingFile.of(f"benchmarks/{path.name}", path)
            for path in sorted(benchmarks.glob("benchmark*.py"))
            if path.is_file() and not path.is_symlink()
        ),
    )


def _build(folder: Path, *, attested: bool) -> OutgoingBuild:
    name = f"build/{folder.name}/metadata.json"
    with (folder / "metadata.json").open("rb") as file:
        metadata = Metadata.parse(file.read(MAX_METADATA_BYTES + 1), name=name)
    label = parse_label(folder.name)
    stated = label.name if isinstance(label, NoarchLabel) else label.backend.kind.value
    if stated != metadata.backend.value:
        raise PublishRefusedError(f"{folder.name} is a build for {stated}, its metadata says {metadata.backend.value}")
    paths = sorted(paths_of(folder))
    for path in paths:
        if (folder / path).is_symlink():
            raise UnsafePathError(f"build/{folder.name}: {path} is a link; builds are published as plain files")
    if "__init__.py" not in paths:
        raise PublishRefusedError(f"{folder.name} has no __init__.py, so no loader could import it")
    _require_digest(folder, metadata.manifest)
    # Bytecode is what the digest leaves out, and what no build carries; a signature is over the metadata.
    carried = [path for path in paths if covers(path) or path in ("metadata.json", _SIGNATURE)]
    files = tuple(OutgoingFile.of(f"build/{folder.name}/{path}", folder / path) for path in carried)
    bundle = make_bundle({path: folder / path for path in carried})
    bundled = () if bundle is None else (OutgoingFile.of_bytes(bundle_path(folder.name), bundle),)
    return OutgoingBuild(folder.name, folder, metadata, (*files, *(_attestation(folder) if attested else ()), *bundled))


def _attestation(folder: Path) -> tuple[OutgoingFile, ...]:
    path = attestation_beside(folder, folder.name)
    if path is None:
        return ()
    name = attestation_path(folder.name)
    if path.is_symlink():
        raise UnsafePathError(f"{name} is a link; attestations are published as plain files")
    statement = Statement.parse(Envelope.parse(path.read_bytes(), name=name).payload, name=name)
    if statement != Statement.of(folder.name, (folder / "metadata.json").read_bytes(), statement.repository):
        raise PublishRefusedError(
            f"{name} is about another build than the one in {folder}, so every loader that demands it would refuse it",
            hint="sign the build again (kernel-hub sign), or remove the attestation",
        )
    return (OutgoingFile.of(name, path),)


def _require_digest(folder: Path, stated: Manifest | None) -> None:
    if stated is None:
        raise PublishRefusedError(
            f"{folder.name} has no digest, so nobody could tell whether its files are the ones that were built",
            hint="build it again with kernel-hub build",
        )
    found = manifest_of(folder, stated.algorithm)
    differing = sorted(
        path for path in {*stated.files, *found.files} if stated.files.get(path) != found.files.get(path)
    )
    if differing:
        more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
        raise PublishRefusedError(
            f"{folder.name} is not what its digest says: {', '.join(differing[:_SHOWN])}{more}",
            hint="build it again: files were changed, added or removed after the build",
        )


def _template(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InvalidDocumentError("CARD.md", f"is longer than {MAX_BYTES} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidDocumentError("CARD.md", f"is not UTF-8 (byte {error.start})") from error
