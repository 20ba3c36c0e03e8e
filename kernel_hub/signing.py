"""Signing the builds of a folder: each is verified first, so that nobody signs what they would not load.

Leaves out: making the attestation (see `kernel_hub.signatures`) and publishing it.
"""

from __future__ import annotations

from pathlib import Path

from kernel_hub.errors import DigestMissingError, InvalidDocumentError
from kernel_hub.local import find_builds
from kernel_hub.model.artifact import LOCAL_PATH, Artifact, Expectation, FromFolder
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.repo_path import attestation_path
from kernel_hub.model.variant import UnknownLabel, read_label
from kernel_hub.signatures import PrivateKey, sign_build
from kernel_hub.verify import METADATA, verify


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
    folder = folder.absolute()
    builds = find_builds(folder, named_by="the folder to sign")
    roots = [root for name, root in sorted(builds.folders.items()) if not isinstance(read_label(name), UnknownLabel)]
    contents = {root: _content_to_sign(root) for root in roots}
    written = []
    for root, content in contents.items():
        path = root.parent.parent / attestation_path(root.name)
        earlier = path.read_bytes() if path.is_file() else None
        attestation = sign_build(content, root.name, key, repository=repository, earlier=earlier)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(attestation)
        written.append(path)
    return tuple(written)


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
