"""The digest walk, against known values and against the ecosystem's own implementation."""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels._rust import Digest as PeerDigest
from kernels._rust import DigestAlgorithm as PeerAlgorithm

from kernel_hub.errors import UnsafePathError
from kernel_hub.model.digest import DigestAlgorithm
from kernel_hub.tree import digest_of_file, manifest_of, paths_of

PEER = {DigestAlgorithm.SHA256: PeerAlgorithm.SHA256, DigestAlgorithm.SHA512: PeerAlgorithm.SHA512}
INTERESTING = {
    "__init__.py": b"import os\n",
    "_ops.py": b"",
    ".hidden": b"hidden",
    ".config/settings": b"in a hidden folder",
    "metadata.json": b"{}",
    "metadata.json.sigstore": b"{}",
    "nested/metadata.json": b"nested",
    "nested/metadata.json.sigstore": b"nested",
    "stale.pyc": b"bytecode",
    "loud.PYC": b"not bytecode by name",
    ".pyc": b"a hidden file",
    "nested/.pyc": b"a hidden file",
    "__pycache__/a.txt": b"cached",
    "nested/__pycache__/b.py": b"cached",
    "__pycache__x/c.py": b"not cached",
    "a.pyc.py": b"source",
    "a b/ä.py": "ünïcode".encode(),
    "Z.py": b"upper before lower",
    "a.py": b"a",
    "a/b.py": b"a folder that sorts beside a.py",
    "a-b.py": b"a",
    "\U0001f600.txt": b"beyond the basic plane",
    "\uffee.txt": b"whose UTF-16 order differs from its UTF-8 order",
    "k.abi3.so": bytes(range(256)) * 5000,
}


def plant(root: Path, tree: dict[str, bytes]) -> Path:
    for name, content in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def as_peer(root: Path, algorithm: DigestAlgorithm) -> dict[str, str]:
    return dict(PeerDigest.hash_variant(PEER[algorithm], root).files)


def as_ours(root: Path, algorithm: DigestAlgorithm) -> dict[str, str]:
    return {path: digest.base64 for path, digest in manifest_of(root, algorithm).files.items()}


@pytest.mark.parametrize("algorithm", list(DigestAlgorithm))
def test_every_kind_of_name_is_digested_as_the_peer_does(tmp_path: Path, algorithm: DigestAlgorithm) -> None:
    plant(tmp_path, INTERESTING)
    (tmp_path / "empty").mkdir()
    ours = as_ours(tmp_path, algorithm)
    assert ours == as_peer(tmp_path, algorithm)
    assert list(ours) == sorted(ours, key=str.encode)
    assert set(INTERESTING) - set(ours) == {
        "metadata.json",
        "metadata.json.sigstore",
        "stale.pyc",
        "__pycache__/a.txt",
        "nested/__pycache__/b.py",
    }


def test_the_digest_is_standard_base64_of_the_raw_bytes(tmp_path: Path) -> None:
    plant(tmp_path, {"x.py": b"\xff\xfe"})
    assert as_ours(tmp_path, DigestAlgorithm.SHA256) == {
        "x.py": b64encode(hashlib.sha256(b"\xff\xfe").digest()).decode("ascii")
    }


def test_linked_files_count_by_content_and_linked_folders_do_not_count(tmp_path: Path) -> None:
    outside = plant(tmp_path / "outside", {"real.py": b"real", "more/deep.py": b"deep"})
    root = plant(tmp_path / "build", {"a.py": b"a"})
    (root / "linked.py").symlink_to(outside / "real.py")
    (root / "linked_twice.py").symlink_to(root / "linked.py")
    (root / "folder").symlink_to(outside / "more", target_is_directory=True)
    assert as_ours(root, DigestAlgorithm.SHA256) == as_peer(root, DigestAlgorithm.SHA256)
    assert set(manifest_of(root).files) == {"a.py", "linked.py", "linked_twice.py"}


def test_a_build_below_a_folder_named_pycache_is_still_digested(tmp_path: Path) -> None:
    root = plant(tmp_path / "__pycache__" / "build", {"a.py": b"a"})
    assert list(manifest_of(root).files) == ["a.py"]


@pytest.mark.parametrize("target", ["missing.py", "loop"])
def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path, target: str) -> None:
    (tmp_path / "loop").symlink_to(target)
    with pytest.raises(UnsafePathError, match="loop is a link that leads to no file"):
        manifest_of(tmp_path)


def test_a_pipe_is_an_error_and_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(UnsafePathError, match=r"pipe\.py is not a regular file"):
        manifest_of(tmp_path)


def test_a_name_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.py"))).write_bytes(b"")
    with pytest.raises(UnsafePathError, match="is not UTF-8"):
        manifest_of(tmp_path)


def test_paths_include_what_the_manifest_leaves_out(tmp_path: Path) -> None:
    plant(tmp_path, {"metadata.json": b"{}", "a/b.pyc": b"", "a/b.py": b""})
    assert sorted(paths_of(tmp_path)) == ["a/b.py", "a/b.pyc", "metadata.json"]


def test_one_file_has_the_digest_of_its_bytes(tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    (tmp_path / "x").write_bytes(content)
    assert digest_of_file(tmp_path / "x", DigestAlgorithm.SHA512).value == hashlib.sha512(content).digest()


names = st.sampled_from(
    ["a", "b.py", "B.pyc", ".pyc", "x.PYC", "__pycache__", "metadata.json", "é", ".h", "metadata.json.sigstore"]
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.lists(names, min_size=1, max_size=3), st.binary(max_size=8)), max_size=8))
def test_any_tree_is_digested_as_the_peer_does(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[list[str], bytes]]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for parts, content in files:
        path = root.joinpath(*parts)
        if path.is_dir() or any(parent.is_file() for parent in path.parents if parent.is_relative_to(root)):
            continue
        plant(root, {"/".join(parts): content})
    assert as_ours(root, DigestAlgorithm.SHA256) == as_peer(root, DigestAlgorithm.SHA256)
