"""Stamps: a file that did not change since it was verified is not read again, and any other is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kernel_hub.errors import DigestMismatchError
from kernel_hub.model.artifact import Artifact, Expectation, VerifiedArtifact
from kernel_hub.model.source import BlobId, GitBlob, LfsBlob
from kernel_hub.verify import Stamps, verify
from kernel_hub.verify.identities import blob_of
from tests.support.artifacts import from_folder, from_source, write_build
from tests.support.child import run_python

FILES: dict[str, str | bytes] = {
    "__init__.py": "from . import part\n",
    "part.py": "X = 1\n",
    "sub/größe.bin": bytes(1000),
}
NO_DEMAND = Expectation()

COUNT_READS = """
import sys
from pathlib import Path
from kernel_hub.model.artifact import Expectation
from kernel_hub.verify import Stamps, verify
from tests.support.artifacts import from_folder

root, stamps = Path(sys.argv[1]), Stamps(Path(sys.argv[2]))
opened = []
def watch(event, arguments):
    if event == "open" and str(arguments[0]).startswith(str(root)):
        opened.append(arguments[0])
sys.addaudithook(watch)
verified = verify(from_folder(root), Expectation(), stamps=stamps)
assert set(verified.files) == {"__init__.py", "part.py", "sub/größe.bin"}
print(*sorted(Path(path).name for path in opened))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_build(tmp_path / "torch-cpu", FILES)


@pytest.fixture
def stamps(tmp_path: Path) -> Stamps:
    return Stamps(tmp_path / "home" / "stamps")


def stamp_file(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "home" / "stamps").iterdir()
    return found


def check(root: Path, stamps: Stamps) -> VerifiedArtifact:
    return verify(from_folder(root), NO_DEMAND, stamps=stamps)


def rewrite_keeping_size_and_mtime(path: Path, content: bytes) -> None:
    status = path.stat()
    assert len(content) == status.st_size
    # Some filesystems' clocks are slower than this test.
    while path.stat().st_ctime_ns == status.st_ctime_ns:
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_the_next_process_reads_only_the_metadata(root: Path, tmp_path: Path) -> None:
    first = run_python(COUNT_READS, root, tmp_path / "home" / "stamps").split()
    second = run_python(COUNT_READS, root, tmp_path / "home" / "stamps").split()
    assert first == ["__init__.py", "größe.bin", "metadata.json", "part.py"]
    assert second == ["metadata.json"]


def test_what_is_verified_is_the_same_with_and_without_a_stamp(root: Path, stamps: Stamps) -> None:
    results = [verify(from_folder(root), NO_DEMAND), check(root, stamps), check(root, stamps)]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("path", list(FILES))
