"""How the files of an artifact depart from its manifest and from the source's listing: comparing, without reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kernel_hub.model.artifact import Artifact, Violation, ViolationKind
from kernel_hub.model.digest import Manifest, covers, is_bytecode
from kernel_hub.model.source import BlobId, GitBlob, LfsBlob
from kernel_hub.verify.artifact_tree import TreeFile
from kernel_hub.verify.identities import IdentifiedFile, blob_text

_NOTHING = "nothing"


def announced_by(artifact: Artifact, manifest: Manifest | None, files: Iterable[TreeFile]) -> Mapping[str, BlobId]:
    if artifact.announced is not None:
        # Bytecode is never fetched, whatever a repository holds.
        return {path: blob for path, blob in artifact.announced.items() if not is_bytecode(path)}
    if manifest is not None or artifact.blobs is None:
        return {}
    # Without any other word, the names inside the cache still say what the source announced when a file was fetched.
    named = {file.path: _blob_of_name(Path(file.location).name) for file in files if file.linked}
    return {path: blob for path, blob in named.items() if blob is not None}


def _blob_of_name(name: str) -> BlobId | None:
    try:
        length = len(bytes.fromhex(name))
    except ValueError:
        return None
    return GitBlob(name) if length == 20 else LfsBlob(name) if length == 32 else None


def violations_of(
    found: Mapping[str, IdentifiedFile],
    manifest: Manifest | None,
    announced: Mapping[str, BlobId],
    left_out: frozenset[str] = frozenset(),
) -> tuple[Violation, ...]:
    """Changed and missing files, in order of their paths; those that were left out may be missing."""
    digests = manifest.files if manifest else {}
    violations = []
    for path in {*digests, *announced}:
        item = found.get(path)
        digest, blob = digests.get(path), announced.get(path)
        if item is None:
            if path in left_out:
                continue
            expected = str(digest) if digest else blob_text(announced[path])
            violations.append(Violation(ViolationKind.MISSING, path, expected, _NOTHING))
        elif digest is not None and item.digest != digest:
            violations.append(Violation(ViolationKind.CHANGED, path, str(digest), str(item.digest)))
        elif blob is not None and item.blob is not None and item.blob != blob:
            violations.append(Violation(ViolationKind.CHANGED, path, blob_text(blob), blob_text(item.blob)))
    return _sorted(violations)


def extra_files(
    files: Mapping[str, TreeFile], manifest: Manifest | None, listed: Mapping[str, BlobId] | None
) -> tuple[Violation, ...]:
    """Files that the manifest, or the source's listing, does not know."""
    violations = []
    for path in files:
        unlisted = manifest is not None and path not in manifest.files and covers(path)
        unannounced = listed is not None and path not in listed and not is_bytecode(path)
        if unlisted or unannounced:
            violations.append(Violation(ViolationKind.EXTRA, path, _NOTHING, "a file"))
    return _sorted(violations)


def _sorted(violations: list[Violation]) -> tuple[Violation, ...]:
    return tuple(sorted(violations, key=lambda violation: violation.path.encode()))
