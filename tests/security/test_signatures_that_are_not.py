"""Attack: a build whose signature was stripped, forged, or made for something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_hub.errors import DigestMismatchError, SignatureInvalidError, SignatureMissingError, VerificationError
from kernel_hub.model.artifact import Expectation
from kernel_hub.signatures import Envelope, PrivateKey, SignatureDemand
from kernel_hub.signatures.attestation import Signature
from kernel_hub.signing import sign_folder
from kernel_hub.trust import Ed25519Signer
from kernel_hub.verify import verify
from tests.support.artifacts import from_source, write_build

ENFORCED_BY = "kernel_hub.signatures.check.require_signature"
ALICE, MALLORY = PrivateKey(b"\1" * 32), PrivateKey(b"\2" * 32)
SIGNER = Ed25519Signer("alice", ALICE.public)
DEMAND = SignatureDemand(frozenset({frozenset({"alice"})}), {"alice": SIGNER})
FILES = {"__init__.py": "WHO = 'good'\n"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = write_build(tmp_path / "build" / "torch-cpu", FILES)
    sign_folder(tmp_path, ALICE, repository="acme/axpy")
    return root


@pytest.fixture
def attestation(tmp_path: Path) -> Path:
    return tmp_path / "attestations" / "torch-cpu.json"


def refused_by(root: Path, repo: str = "acme/axpy", label: str = "torch-cpu") -> type[VerificationError]:
    with pytest.raises(VerificationError) as caught:
        verify(from_source(root, repo=repo, label=label), Expectation(), signatures=DEMAND)
    return type(caught.value)


def test_the_signature_as_it_was_made_is_accepted(root: Path) -> None:
    """That the other tests here test something."""
    assert verify(from_source(root), Expectation(), signatures=DEMAND).signed_by == ("alice",)


def test_a_stripped_signature(root: Path, attestation: Path) -> None:
    attestation.unlink()
    assert refused_by(root) is SignatureMissingError


def test_a_signature_of_somebody_else(root: Path, tmp_path: Path, attestation: Path) -> None:
    attestation.unlink()
    sign_folder(tmp_path, MALLORY, repository="acme/axpy")
    assert refused_by(root) is SignatureMissingError


def test_a_signature_of_somebody_else_under_the_signers_key_id(root: Path, attestation: Path) -> None:
    envelope = Envelope.parse(attestation.read_bytes(), name="attestation")
    forged = Signature(SIGNER.key_id, MALLORY.sign(envelope.signed_bytes))
    attestation.write_bytes(Envelope(envelope.payload, (forged,)).format())
    assert refused_by(root) is SignatureInvalidError


def test_a_true_signature_over_the_files_of_another_build(root: Path) -> None:
    write_build(root, {"__init__.py": "WHO = 'evil'\n"})
    assert refused_by(root) is SignatureInvalidError


def test_files_changed_under_a_true_signature(root: Path) -> None:
    (root / "__init__.py").write_text("WHO = 'evil'\n")
    assert refused_by(root) is DigestMismatchError


def test_a_build_signed_for_one_repository_published_in_another(root: Path) -> None:
    assert refused_by(root, repo="mallory/axpy") is SignatureInvalidError


def test_a_build_signed_under_one_label_published_under_another(root: Path, attestation: Path) -> None:
    root.rename(root.with_name("torch-universal"))
    attestation.rename(attestation.with_name("torch-universal.json"))
    assert refused_by(root.with_name("torch-universal"), label="torch-universal") is SignatureInvalidError


def test_a_payload_changed_under_its_signature(root: Path, attestation: Path) -> None:
    document = json.loads(attestation.read_text())
    envelope = Envelope.parse(attestation.read_bytes(), name="attestation")
    payload = envelope.payload.replace(b"acme/axpy", b"mallory/x")
    document["payload"] = json.loads(Envelope(payload).format())["payload"]
    attestation.write_text(json.dumps(document))
    assert refused_by(root, repo="mallory/x") is SignatureInvalidError
