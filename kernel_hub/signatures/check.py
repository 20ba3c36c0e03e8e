"""Whether the signatures that came with a build are those that the policy waits for.

Runs on the exact bytes of the metadata before they are parsed. A missing signature, a wrong one, and one that could not be
checked are three different answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from kernel_hub.errors import (
    InvalidDocumentError,
    SignatureInvalidError,
    SignatureMissingError,
    TrustUnknownError,
)
from kernel_hub.signatures.attestation import Envelope, Statement
from kernel_hub.signatures.ed25519 import is_signed
from kernel_hub.signatures.sigstore_bundle import bundle_fault
from kernel_hub.trust.decision import Ways
from kernel_hub.trust.signer import Ed25519Signer, Signer, SigstoreSigner

_HINT = "nothing was imported; ask the publisher for a signed build, or change the rule that demands the signature"


@dataclass(frozen=True, slots=True)
class SignatureDemand:
    """What the policy waits for.

    Attributes:
        ways: Sets of signers; the signatures of all of any one set suffice.
        signers: Who they are, by name.
        reason: The rule that demands it.
        sigstore_root: The trust root of a Sigstore of one's own; None for the public one.
    """

    ways: Ways
    signers: Mapping[str, Signer]
    reason: str = ""
    sigstore_root: Path | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What came with a build.

    Attributes:
        metadata: The exact bytes of its `metadata.json`.
        label: The build's name.
        repository: Where it came from; None for a folder.
        bundle: The bytes of its `metadata.json.sigstore`.
        attestation: The bytes of its attestation.
    """

    metadata: bytes = field(repr=False)
    label: str
    repository: str | None = None
    bundle: bytes | None = field(default=None, repr=False)
    attestation: bytes | None = field(default=None, repr=False)


def require_signature(demand: SignatureDemand, evidence: Evidence, *, subject: str) -> tuple[str, ...]:
    """The signers whose signatures satisfy a demand.

    Args:
        demand: What the policy waits for.
        evidence: What came with the build.
        subject: What to call the build in errors.

    Raises:
        SignatureMissingError: If nothing was signed by anyone who could satisfy it.
        SignatureInvalidError: If what is there is not what it must be.
        TrustUnknownError: If it could not be checked.
    """
    faults: dict[str, str] = {}
    unknown: TrustUnknownError | None = None
    signed: set[str] = set()
    for name in sorted(frozenset[str]().union(*demand.ways)):
        signer = demand.signers.get(name)
        if signer is None:
            faults[name] = "this signer is not defined"
            continue
        try:
            fault = _fault(signer, evidence, demand.sigstore_root)
        except TrustUnknownError as error:
            unknown = unknown or error
            continue
        if fault is None:
            continue
        if fault:
            faults[name] = fault
        else:
            signed.add(name)
    enough = sorted((way for way in demand.ways if way <= signed), key=lambda way: (len(way), sorted(way)))
    if enough:
        return tuple(sorted(enough[0]))
    if unknown is not None:
        raise TrustUnknownError(f"{subject}: {unknown.message}", hint=unknown.hint()) from unknown
    wanted = " or ".join(" and ".join(repr(name) for name in sorted(way)) for way in sorted(demand.ways, key=sorted))
    because = f" ({demand.reason})" if demand.reason else ""
    if not faults:
        missing = f"; only that of {', '.join(sorted(signed))} is there" if signed else ""
        raise SignatureMissingError(
            f"{subject} must carry a signature of {wanted}{because}, and carries none{missing}", hint=_HINT
        )
    details = "; ".join(f"{name}: {fault}" for name, fault in faults.items())
    raise SignatureInvalidError(
        f"{subject} must carry a signature of {wanted}{because}, and what it carries is not that: {details}", hint=_HINT
    )


def _fault(signer: Signer, evidence: Evidence, sigstore_root: Path | None) -> str | None:
    """Empty if the signer signed, None if there is nothing that could be their signature, else what is wrong with it."""
    match signer:
        case Ed25519Signer():
            return None if evidence.attestation is None else _attestation_fault(signer, evidence.attestation, evidence)
        case SigstoreSigner():
            if evidence.bundle is None:
                return None
            return bundle_fault(evidence.bundle, evidence.metadata, signer, trusted_root=sigstore_root)
        case _:
            assert_never(signer)


def _attestation_fault(signer: Ed25519Signer, content: bytes, evidence: Evidence) -> str | None:
    name = "attestation"
    try:
        envelope = Envelope.parse(content, name=name)
    except InvalidDocumentError as error:
        return str(error)
    hinted = [signature for signature in envelope.signatures if signature.key_id in (signer.key_id, "")]
    if not hinted:
        return None
    if not any(is_signed(signer.key, signature.value, envelope.signed_bytes) for signature in hinted):
        return "the attestation's signature is not by this key"
    try:
        statement = Statement.parse(envelope.payload, name=name)
    except InvalidDocumentError as error:
        return str(error)
    expected = Statement.of(evidence.label, evidence.metadata)
    if statement.metadata != expected.metadata:
        return "the attestation is about other metadata than this"
    if statement.label != expected.label:
        return f"the attestation is about build {statement.label}, not {expected.label}"
    if statement.repository is not None and evidence.repository not in (None, statement.repository):
        return f"the attestation is about {statement.repository}, not {evidence.repository}"
    return ""
