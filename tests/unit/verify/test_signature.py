"""Step 1 of verification: the signature over the exact bytes of the metadata, before they are parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.errors import (
    DigestMismatchError,
    DigestMissingError,
    SignatureInvalidError,
    SignatureMissingError,
    UnsafePathError,
)
from kernel_hub.importer import import_artifact
from kernel_hub.model.artifact import Expectation
from kernel_hub.signatures import PrivateKey, SignatureDemand
from kernel_hub.signing import sign_folder
from kernel_hub.trust import BUILT_IN_SIGNERS, Ed25519Signer
from kernel_hub.verify import verify
from tests.support.artifacts import from_folder, from_source, write_build
from tests.support.sigstore_pki import FakeSigstore, Identity

KEY = PrivateKey(b"\1" * 32)
ALICE = SignatureDemand(frozenset({frozenset({"alice"})}), {"alice": Ed25519Signer("alice", KEY.public)}, "trust.toml")
NO_DEMAND = Expectation()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_build(tmp_path / "build" / "torch-cpu", {"__init__.py": f"# {tmp_path}\n"})


@pytest.fixture
def signed(root: Path, tmp_path: Path) -> Path:
    sign_folder(tmp_path, KEY, repository="acme/axpy")
    return root


def test_a_signed_build_is_verified_and_says_by_whom(signed: Path) -> None:
    for artifact in (from_folder(signed), from_source(signed)):
        verified = verify(artifact, NO_DEMAND, signatures=ALICE)
        assert verified.signed_by == ("alice",)
    assert import_artifact(verified).notes == ("it is signed by alice",)


def test_an_unsigned_build_is_refused(root: Path) -> None:
    with pytest.raises(SignatureMissingError, match=r"build torch-cpu of .* 'alice' \(trust.toml\)"):
        verify(from_folder(root), NO_DEMAND, signatures=ALICE)


def test_without_a_demand_a_signature_is_not_looked_at(root: Path, tmp_path: Path) -> None:
    (tmp_path / "attestations").mkdir()
    (tmp_path / "attestations" / "torch-cpu.json").write_text("nonsense")
    assert verify(from_folder(root), NO_DEMAND).signed_by == ()


def test_changed_metadata_is_refused_before_it_is_parsed(signed: Path) -> None:
    (signed / "metadata.json").write_text("not even JSON")
    with pytest.raises(SignatureInvalidError, match="other metadata"):
        verify(from_folder(signed), NO_DEMAND, signatures=ALICE)


def test_a_signature_covers_the_files_through_the_digest(signed: Path) -> None:
    (signed / "__init__.py").write_text("evil")
    with pytest.raises(DigestMismatchError):
        verify(from_folder(signed), NO_DEMAND, signatures=ALICE)


def test_a_signature_over_metadata_without_digest_covers_nothing(tmp_path: Path) -> None:
    from kernel_hub.signatures import sign_build

    root = write_build(tmp_path / "build" / "torch-cpu", {"__init__.py": ""}, algorithm=None)
    (tmp_path / "attestations").mkdir()
    attestation = sign_build((root / "metadata.json").read_bytes(), "torch-cpu", KEY)
    (tmp_path / "attestations" / "torch-cpu.json").write_bytes(attestation)
    with pytest.raises(DigestMissingError):
        verify(from_folder(root), NO_DEMAND, signatures=ALICE)


def test_a_build_signed_for_another_repository_is_refused(signed: Path) -> None:
    with pytest.raises(SignatureInvalidError, match="about acme/axpy, not evil/axpy"):
        verify(from_source(signed, repo="evil/axpy"), NO_DEMAND, signatures=ALICE)


def test_a_build_signed_under_another_label_is_refused(signed: Path, tmp_path: Path) -> None:
    signed.rename(tmp_path / "build" / "torch-universal")
    (tmp_path / "attestations" / "torch-cpu.json").rename(tmp_path / "attestations" / "torch-universal.json")
    artifact = from_source(tmp_path / "build" / "torch-universal", label="torch-universal")
    with pytest.raises(SignatureInvalidError, match="about build torch-cpu, not torch-universal"):
        verify(artifact, NO_DEMAND, signatures=ALICE)


class TestBundle:
    @pytest.fixture
    def demand(self, root: Path, tmp_path: Path) -> SignatureDemand:
        sigstore = FakeSigstore()
        bundle = sigstore.bundle((root / "metadata.json").read_bytes(), Identity())
        (root / "metadata.json.sigstore").write_bytes(bundle)
        signers = {signer.name: signer for signer in BUILT_IN_SIGNERS}
        trusted_root = sigstore.write_trusted_root(tmp_path / "root.json")
        return SignatureDemand(frozenset({frozenset(signers)}), signers, "trust.toml", trusted_root)

    def test_the_ecosystems_bundle_is_verified(self, root: Path, demand: SignatureDemand) -> None:
        assert verify(from_folder(root), NO_DEMAND, signatures=demand).signed_by == ("kernels-community",)

    def test_a_bundle_of_other_bytes_is_refused(self, root: Path, demand: SignatureDemand) -> None:
        with (root / "metadata.json").open("a") as file:
            file.write(" ")
        with pytest.raises(SignatureInvalidError):
            verify(from_folder(root), NO_DEMAND, signatures=demand)

    def test_a_bundle_that_is_a_link_out_of_the_build_is_refused(
        self, root: Path, demand: SignatureDemand, tmp_path: Path
    ) -> None:
        (root / "metadata.json.sigstore").rename(tmp_path / "elsewhere")
        (root / "metadata.json.sigstore").symlink_to("../../elsewhere")
        with pytest.raises(UnsafePathError):
            verify(from_folder(root), NO_DEMAND, signatures=demand)

    def test_an_oversized_bundle_is_refused(self, root: Path, demand: SignatureDemand) -> None:
        (root / "metadata.json.sigstore").write_bytes(b" " * (2 << 20))
        with pytest.raises(SignatureInvalidError, match="longer"):
            verify(from_folder(root), NO_DEMAND, signatures=demand)
