"""Verify: an artifact becomes a verified artifact only if every byte, path and name is what it must be."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.errors import (
    DigestMismatchError,
    DigestMissingError,
    IdentityMismatchError,
    IncompleteArtifactError,
    InvalidDocumentError,
    UnsafePathError,
)
from kernel_hub.model.artifact import Expectation, ViolationKind
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.digest import Digest, DigestAlgorithm, build_digest
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.source import BlobId, GitBlob, LfsBlob
from kernel_hub.verify import backend_of_label, verify
from tests.support.artifacts import from_folder, from_source, write_build

NO_DEMAND = Expectation()
FILES = {
    "__init__.py": "from . import _math\n",
    "_math.py": "ONE = 1\n",
    "sub/__init__.py": "",
    "data/table.bin": b"\x00\xff",
}


def git_blob(path: Path) -> BlobId:
    content = path.read_bytes()
    return GitBlob(hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())


def announcement(root: Path) -> dict[str, BlobId]:
    """What a source's listing would say: git ids, and large-file ids for binary files."""
    return {
        str(path.relative_to(root)): LfsBlob(hashlib.sha256(path.read_bytes()).hexdigest())
        if path.suffix == ".bin"
        else git_blob(path)
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_build(tmp_path / "build" / "torch-cpu", FILES)


def test_an_intact_build_is_verified_with_the_digest_of_its_manifest(root: Path) -> None:
    verified = verify(from_folder(root), NO_DEMAND)
    assert verified.has_manifest
    assert set(verified.files) == set(FILES)
    manifest = Metadata.parse((root / "metadata.json").read_bytes()).manifest
    assert manifest is not None
    assert verified.tree_digest == manifest.tree_digest()


@pytest.mark.parametrize("algorithm", list(DigestAlgorithm))
def test_both_algorithms_of_the_format_are_checked(tmp_path: Path, algorithm: DigestAlgorithm) -> None:
    root = write_build(tmp_path / "torch-cpu", FILES, algorithm=algorithm)
    assert verify(from_folder(root), NO_DEMAND).files["_math.py"].digest.algorithm is algorithm
    (root / "_math.py").write_text("ONE = 2\n")
    with pytest.raises(DigestMismatchError):
        verify(from_folder(root), NO_DEMAND)


def test_every_violation_is_reported_listed_files_in_path_order_then_unknown_ones(root: Path) -> None:
    (root / "_math.py").write_text("ONE = 2\n")
    (root / "__init__.py").unlink()
    (root / "sub/zz.py").write_text("")
    (root / "aa.py").write_text("")
    with pytest.raises(DigestMismatchError) as caught:
        verify(from_folder(root), NO_DEMAND)
    assert [(item.kind, item.path) for item in caught.value.violations] == [
        (ViolationKind.MISSING, "__init__.py"),
        (ViolationKind.CHANGED, "_math.py"),
        (ViolationKind.EXTRA, "aa.py"),
        (ViolationKind.EXTRA, "sub/zz.py"),
    ]


def test_the_error_names_file_build_expected_found_and_the_way_out(root: Path) -> None:
    expected = Digest.of(b"ONE = 1\n")
    (root / "_math.py").write_text("ONE = 2\n")
    with pytest.raises(DigestMismatchError) as caught:
        verify(from_source(root), NO_DEMAND)
    text = str(caught.value)
    for part in ("_math.py", "torch-cpu", "acme/axpy", str(expected), str(Digest.of(b"ONE = 2\n")), f"remove {root}"):
        assert part in text


def test_a_missing_file_names_the_digest_it_had(root: Path) -> None:
    (root / "_math.py").unlink()
    with pytest.raises(DigestMismatchError, match=f"_math.py: missing .expected {Digest.of(b'ONE = 1' + bytes([10]))}"):
        verify(from_folder(root), NO_DEMAND)


def test_bytecode_is_outside_the_manifest_and_never_importable(root: Path) -> None:
    (root / "__pycache__").mkdir()
    (root / "__pycache__/_math.cpython-311.pyc").write_bytes(b"whatever")
    (root / "__pycache__/sneaky.py").write_text("")
    (root / "_math.pyc").write_bytes(b"whatever")
    assert set(verify(from_folder(root), NO_DEMAND).files) == set(FILES)


def test_files_that_only_look_like_bytecode_are_covered(root: Path) -> None:
    (root / "x.PYC").write_bytes(b"")
    with pytest.raises(DigestMismatchError, match=r"x.PYC: not in the manifest"):
        verify(from_folder(root), NO_DEMAND)


def test_a_manifest_entry_that_points_outside_is_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("")
    listed = {path: Digest.of(b"").base64 for path in ("__init__.py", "../secret.py", str(tmp_path / "secret.py"))}
    root = write_build(tmp_path / "b", {"__init__.py": ""}, digest={"algorithm": "sha256", "files": listed})
    with pytest.raises(DigestMismatchError) as caught:
        verify(from_folder(root), NO_DEMAND)
    assert {item.kind for item in caught.value.violations} == {ViolationKind.MISSING}
    assert len(caught.value.violations) == 2


def test_a_large_tree_is_digested_by_threads_to_the_same_result(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"part{index}.bin": bytes([index]) * (1 << 20) for index in range(9)}
    root = write_build(tmp_path / "torch-cpu", {"__init__.py": "", **files})
    verified = verify(from_source(root, announced=announcement(root)), NO_DEMAND)
    assert verified.files["part3.bin"].digest == Digest.of(bytes([3]) * (1 << 20))
    (root / "part8.bin").write_bytes(bytes([8]) * ((1 << 20) - 1) + b"\x00")
    with pytest.raises(DigestMismatchError, match=r"part8.bin: changed"):
        verify(from_folder(root), NO_DEMAND)


class TestMetadata:
    def test_missing_metadata_is_an_incomplete_build(self, root: Path) -> None:
        (root / "metadata.json").unlink()
        with pytest.raises(IncompleteArtifactError, match=r"torch-cpu.*acme/axpy.*metadata.json is missing") as caught:
            verify(from_source(root), NO_DEMAND)
        assert caught.value.missing == ("metadata.json",)
        assert str(root) in caught.value.hint()

    def test_a_missing_folder_is_an_incomplete_build(self, tmp_path: Path) -> None:
        with pytest.raises(IncompleteArtifactError):
            verify(from_source(tmp_path / "never-fetched"), NO_DEMAND)

    def test_metadata_that_was_cut_short_names_file_build_and_way_out(self, root: Path) -> None:
        content = (root / "metadata.json").read_bytes()
        (root / "metadata.json").write_bytes(content[: len(content) // 2])
        with pytest.raises(InvalidDocumentError, match=r"metadata.json of build torch-cpu of acme/axpy") as caught:
            verify(from_source(root), NO_DEMAND)
        assert str(root) in caught.value.hint()

    def test_metadata_that_is_not_what_was_announced_is_a_changed_file_not_a_publishers_fault(self, root: Path) -> None:
        announced = announcement(root)
        (root / "metadata.json").write_bytes(b"{")
        with pytest.raises(DigestMismatchError) as caught:
            verify(from_source(root, announced=announced), NO_DEMAND)
        assert [item.path for item in caught.value.violations] == ["metadata.json"]

    def test_metadata_longer_than_one_mebibyte_is_not_parsed(self, root: Path) -> None:
        with (root / "metadata.json").open("ab") as file:
            file.write(b" " * (1 << 20))
        with pytest.raises(InvalidDocumentError, match="longer than 1048576 bytes"):
            verify(from_folder(root), NO_DEMAND)

    def test_metadata_that_is_a_folder_is_an_unsafe_path(self, root: Path) -> None:
        (root / "metadata.json").unlink()
        (root / "metadata.json").mkdir()
        with pytest.raises(UnsafePathError, match=r"metadata.json is a folder"):
            verify(from_folder(root), NO_DEMAND)


class TestAnnounced:
    def test_a_build_without_a_digest_is_checked_against_the_listing(self, tmp_path: Path) -> None:
        root = write_build(tmp_path / "torch-cpu", FILES, algorithm=None)
        artifact = from_source(root, announced=announcement(root))
        assert not verify(artifact, NO_DEMAND).has_manifest
        (root / "data/table.bin").write_bytes(b"\x00\xfe")
        (root / "extra.py").write_text("")
        (root / "_math.py").unlink()
        with pytest.raises(DigestMismatchError) as caught:
            verify(artifact, NO_DEMAND)
        assert [(item.kind, item.path) for item in caught.value.violations] == [
            (ViolationKind.MISSING, "_math.py"),
            (ViolationKind.CHANGED, "data/table.bin"),
            (ViolationKind.EXTRA, "extra.py"),
        ]

    @pytest.mark.parametrize("algorithm", [*DigestAlgorithm, None])
    def test_metadata_that_differs_from_the_listing_is_refused_although_it_parses(
        self, tmp_path: Path, algorithm: DigestAlgorithm | None
    ) -> None:
        root = write_build(tmp_path / "torch-cpu", FILES, algorithm=algorithm)
        announced = announcement(root)
        document = json.loads((root / "metadata.json").read_text()) | {"python-depends": ["einops"]}
        (root / "metadata.json").write_text(json.dumps(document))
        with pytest.raises(DigestMismatchError, match=r"metadata.json: changed"):
            verify(from_source(root, announced=announced), NO_DEMAND)

    def test_a_self_consistent_tree_that_was_not_announced_is_refused(self, tmp_path: Path, root: Path) -> None:
        other = write_build(tmp_path / "other", FILES | {"_math.py": "ONE = 7\n"})
        with pytest.raises(DigestMismatchError) as caught:
            verify(from_source(other, announced=announcement(root)), NO_DEMAND)
        assert [item.path for item in caught.value.violations] == ["_math.py", "metadata.json"]

    def test_a_large_file_under_sha512_is_compared_with_its_sha256(self, tmp_path: Path) -> None:
        root = write_build(tmp_path / "torch-cpu", FILES, algorithm=DigestAlgorithm.SHA512)
        artifact = from_source(root, announced=announcement(root))
        verify(artifact, NO_DEMAND)
        wrong = announcement(root) | {"data/table.bin": LfsBlob("0" * 64)}
        with pytest.raises(DigestMismatchError, match=r"data/table.bin: changed .expected sha256:0000"):
            verify(replace(artifact, announced=wrong), NO_DEMAND)

    def test_announced_bytecode_need_not_be_here(self, root: Path) -> None:
        bytecode: dict[str, BlobId] = {
            "__pycache__/_math.cpython-311.pyc": GitBlob("0" * 40),
            "_math.pyc": GitBlob("0" * 40),
        }
        verify(from_source(root, announced=announcement(root) | bytecode), NO_DEMAND)

    def test_bytecode_that_another_client_left_in_the_cache_is_ignored(self, root: Path) -> None:
        announced = announcement(root)
        (root / "__pycache__").mkdir()
        (root / "__pycache__/_math.cpython-311.pyc").write_bytes(b"whatever")
        verify(from_source(root, announced=announced), NO_DEMAND)

    def test_the_signature_beside_the_metadata_is_neither_listed_nor_extra(self, root: Path) -> None:
        (root / "metadata.json.sigstore").write_text("{}")
        verify(from_folder(root), NO_DEMAND)
        verify(from_source(root, announced=announcement(root)), NO_DEMAND)


class TestCacheLinks:
    @pytest.fixture
    def cached(self, tmp_path: Path) -> Path:
        """A build as the Hugging Face cache has it: every file a relative link into one folder of blobs."""
        plain = write_build(tmp_path / "plain", FILES, algorithm=None)
        root = tmp_path / "snapshots" / "commit" / "build" / "torch-cpu"
        blobs = tmp_path / "blobs"
        blobs.mkdir()
        for path, blob in announcement(plain).items():
            (blobs / blob.id).write_bytes((plain / path).read_bytes())
            link = root / path
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(*[".."] * (4 + path.count("/"))) / "blobs" / blob.id)
        return root

    def test_links_into_the_blobs_are_followed(self, cached: Path, tmp_path: Path) -> None:
        verified = verify(from_source(cached, blobs=tmp_path / "blobs"), NO_DEMAND)
        assert set(verified.files) == set(FILES)

    def test_the_cache_may_itself_be_reached_through_a_link(self, cached: Path, tmp_path: Path) -> None:
        (tmp_path / "alias").symlink_to(tmp_path, target_is_directory=True)
        alias = tmp_path / "alias"
        root = alias / cached.relative_to(tmp_path)
        assert set(verify(from_source(root, blobs=alias / "blobs"), NO_DEMAND).files) == set(FILES)

    def test_without_any_digest_the_blob_names_still_show_a_changed_file(self, cached: Path, tmp_path: Path) -> None:
        (cached / "_math.py").write_text("ONE = 2\n")
        with pytest.raises(DigestMismatchError, match=r"_math.py: changed .expected git blob"):
            verify(from_source(cached, blobs=tmp_path / "blobs"), NO_DEMAND)

    def test_the_way_out_names_the_blob_because_the_cache_would_link_to_it_again(
        self, cached: Path, tmp_path: Path
    ) -> None:
        (cached / "data/table.bin").write_bytes(b"?")
        with pytest.raises(DigestMismatchError) as caught:
            verify(from_source(cached, blobs=tmp_path / "blobs"), NO_DEMAND)
        assert str((cached / "data/table.bin").resolve()) in caught.value.hint()


class TestExpectation:
    def test_a_required_digest_that_is_missing_is_refused(self, tmp_path: Path) -> None:
        root = write_build(tmp_path / "torch-cpu", FILES, algorithm=None)
        with pytest.raises(DigestMissingError, match="torch-cpu"):
            verify(from_folder(root), Expectation(require_digest=True))

    def test_the_locked_tree_is_accepted_and_any_other_refused(self, root: Path) -> None:
        metadata = (root / "metadata.json").read_bytes()
        manifest = Metadata.parse(metadata).manifest
        assert manifest is not None
        locked = build_digest(metadata, manifest)
        verify(from_folder(root), Expectation(build_digest=locked))
        with pytest.raises(DigestMismatchError, match=f"metadata.json: changed .*{locked}") as caught:
            verify(from_folder(root), Expectation(build_digest=Digest.of(b"another"), locked_by="kernel-hub.lock"))
        assert "is not what kernel-hub.lock holds" in caught.value.message

    def test_a_locked_tree_with_other_metadata_is_refused(self, root: Path) -> None:
        metadata = (root / "metadata.json").read_bytes()
        manifest = Metadata.parse(metadata).manifest
        assert manifest is not None
        (root / "metadata.json").write_bytes(metadata.replace(b"Apache-2.0", b"MIT"))
        with pytest.raises(DigestMismatchError):
            verify(from_folder(root), Expectation(build_digest=build_digest(metadata, manifest)))

    def test_a_locked_tree_without_manifest_is_held_to_every_file(self, tmp_path: Path) -> None:
        root = write_build(tmp_path / "torch-cpu", FILES, algorithm=None)
        files = [
            (path, Digest.of(content if isinstance(content, bytes) else content.encode()))
            for path, content in FILES.items()
        ]
        locked = build_digest((root / "metadata.json").read_bytes(), files)
        verify(from_folder(root), Expectation(build_digest=locked))
        (root / sorted(FILES)[0]).write_bytes(b"other")
        with pytest.raises(DigestMismatchError, match="the whole build"):
            verify(from_folder(root), Expectation(build_digest=locked))

    def test_the_tree_digest_does_not_depend_on_whether_metadata_carries_a_digest(self, tmp_path: Path) -> None:
        listed = write_build(tmp_path / "a", FILES)
        bare = write_build(tmp_path / "b", FILES, algorithm=None)
        assert verify(from_folder(listed), NO_DEMAND).tree_digest == verify(from_folder(bare), NO_DEMAND).tree_digest

    def test_metadata_of_another_version_is_refused(self, root: Path) -> None:
        verify(from_folder(root), Expectation(version=1))
        with pytest.raises(IdentityMismatchError, match="states version 1, and 2 was expected") as caught:
            verify(from_folder(root), Expectation(version=2))
        assert (caught.value.subject, caught.value.expected, caught.value.found) == ("version", "2", "1")

    def test_version_zero_is_a_demand_too(self, root: Path) -> None:
        with pytest.raises(IdentityMismatchError):
            verify(from_folder(root), Expectation(version=0))

    def test_metadata_of_another_backend_is_refused(self, root: Path) -> None:
        verify(from_folder(root), Expectation(backend=BackendKind.CPU))
        with pytest.raises(IdentityMismatchError, match="backend"):
            verify(from_folder(root), Expectation(backend=BackendKind.CUDA))

    def test_the_labels_backend_is_demanded_without_being_asked_for(self, root: Path) -> None:
        with pytest.raises(IdentityMismatchError, match="states backend cpu, and cuda was expected"):
            verify(from_folder(root, label="torch213-cxx11-cu130-x86_64-linux"), NO_DEMAND)

    def test_architectures_must_be_those_that_selection_judged(self, tmp_path: Path) -> None:
        root = write_build(tmp_path / "t", FILES, backend={"type": "cuda", "archs": ["8.0", "9.0a"]})
        verify(from_source(root, label="torch-cuda", archs=("8.0", "9.0a")), NO_DEMAND)
        with pytest.raises(IdentityMismatchError, match=r"architectures 8.0, 9.0a, and 10.0 was expected"):
            verify(from_source(root, label="torch-cuda", archs=("10.0",)), NO_DEMAND)


@pytest.mark.parametrize(
    ("label", "backend"),
    [
        ("torch-npu", BackendKind.CANN),
        ("torch-cann", BackendKind.CANN),
        ("torch-rocm", BackendKind.ROCM),
        ("torch-universal", None),
        ("torch-anything", None),
        ("my-folder", None),
        ("torch-stable-abi211-xpu20253-x86_64-linux", BackendKind.XPU),
        ("tvm-ffi01-metal-aarch64-darwin", BackendKind.METAL),
    ],
)
def test_a_label_says_which_backend_metadata_must_state(label: str, backend: BackendKind | None) -> None:
    assert backend_of_label(label) is backend
