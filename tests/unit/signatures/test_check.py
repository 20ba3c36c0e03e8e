"""Whether the signatures that came with a build suffice: there, missing, wrong and unknown are four answers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.errors import SignatureInvalidError, SignatureMissingError, TrustUnknownError
from kernel_hub.signatures import Envelope, Evidence, PrivateKey, SignatureDemand, require_signature, sign_build
from kernel_hub.signatures.attestation import Signature, Statement
from kernel_hub.trust import BUILT_IN_SIGNERS, Ed25519Signer
from tests.support.sigstore_pki import FakeSigstore, Identity

METADATA = b'{"name": "axpy"}'
ALICE, BOB = PrivateKey(b"\1" * 32), PrivateKey(b"\2" * 32)
SIGNERS = {
    "alice": Ed25519Signer("alice", ALICE.public),
    "bob": Ed25519Signer("bob", BOB.public),
    **{signer.name: signer for signer in BUILT_IN_SIGNERS},
}


def demand(*ways: str, **options: object) -> SignatureDemand:
    return SignatureDemand(frozenset(frozenset(way.split("+")) for way in ways), SIGNERS, "trust.toml", **options)  # type: ignore[arg-type]


def evidence(*keys: PrivateKey, label: str = "torch-cpu", repository: str | None = "acme/axpy") -> Evidence:
    attestation = None
    for key in keys:
        attestation = sign_build(METADATA, label, key, repository=repository, earlier=attestation)
    return Evidence(METADATA, "torch-cpu", "acme/axpy", attestation=attestation)


def test_a_signature_of_the_demanded_signer_is_enough() -> None:
    assert require_signature(demand("alice"), evidence(ALICE), subject="build") == ("alice",)


def test_any_way_is_enough() -> None:
    assert require_signature(demand("alice", "bob"), evidence(BOB), subject="build") == ("bob",)


def test_all_signers_of_a_way_are_needed() -> None:
    assert require_signature(demand("alice+bob"), evidence(ALICE, BOB), subject="build") == ("alice", "bob")
    with pytest.raises(SignatureMissingError, match=r"'alice' and 'bob' .*only that of alice is there"):
        require_signature(demand("alice+bob"), evidence(ALICE), subject="build")


@pytest.mark.parametrize("given", [evidence(), evidence(BOB)], ids=["none", "only another's"])
def test_no_signature_of_the_signer_is_missing_with_the_rule_that_demands_it(given: Evidence) -> None:
    with pytest.raises(
        SignatureMissingError, match=r"build torch-cpu must carry a signature of 'alice' \(trust.toml\)"
    ):
        require_signature(demand("alice"), given, subject="build torch-cpu")


def test_a_signature_for_any_repository_does_for_this_one() -> None:
    assert require_signature(demand("alice"), evidence(ALICE, repository=None), subject="build") == ("alice",)


def test_a_signature_for_a_repository_does_for_a_folder() -> None:
    folder = replace(evidence(ALICE), repository=None)
    assert require_signature(demand("alice"), folder, subject="build") == ("alice",)


class TestWrong:
    @pytest.mark.parametrize(
        ("given", "why"),
        [
            (replace(evidence(ALICE), metadata=METADATA + b" "), "other metadata"),
            (replace(evidence(ALICE), label="torch-cuda"), "build torch-cpu, not torch-cuda"),
            (replace(evidence(ALICE), repository="evil/axpy"), "about acme/axpy, not evil/axpy"),
            (replace(evidence(ALICE), attestation=b"{}"), "payloadType"),
            (replace(evidence(ALICE), attestation=b""), "not JSON"),
            (replace(evidence(ALICE), attestation=b"x" * ((1 << 18) + 1)), "longer"),
        ],
    )
    def test_what_it_is_about_must_be_this(self, given: Evidence, why: str) -> None:
        with pytest.raises(SignatureInvalidError, match=why):
            require_signature(demand("alice"), given, subject="build")

    def test_a_signature_under_anothers_key_id_is_not_theirs(self) -> None:
        payload = Statement.of("torch-cpu", METADATA).format()
        forged = Signature(SIGNERS["alice"].key_id, BOB.sign(Envelope(payload).signed_bytes))  # type: ignore[union-attr]
        given = replace(evidence(), attestation=Envelope(payload, (forged,)).format())
        with pytest.raises(SignatureInvalidError, match="not by this key"):
            require_signature(demand("alice"), given, subject="build")

    def test_a_key_id_is_only_a_hint(self) -> None:
        payload = Statement.of("torch-cpu", METADATA).format()
        unnamed = Signature("", ALICE.sign(Envelope(payload).signed_bytes))
        given = replace(evidence(), attestation=Envelope(payload, (unnamed,)).format())
        assert require_signature(demand("alice"), given, subject="build") == ("alice",)

    def test_a_signature_over_the_bare_payload_is_none(self) -> None:
        payload = Statement.of("torch-cpu", METADATA).format()
        given = replace(evidence(), attestation=Envelope(payload, (Signature("", ALICE.sign(payload)),)).format())
        with pytest.raises(SignatureInvalidError, match="not by this key"):
            require_signature(demand("alice"), given, subject="build")

    def test_a_true_signature_under_another_statement_is_none(self) -> None:
        other = Envelope.parse(sign_build(b"other", "torch-cpu", ALICE), name="other")
        swapped = Envelope(Statement.of("torch-cpu", METADATA).format(), other.signatures)
        with pytest.raises(SignatureInvalidError, match="not by this key"):
            require_signature(demand("alice"), replace(evidence(), attestation=swapped.format()), subject="build")

    def test_a_signed_payload_that_is_no_statement_is_refused(self) -> None:
        envelope = Envelope(b"{}")
        signed = envelope.with_signature(Signature("", ALICE.sign(envelope.signed_bytes)))
        with pytest.raises(SignatureInvalidError, match="_type"):
            require_signature(demand("alice"), replace(evidence(), attestation=signed.format()), subject="build")

    def test_a_signer_that_nobody_defined_signs_nothing(self) -> None:
        with pytest.raises(SignatureInvalidError, match=r"'who'.*not defined"):
            require_signature(demand("who"), evidence(ALICE), subject="build")


class TestSigstore:
    def test_a_bundle_of_the_community_satisfies_a_demand_for_it(self, tmp_path: Path) -> None:
        sigstore = FakeSigstore()
        root = sigstore.write_trusted_root(tmp_path / "root.json")
        given = replace(evidence(), bundle=sigstore.bundle(METADATA, Identity()))
        wanted = demand("kernels-community", sigstore_root=root)
        assert require_signature(wanted, given, subject="build") == ("kernels-community",)
        with pytest.raises(SignatureInvalidError, match="kernels-community"):
            require_signature(wanted, replace(given, metadata=b"other"), subject="build")

    def test_no_bundle_is_missing(self) -> None:
        with pytest.raises(SignatureMissingError, match="kernels-community"):
            require_signature(demand("kernels-community"), evidence(ALICE), subject="build")


def test_what_could_not_be_checked_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    given = replace(evidence(ALICE), bundle=b"{}")
    monkeypatch.setitem(sys.modules, "sigstore.models", None)
    with pytest.raises(TrustUnknownError, match=r"^build torch-cpu: .*could not be checked"):
        require_signature(demand("kernels-community"), given, subject="build torch-cpu")
    assert require_signature(demand("kernels-community", "alice"), given, subject="build") == ("alice",)
