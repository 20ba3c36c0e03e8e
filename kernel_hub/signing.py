"""Verifying and signing the builds of a folder: whoever signs verifies first, so that nobody signs what they would not load.

Leaves out: making the attestation (see `kernel_hub.signatures`) and publishing it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernel_hub.errors import DigestMissingError, InvalidDocumentError, KernelHubError
from kernel_hub.local import find_builds
from kernel_hub.model.artifact import LOCAL_PATH, Artifact, Expectation, FromFolder
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.repo_path import attestation_path
from kernel_hub.model.variant import UnknownLabel, read_label
from kernel_hub.signatures import PrivateKey, SignatureDemand, sign_build
from kernel_hub.verify import METADATA, verify


@dataclass(frozen=True, slots=True)
class BuildCheck:
    """What verification found of one build.

    Attributes:
        label: Its name.
        has_digest: Whether its metadata carries a digest.
        signed_by: Whose signatures were demanded and found.
        error: Why it is refused; None if it is not.
    """

    label: str
    has_digest: bool = False
    signed_by: tuple[str, ...] = ()
    error: KernelHubError | None = None


def verify_folder(
    folder: Path, *, signatures: SignatureDemand | None = None, require_digest: bool = False
) -> tuple[BuildCheck, ...]:
    """Verify every build of a folder, without importing any.

    Args:
        folder: A project (builds below `build/`), a folder of builds, or one build.
        signatures: Whose signature is demanded; None for nobody's.
        require_digest: Whether a build without digest is refused.

    Raises:
        InvalidDocumentError: If the folder holds no build.
    """
    checks = []
    for root in _roots(folder.absolute(), "the folder to verify"):
        artifact = Artifact(FromFolder(root, LOCAL_PATH), root.name, root)
        try:
            verified = verify(artifact, Expectation(require_digest=require_digest), signatures=signatures)
        except KernelHubError as error:
            checks.append(BuildCheck(root.name, error=error))
        else:
            checks.append(BuildCheck(root.name, verified.has_manifest, verified.signed_by))
    return tuple(checks)


def sign_folder(folder: Path, key: PrivateKey, *, repository: str | None = None) -> tuple[Path, ...]:
    """Sign every build of a project folder, or one build.

    Args:
        folder: A project (builds below `build/`), or one build below a folder called `build`.
        key: The signer's.
        repository: The repository they are for; None if they may be published anywhere.

    Returns:
        The attestations that were written, in order of the builds' names.

    Raises:
        VerificationError: If a build is not what its metadata says, or its metadata carries no digest.
        InvalidDocumentError: If the folder holds no build, or its builds do not lie below a folder called `build`.
    """
    contents = {root: _content_to_sign(root) for root in _roots(folder.absolute(), "the folder to sign")}
    written = []
    for root, content in contents.items():
        path = root.parent.parent / attestation_path(root.name)
        earlier = path.read_bytes() if path.is_file() else None
        attestation = sign_build(content, root.name, key, repository=repository, earlier=earlier)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(attestation)
        written.append(path)
    return tuple(written)


def _roots(folder: Path, named_by: str) -> list[Path]:
    builds = find_builds(folder, named_by=named_by)
    if builds.single:
        return list(builds.folders.values())
    return [root for name, root in sorted(builds.folders.items()) if not isinstance(read_label(name), UnknownLabel)]


def _content_to_sign(root: Path) -> bytes:
    if root.parent.name != "build":
        raise InvalidDocumentError(
            "the folder to sign", f"{root} does not lie below a folder called 'build'", hint="name the project's folder"
        )
    content = (root / METADATA).read_bytes()
    verified = verify(Artifact(FromFolder(root, LOCAL_PATH), root.name, root), Expectation())
    if not verified.has_manifest or Metadata.parse(content) != verified.metadata:
        raise DigestMissingError(
            f"build {root.name} in {root}: {METADATA} carries no digest, so a signature of it would not cover the files",
            hint="build it again; builds carry a digest",
        )
    return content