def test_a_file_of_the_same_size_and_time_that_was_written_again_is_read(root: Path, stamps: Stamps, path: str) -> None:
    check(root, stamps)
    content = (root / path).read_bytes()
    rewrite_keeping_size_and_mtime(root / path, bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(DigestMismatchError, match=f"{path}: changed"):
        check(root, stamps)


def test_a_touched_file_is_read_and_stamped_again(root: Path, stamps: Stamps, tmp_path: Path) -> None:
    check(root, stamps)
    before = stamp_file(tmp_path).read_bytes()
    os.utime(root / "part.py", ns=(1, 1))
    check(root, stamps)
    assert stamp_file(tmp_path).read_bytes() != before


def test_a_replaced_file_is_read(root: Path, stamps: Stamps, tmp_path: Path) -> None:
    check(root, stamps)
    status = (root / "part.py").stat()
    (tmp_path / "other.py").write_text("X = 2\n")
    os.utime(tmp_path / "other.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "other.py").replace(root / "part.py")
    with pytest.raises(DigestMismatchError, match=r"part\.py: changed"):
        check(root, stamps)


def test_missing_and_extra_files_are_found_with_a_stamp_too(root: Path, stamps: Stamps) -> None:
    check(root, stamps)
    (root / "extra.py").write_text("")
    with pytest.raises(DigestMismatchError, match=r"extra\.py: not in the manifest"):
        check(root, stamps)
    (root / "extra.py").unlink()
    (root / "part.py").unlink()
    with pytest.raises(DigestMismatchError, match=r"part\.py: missing"):
        check(root, stamps)


def test_a_changed_manifest_is_compared_with_the_stamped_identities(root: Path, stamps: Stamps) -> None:
    check(root, stamps)
    document = json.loads((root / "metadata.json").read_text())
    document["digest"]["files"]["part.py"] = document["digest"]["files"]["__init__.py"]
    (root / "metadata.json").write_text(json.dumps(document))
    with pytest.raises(DigestMismatchError, match=r"part\.py: changed"):
        check(root, stamps)


def test_the_expectation_is_compared_with_a_stamp_too(root: Path, stamps: Stamps) -> None:
    from kernel_hub.errors import IdentityMismatchError

    check(root, stamps)
    with pytest.raises(IdentityMismatchError):
        verify(from_folder(root), Expectation(version=2), stamps=stamps)


class TestAnnounced:
    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Artifact:
        root = write_build(tmp_path / "torch-cpu", FILES, algorithm=None)
        kinds: dict[str, BlobId] = {"sub/größe.bin": LfsBlob("")}
        announced = {
            path: blob_of((root / path).read_bytes(), kinds.get(path, GitBlob("")))
            for path in [*FILES, "metadata.json"]
        }
        return from_source(root, announced=announced)

    def test_the_listing_is_compared_with_the_stamped_ids(self, artifact: Artifact, stamps: Stamps) -> None:
        from dataclasses import replace

        verify(artifact, NO_DEMAND, stamps=stamps)
        assert artifact.announced is not None
        for path, blob in artifact.announced.items():
            other = replace(artifact, announced={**artifact.announced, path: type(blob)(blob.id[::-1])})
            with pytest.raises(DigestMismatchError, match=f"{path}: changed"):
                verify(other, NO_DEMAND, stamps=stamps)

    def test_a_stamp_without_blob_ids_does_not_do_for_a_listing(
        self, artifact: Artifact, stamps: Stamps, tmp_path: Path
    ) -> None:
        verify(from_folder(artifact.root), NO_DEMAND, stamps=stamps)
        before = stamp_file(tmp_path).read_bytes()
        assert b"git:" not in before
        verify(artifact, NO_DEMAND, stamps=stamps)
        assert b"git:" in stamp_file(tmp_path).read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"format": 2, "root": "", "algorithm": "sha256", "files": {}}',
        b'{"format": 1, "files": {"part.py": null}}',
        bytes(100),
    ],
)
def test_a_damaged_or_foreign_stamp_is_not_used_and_written_anew(
    root: Path, stamps: Stamps, tmp_path: Path, content: bytes
) -> None:
    check(root, stamps)
    good = stamp_file(tmp_path).read_bytes()
    stamp_file(tmp_path).write_bytes(content)
    check(root, stamps)
    assert stamp_file(tmp_path).read_bytes() == good


@pytest.mark.parametrize("entry", [None, [], [1, 2, 3, 4, "x"], ["1", 2, 3, 4, "x", ""], [1, 2, 3, 4, "zz", ""], 5])
def test_a_stamp_with_a_senseless_entry_is_not_used(root: Path, stamps: Stamps, tmp_path: Path, entry: object) -> None:
    check(root, stamps)
    document = json.loads(stamp_file(tmp_path).read_text())
    document["files"]["part.py"] = entry
    stamp_file(tmp_path).write_text(json.dumps(document))
    assert check(root, stamps).files.keys() == FILES.keys()


def test_a_stamp_of_another_artifact_is_not_used(root: Path, stamps: Stamps, tmp_path: Path) -> None:
    other = write_build(tmp_path / "other", FILES | {"part.py": "X = 2\n"})
    check(root, stamps)
    mine = stamp_file(tmp_path)
    check(other, stamps)
    (others,) = set((tmp_path / "home" / "stamps").iterdir()) - {mine}
    good = mine.read_bytes()
    mine.write_bytes(others.read_bytes())
    check(root, stamps)
    assert mine.read_bytes() == good


def test_a_stamp_is_written_for_its_owner_alone(root: Path, stamps: Stamps, tmp_path: Path) -> None:
    check(root, stamps)
    assert stamp_file(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_home_that_cannot_be_made_is_no_error(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "stamps", Path("/dev/null/stamps"), Path("/proc/stamps")):
        check(root, Stamps(folder))


def test_a_refused_artifact_leaves_no_stamp(root: Path, stamps: Stamps, tmp_path: Path) -> None:
    (root / "part.py").write_text("")
    with pytest.raises(DigestMismatchError):
        check(root, stamps)
    assert not (tmp_path / "home").exists()


def test_no_temporary_files_stay(root: Path, stamps: Stamps, tmp_path: Path) -> None:
    for turn in range(3):
        os.utime(root / "part.py", ns=(turn, turn))
        check(root, stamps)
    assert stamp_file(tmp_path).suffix == ".json"
