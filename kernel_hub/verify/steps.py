"""The steps of verification, in this order (architecture, "verify is written as numbered steps"):

1. a signature over the exact bytes of `metadata.json`, if the policy asks for one;
2. only then is the metadata parsed, from those bytes;
3. every path is a regular file or the cache's own link (see `kernel_hub.verify.artifact_tree`);
4. every file is digested, through a descriptor that was opened without following links;
5. the manifest and the source's listing cover the tree exactly: nothing changed, missing or extra;
6. metadata and files together have the locked digest, if the build is locked;
7. version, backend and architectures are those that were asked for and selected on.

Bytecode (`__pycache__`, `.pyc`) is outside every manifest; it is left alone here, and the importer never reads it.
Leaves out: whether the publisher may run code here (see `kernel_hub.trust`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from kernel_hub.errors import (
    DigestMismatchError,
    DigestMissingError,
    IdentityMismatchError,
    IncompleteArtifactError,
    InvalidDocumentError,
)
from kernel_hub.model.artifact import (
    Artifact,
    Expectation,
    VerifiedArtifact,
    VerifiedFile,
    Violation,
    ViolationKind,
)
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.digest import Digest, DigestAlgorithm, build_digest, covers, tree_digest
from kernel_hub.model.metadata import MAX_BYTES, Metadata
from kernel_hub.model.variant import ArchLabel, NoarchLabel, UnknownLabel, read_label
from kernel_hub.verify.artifact_tree import ArtifactTree, TreeFile
from kernel_hub.verify.differences import announced_by, extra_files, violations_of
from kernel_hub.verify.identities import IdentifiedFile, blob_of, blob_text, identify
from kernel_hub.verify.messages import describe, mismatch, way_out
from kernel_hub.verify.stamps import Stamps

if TYPE_CHECKING:
    from kernel_hub.signatures import SignatureDemand

METADATA = "metadata.json"


def verify(
    artifact: Artifact,
    expectation: Expectation,
    *,
    stamps: Stamps | None = None,
    signatures: SignatureDemand | None = None,
) -> VerifiedArtifact:
    """Check an artifact against its own manifest, the source's listing and what the caller expects.

    Args:
        artifact: A build on this disk.
        expectation: What must hold of it.
        stamps: Where the identities of unchanged files are kept; None to read every file.
        signatures: Whose signature the policy waits for; None if it needs none.

    Raises:
        IncompleteArtifactError: If the artifact has no metadata.
        SignatureMissingError, SignatureInvalidError: If the policy waits for a signature that is not there.
        TrustUnknownError: If a signature could not be checked.
        InvalidDocumentError: If the metadata is damaged or outside the format.
        UnsafePathError: If a path is neither a regular file nor the cache's own link.
        DigestMismatchError: If files are changed, missing or extra, or the tree is not the locked one.
        DigestMissingError: If the expectation asks for a digest and the metadata has none.
        IdentityMismatchError: If it is another build than the one asked for.
        OSError: If a file cannot be read.
    """
    tree = ArtifactTree(artifact.root, artifact.blobs, subject=describe(artifact))

    # 1.
    metadata_file, content = _read_metadata(artifact, tree)
    signed_by: tuple[str, ...] = ()
    if signatures:
        # Imported here because most loads need no signature.
        from kernel_hub.verify.signature import signers_of

        signed_by = signers_of(artifact, tree, content, signatures)

    # 2.
    metadata = _parse_metadata(artifact, metadata_file, content)
    manifest = metadata.manifest
    if manifest is None and (expectation.require_digest or signatures):
        # A signature covers the files only through the digest.
        raise DigestMissingError(
            f"{describe(artifact)}: {METADATA} carries no digest, and the policy requires one",
            hint="ask the publisher to rebuild the kernel with a builder that writes digests, or lift the requirement",
        )

    # 3.
    files = {file.path: file for file in tree.files()}

    # 4.
    announced = announced_by(artifact, manifest, files.values())
    covered = {path for path in files if covers(path)}
    wanted = [file for path, file in files.items() if path in covered or (path in announced and path != METADATA)]
    algorithm = manifest.algorithm if manifest else DigestAlgorithm.SHA256
    recalled = stamps.recall(artifact.root, wanted, algorithm, announced) if stamps else None
    found = identify(wanted, algorithm, announced) if recalled is None else recalled
    read = dict(found)
    if METADATA in announced:
        # Of the bytes that were parsed, because the file may have changed since.
        found[METADATA] = IdentifiedFile(metadata_file, Digest.of(content), blob_of(content, announced[METADATA]))

    # 5.
    listed = announced if artifact.announced is not None else None
    violations = violations_of(found, manifest, announced, artifact.left_out) + extra_files(files, manifest, listed)
    if violations:
        raise mismatch(artifact, violations, files)

    # 6.
    importable = {path: item for path, item in found.items() if path in covered}
    digests = {path: item.digest for path, item in importable.items()}
    if manifest is not None:
        # What was left out has its digest in the manifest, so a build has one digest on every machine.
        digests |= {path: manifest.files[path] for path in artifact.left_out if path not in digests}
    whole = tree_digest(digests.items())
    _require_locked(artifact, expectation, content, digests, has_manifest=manifest is not None)

    # 7.
    _require_identity(artifact, expectation, metadata)
    if stamps and recalled is None:
        stamps.remember(artifact.root, read)
    return VerifiedArtifact(
        artifact=artifact,
        metadata=metadata,
        tree_digest=whole,
        has_manifest=manifest is not None,
        files=MappingProxyType({path: _verified_file(item) for path, item in importable.items()}),
        signed_by=signed_by,
    )


def backend_of_label(label: str) -> BackendKind | None:
    """The backend that the metadata of a build of this name must state; None if the name does not say one."""
    match read_label(label):
        case UnknownLabel():
            return None
        case ArchLabel(backend=backend):
            return backend.kind
        case NoarchLabel(name=name):
            # The ecosystem's reader looks for the device's name where the writer puts the backend's.
            name = "cann" if name == "npu" else name
            return BackendKind(name) if name in set(BackendKind) else None


def _read_metadata(artifact: Artifact, tree: ArtifactTree) -> tuple[TreeFile, bytes]:
    file = tree.file(METADATA)
    if file is None:
        raise IncompleteArtifactError(
            f"{describe(artifact)} is incomplete: {METADATA} is missing in {artifact.root}",
            missing=(METADATA,),
            hint=way_out(artifact, ()),
        )
    return file, file.content(MAX_BYTES)


def _parse_metadata(artifact: Artifact, file: TreeFile, content: bytes) -> Metadata:
    try:
        return Metadata.parse(content, name=f"{METADATA} of {describe(artifact)}")
    except InvalidDocumentError as error:
        expected = None if artifact.announced is None else artifact.announced.get(METADATA)
        if expected is not None and (found := blob_of(content, expected)) != expected:
            # The publisher's document may be fine; this one is not what was published.
            changed = Violation(ViolationKind.CHANGED, METADATA, blob_text(expected), blob_text(found))
            raise mismatch(artifact, (changed,), {METADATA: file}) from error
        raise InvalidDocumentError(
            error.document, error.problem, location=error.location, hint=error.hint() or way_out(artifact, (file,))
        ) from error


def _require_locked(
    artifact: Artifact,
    expectation: Expectation,
    metadata: bytes,
    digests: Mapping[str, Digest],
    *,
    has_manifest: bool,
) -> None:
    if expectation.build_digest is None:
        return
    found = build_digest(metadata, digests.items())
    if found == expectation.build_digest:
        return
    # The files are those that the manifest lists, so it is the manifest that is another than the locked one.
    place = METADATA if has_manifest else "the whole build"
    violation = Violation(
        ViolationKind.CHANGED, place, f"build digest {expectation.build_digest}", f"build digest {found}"
    )
    raise DigestMismatchError(
        f"{describe(artifact)} is not what {expectation.locked_by or 'the lock'} holds:\n  {violation}",
        violations=(violation,),
        hint="nothing was imported; the source serves other bytes under the locked commit: tell its owner, and lock anew "
        f"(kernel-hub lock --upgrade) only if you know why; the build lies in {artifact.root}",
    )


def _require_identity(artifact: Artifact, expectation: Expectation, metadata: Metadata) -> None:
    backend = expectation.backend or backend_of_label(artifact.label)
    checks: tuple[tuple[str, object, object], ...] = (
        ("version", expectation.version, metadata.version),
        ("backend", backend, metadata.backend),
        ("architectures", artifact.archs or None, metadata.archs),
    )
    for subject, expected, found in checks:
        if expected is not None and expected != found:
            raise IdentityMismatchError(
                f"{describe(artifact)} is another build than its name says: {METADATA} states {subject} "
                f"{_text(found)}, and {_text(expected)} was expected",
                subject=subject,
                expected=_text(expected),
                found=_text(found),
                hint="nothing was imported; tell the publisher, or ask for another version of the kernel",
            )


def _text(value: object) -> str:
    return (", ".join(value) or "none") if isinstance(value, tuple) else str(value)


def _verified_file(item: IdentifiedFile) -> VerifiedFile:
    status = item.file.status
    return VerifiedFile(item.digest, status.st_size, status.st_mtime_ns, status.st_ino)
