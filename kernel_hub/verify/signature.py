"""Step 1 of verification: the signatures that came with an artifact, over the exact bytes of its metadata."""

from __future__ import annotations

from kernel_hub.model.artifact import Artifact, FromSource
from kernel_hub.signatures import Evidence, SignatureDemand, require_signature
from kernel_hub.signatures.attestation import MAX_BYTES as MAX_ATTESTATION_BYTES
from kernel_hub.signatures.attestation import attestation_beside
from kernel_hub.signatures.sigstore_bundle import MAX_BYTES as MAX_BUNDLE_BYTES
from kernel_hub.verify.artifact_tree import ArtifactTree
from kernel_hub.verify.messages import describe

BUNDLE = "metadata.json.sigstore"


def signers_of(artifact: Artifact, tree: ArtifactTree, metadata: bytes, demand: SignatureDemand) -> tuple[str, ...]:
    """The signers who satisfy a demand with what lies in the artifact and beside it.

    Raises:
        SignatureMissingError, SignatureInvalidError: If nobody does.
        TrustUnknownError: If it could not be checked.
    """
    bundle = tree.file(BUNDLE)
    beside = attestation_beside(artifact.root, artifact.label)
    attestation = None
    if beside is not None:
        with beside.open("rb") as stream:
            attestation = stream.read(MAX_ATTESTATION_BYTES + 1)
    origin = artifact.origin
    evidence = Evidence(
        metadata=metadata,
        label=artifact.label,
        repository=str(origin.pin.repo) if isinstance(origin, FromSource) else None,
        bundle=None if bundle is None else bundle.content(MAX_BUNDLE_BYTES),
        attestation=attestation,
    )
    return require_signature(demand, evidence, subject=describe(artifact))
