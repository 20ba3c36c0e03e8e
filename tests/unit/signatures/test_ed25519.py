"""Ed25519 keys and signatures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError, TrustUnknownError
from kernel_hub.signatures.ed25519 import PrivateKey, is_signed
from kernel_hub.trust.signer import Ed25519Signer


def test_signatures_are_those_of_the_standard() -> None:
    """RFC 8032, section 7.1, test 2."""
    key = PrivateKey(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert key.public == public
    assert key.sign(b"\x72") == signature
    assert is_signed(public, signature, b"\x72")


def test_another_message_key_or_signature_is_not_signed() -> None:
    key, other = PrivateKey.generate(), PrivateKey.generate()
    signature = key.sign(b"message")
    assert is_signed(key.public, signature, b"message")
    assert not is_signed(key.public, signature, b"messagf")
    assert not is_signed(other.public, signature, b"message")
    assert not is_signed(key.public, signature[:-1], b"message")
    assert not is_signed(key.public, b"", b"message")
    assert not is_signed(b"", signature, b"message")


def test_a_key_file_is_read_back_and_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    key = PrivateKey.generate()
    key.write(tmp_path / "key.pem")
    assert PrivateKey.read(tmp_path / "key.pem") == key
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "key.pem").read_text().startswith("-----BEGIN PRIVATE KEY-----")


def test_a_key_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_text("precious")
    with pytest.raises(FileExistsError):
        PrivateKey.generate().write(tmp_path / "key.pem")
    assert (tmp_path / "key.pem").read_text() == "precious"


def test_a_key_does_not_show_itself() -> None:
    key = PrivateKey(b"\x41" * 32)
    assert "AAAA" not in repr(key)
    assert "41" not in repr(key)


@pytest.mark.parametrize("content", [b"", b"key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_file_is_a_typed_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key.pem").write_bytes(content)
    with pytest.raises(InvalidDocumentError, match=r"private key.*key\.pem"):
        PrivateKey.read(tmp_path / "key.pem")


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    content = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(content)
    with pytest.raises(InvalidDocumentError, match="another kind"):
        PrivateKey.read(tmp_path / "key.pem")


def test_key_ids_are_short_and_differ() -> None:
    ids = {Ed25519Signer("", PrivateKey.generate().public).key_id for _ in range(3)}
    assert {len(key_id) for key_id in ids} == {32}
    assert len(ids) == 3


def test_without_the_package_nothing_is_said_of_the_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(TrustUnknownError, match="could not be checked") as caught:
        is_signed(bytes(32), bytes(64), b"")
    assert caught.value.hint() == "pip install 'kernel-hub[sign]'"
