"""Sigstore bundles, verified without network against a Sigstore that the tests make themselves."""

from __future__ import annotations

import base64
import json
import socket
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.errors import TrustUnknownError
from kernel_hub.signatures.sigstore_bundle import bundle_fault
from kernel_hub.trust import BUILT_IN_SIGNERS, SigstoreSigner
from tests.support.sigstore_pki import SIGNED_AT, FakeSigstore, Identity

MESSAGE = b'{"name": "axpy"}'


@pytest.fixture(scope="module")
def sigstore() -> FakeSigstore:
    return FakeSigstore()


@pytest.fixture(scope="module")
def root(sigstore: FakeSigstore, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sigstore.write_trusted_root(tmp_path_factory.mktemp("root") / "trusted_root.json")


@pytest.fixture
def community() -> SigstoreSigner:
    (signer,) = BUILT_IN_SIGNERS
    assert isinstance(signer, SigstoreSigner)
    return signer


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def changed(bundle: bytes, *path: str | int, by: Any) -> bytes:
    document = json.loads(bundle)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = by(inner[path[-1]])
    return json.dumps(document).encode()


def flipped(text: str) -> str:
    content = bytearray(base64.b64decode(text))
    content[-1] ^= 1
    return base64.b64encode(content).decode()


def test_the_communitys_bundles_are_accepted(sigstore: FakeSigstore, root: Path, community: SigstoreSigner) -> None:
    for workflow in community.identities:
        bundle = sigstore.bundle(MESSAGE, Identity(workflow=workflow))
        assert bundle_fault(bundle, MESSAGE, community, trusted_root=root) == ""


@pytest.mark.parametrize(
    "identity",
    [
        Identity(issuer="https://issuer.example.org"),
        Identity(workflow="https://github.com/evil/kernels-community/.github/workflows/build.yaml@refs/heads/main"),
        Identity(
            workflow="https://github.com/huggingface/kernels-community/.github/workflows/build.yaml@refs/heads/evil"
        ),
        Identity(repository="https://github.com/evil/kernels-community"),
        Identity(repository="https://github.com/huggingface/kernels-community-evil"),
    ],
)
def test_a_valid_bundle_of_somebody_else_is_refused(
    sigstore: FakeSigstore, root: Path, community: SigstoreSigner, identity: Identity
) -> None:
    assert bundle_fault(sigstore.bundle(MESSAGE, identity), MESSAGE, community, trusted_root=root)


def test_a_signer_without_a_repository_is_known_by_identity_and_issuer(sigstore: FakeSigstore, root: Path) -> None:
    signer = SigstoreSigner("x", "https://issuer.example.org", ("https://example.org/a", "https://example.org/b"))
    identity = Identity(issuer=signer.issuer, workflow="https://example.org/b", repository="")
    bundle = sigstore.bundle(MESSAGE, identity)
    assert bundle_fault(bundle, MESSAGE, signer, trusted_root=root) == ""
    for other in (
        replace(identity, issuer="https://other.example.org"),
        replace(identity, workflow="https://example.org/c"),
    ):
        assert bundle_fault(sigstore.bundle(MESSAGE, other), MESSAGE, signer, trusted_root=root)


def test_another_message_is_refused(sigstore: FakeSigstore, root: Path, community: SigstoreSigner) -> None:
    bundle = sigstore.bundle(MESSAGE, Identity())
    assert bundle_fault(bundle, MESSAGE + b" ", community, trusted_root=root)


def test_another_message_is_refused_although_the_bundle_claims_its_digest(
    sigstore: FakeSigstore, root: Path, community: SigstoreSigner
) -> None:
    other = json.loads(sigstore.bundle(b"other", Identity()))["messageSignature"]["messageDigest"]["digest"]
    bundle = changed(
        sigstore.bundle(MESSAGE, Identity()), "messageSignature", "messageDigest", "digest", by=lambda _: other
    )
    assert bundle_fault(bundle, b"other", community, trusted_root=root)


ENTRY = ("verificationMaterial", "tlogEntries", 0)


@pytest.mark.parametrize(
    "path",
    [
        ("messageSignature", "signature"),
        ("verificationMaterial", "certificate", "rawBytes"),
        (*ENTRY, "inclusionPromise", "signedEntryTimestamp"),
        (*ENTRY, "inclusionProof", "rootHash"),
        (*ENTRY, "canonicalizedBody"),
        (*ENTRY, "logId", "keyId"),
    ],
    ids=lambda path: path[-1],
)
def test_one_flipped_bit_anywhere_is_refused(
    sigstore: FakeSigstore, root: Path, community: SigstoreSigner, path: tuple[str | int, ...]
) -> None:
    bundle = changed(sigstore.bundle(MESSAGE, Identity()), *path, by=flipped)
    assert bundle_fault(bundle, MESSAGE, community, trusted_root=root)


def test_a_signature_made_after_the_certificate_expired_is_refused(
    sigstore: FakeSigstore, root: Path, community: SigstoreSigner
) -> None:
    bundle = sigstore.bundle(MESSAGE, Identity(), logged_at=SIGNED_AT + timedelta(hours=1))
    assert bundle_fault(bundle, MESSAGE, community, trusted_root=root)


@pytest.mark.parametrize("forged", ["ca_key", "ct_key", "log_key"])
def test_an_authority_that_the_root_does_not_name_is_refused(
    sigstore: FakeSigstore, root: Path, community: SigstoreSigner, forged: str
) -> None:
    keys = {name: getattr(sigstore, name) for name in ("ca_key", "ct_key", "log_key")}
    keys[forged] = getattr(FakeSigstore(), forged)
    assert bundle_fault(FakeSigstore(**keys).bundle(MESSAGE, Identity()), MESSAGE, community, trusted_root=root)


def test_a_sigstore_of_ones_own_is_not_the_public_one(sigstore: FakeSigstore, community: SigstoreSigner) -> None:
    assert "certificate chain" in bundle_fault(sigstore.bundle(MESSAGE, Identity()), MESSAGE, community)


@pytest.mark.parametrize("bundle", [b"", b"{}", b"[]", b"null", b"\xff", b"{" * 1000, b" " * ((1 << 20) + 1)])
def test_what_is_no_bundle_is_refused(root: Path, community: SigstoreSigner, bundle: bytes) -> None:
    assert bundle_fault(bundle, MESSAGE, community, trusted_root=root)


def test_without_the_package_nothing_is_said_of_the_signature(
    sigstore: FakeSigstore, community: SigstoreSigner, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = sigstore.bundle(MESSAGE, Identity())
    monkeypatch.setitem(sys.modules, "sigstore.models", None)
    with pytest.raises(TrustUnknownError, match="could not be checked") as caught:
        bundle_fault(bundle, MESSAGE, community)
    assert caught.value.hint() == "pip install 'kernel-hub[sign]'"
