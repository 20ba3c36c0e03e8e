"""Digests and manifests, checked against the ecosystem's own walk."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from kernels._rust import Digest as PeerDigest
from kernels._rust import DigestAlgorithm as PeerAlgorithm

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.digest import Digest, DigestAlgorithm, Manifest, covers, tree_digest
from kernel_hub.tree import manifest_of

EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
FILES = [
    "__init__.py",
    "_k.abi3.so",
    ".hidden",
    ".pyc",
    "x.PYC",
    "x.pyc",
    "x.pyc.py",
    "y.pyo",
    "__pycache__/a.py",
    "sub/__pycache__/a.cpython-311.pyc",
    "sub/__pycache__.py",
    "sub/metadata.json",
    "sub/metadata.json.sigstore",
    "metadata.json",
    "metadata.json.sigstore",
    "größe.py",
    "Z.py",
    "a/b/c.py",
    "a.b/c.py",
]


@pytest.mark.parametrize("algorithm", list(DigestAlgorithm))
def test_the_walk_lists_the_files_and_digests_of_the_ecosystems(tmp_path: Path, algorithm: DigestAlgorithm) -> None:
    for index, path in enumerate(FILES):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(bytes([index]) * index)
    (tmp_path / "empty").mkdir()
    peers = PeerDigest.hash_variant(getattr(PeerAlgorithm, algorithm.name), tmp_path)
    ours = manifest_of(tmp_path, algorithm)
    assert {path: digest.base64 for path, digest in ours.files.items()} == dict(peers.files)
    assert list(ours.files) == list(peers.files)


def test_covered_paths() -> None:
    covered = [path for path in FILES if covers(path)]
    assert covered == [
        "__init__.py",
        "_k.abi3.so",
        ".hidden",
        ".pyc",
        "x.PYC",
        "x.pyc.py",
        "y.pyo",
        "sub/__pycache__.py",
        "sub/metadata.json",
        "sub/metadata.json.sigstore",
        "größe.py",
        "Z.py",
        "a/b/c.py",
        "a.b/c.py",
    ]


def test_a_digest_is_written_in_two_forms() -> None:
    digest = Digest.of(b"")
    assert str(digest) == f"sha256:{EMPTY_SHA256}"
    assert digest.hex == EMPTY_SHA256
    assert digest.base64 == base64.b64encode(bytes.fromhex(EMPTY_SHA256)).decode()


def test_both_forms_are_read_back() -> None:
    for algorithm in DigestAlgorithm:
        digest = Digest.of(b"x", algorithm)
        assert Digest.parse(str(digest)) == digest
        assert Digest.from_base64(algorithm, digest.base64) == digest


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256:",
        "sha256:zz",
        f"sha1:{EMPTY_SHA256}",
        EMPTY_SHA256,
        f"sha512:{EMPTY_SHA256}",
        f"sha256:{EMPTY_SHA256}00",
    ],
)
def test_what_is_no_digest(text: str) -> None:
    with pytest.raises(InvalidDocumentError):
        Digest.parse(text)


@pytest.mark.parametrize("text", ["", "zz", "LCa0", "LCa0a2j_xo_5m0U8HTBBNBNCLXBkg7-g-YpeiGJm564=", "é"])
def test_what_is_no_base64_digest(text: str) -> None:
    with pytest.raises(InvalidDocumentError):
        Digest.from_base64(DigestAlgorithm.SHA256, text)


def test_a_digest_of_the_wrong_length_cannot_be_made() -> None:
    with pytest.raises(InvalidDocumentError, match="sha512 has 64 bytes, this one 32"):
        Digest(DigestAlgorithm.SHA512, bytes(32))


def test_a_manifest_is_in_order_of_utf8_bytes() -> None:
    names = ["\U0001f600", "\uffee", "b", "B", "a/b", "a.b"]
    manifest = Manifest(DigestAlgorithm.SHA256, {name: Digest.of(b"") for name in names})
    assert list(manifest.files) == ["B", "a.b", "a/b", "b", "\uffee", "\U0001f600"]


def test_a_manifest_cannot_be_changed() -> None:
    files = {"a": Digest.of(b"")}
    manifest = Manifest(DigestAlgorithm.SHA256, files)
    files["b"] = Digest.of(b"")
    assert list(manifest.files) == ["a"]
    with pytest.raises(TypeError):
        manifest.files["c"] = Digest.of(b"")  # type: ignore[index]


def test_the_tree_digest_is_pinned_because_locks_carry_it() -> None:
    # Computed by hand from the documented layout: for each of path, algorithm and digest its length in 8 bytes, then it.
    import hashlib

    empty = bytes.fromhex(EMPTY_SHA256)
    layout = (4).to_bytes(8, "big") + b"a.py" + (6).to_bytes(8, "big") + b"sha256" + (32).to_bytes(8, "big") + empty
    digest = tree_digest([("a.py", Digest.of(b""))])
    assert digest.value == hashlib.sha256(layout).digest()
    assert str(digest) == "sha256:973241e2105f8f8ebf67120ed9d5d6d2beb24c920717488bd99aad3ab962463b"
