"""Attack: an archive whose members are in order, but whose kernels are others than the lock says."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.errors import (
    BlobMismatchError,
    DigestMismatchError,
    InvalidDocumentError,
    KernelHubError,
    UnsafePathError,
)
from kernel_hub.locking.archive import write_archive
from kernel_hub.locking.mirror import bring
from kernel_hub.locking.sync import Syncer
from kernel_hub.locking.tar import TarReader, TarWriter
from kernel_hub.locking.unpack import read_archive
from kernel_hub.model.commit import Commit, StoredBlob, StoredFile, canonical
from kernel_hub.model.digest import DigestAlgorithm
from kernel_hub.model.lock_text import format_lock
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.locks import bound_settings, connector, lock_of, registry_in

ENFORCED_BY = "kernel_hub.locking.unpack.read_archive"
Members = dict[str, bytes]
LABEL = "torch-cpu"


@pytest.fixture
def members(tmp_path: Path) -> Members:
    """A good archive's members, in order."""
    registry = registry_in(tmp_path / "upstream")
    publish_fake_kernel(registry, "acme/axpy", builds={LABEL: fake_build(LABEL, files={"_k.abi3.so": b"native"})})
    settings = bound_settings(tmp_path / "home", tmp_path / "upstream")
    lock = lock_of(settings, "acme/axpy@v1").lock
    (tmp_path / "kernel-hub.lock").write_bytes(format_lock(lock))
    syncer = Syncer(settings, lock, tmp_path / "kernel-hub.lock", connector(settings))
    write_archive(tmp_path / "good.tar", lock, list(bring(lock, syncer, connector(settings))))
    with (tmp_path / "good.tar").open("rb") as file:
        reader = TarReader(file, name="good.tar", limit_bytes=1 << 20, limit_members=100)
        return {member.name: b"".join(chunks()) for member, chunks in reader.members()}


def unpack(members: Members, folder: Path) -> DirectoryRegistry:
    """Unpack an archive of these members; if that is refused, nothing can be seen of it."""
    file = io.BytesIO()
    writer = TarWriter(file)
    for name, content in members.items():
        writer.add(name, len(content), iter((content,)))
    writer.finish()
    file.seek(0)
    registry = registry_in(folder)
    try:
        read_archive(file, registry, name="kernels.tar")
    except KernelHubError:
        assert registry.repos() == ()
        raise
    return registry


def edited(members: Members, edit: Callable[[Commit], list[StoredFile]], blobs: tuple[bytes, ...] = ()) -> Members:
    """The archive with another manifest, and with the bytes that it names in their place and order."""
    head = json.loads(members["archive.json"])
    commit = Commit.parse(members["commits/0.json"], id=head["kernels"][0]["commit"], name="commit")
    files = edit(commit)
    other = Commit.make(files, parents=(), message=commit.message, time_s=commit.time_s, upstream_id=commit.id)
    bytes_of = {StoredBlob.of(content).digest: content for content in (*members.values(), *blobs)}
    names = ("archive.json", "kernel-hub.lock")
    result = {name: members[name] for name in names} | {"commits/0.json": other.format()}
    return result | {f"blobs/{digest}": bytes_of[digest] for digest in sorted({file.blob.digest for file in files})}


def test_the_good_archive_is_unpacked(members: Members, tmp_path: Path) -> None:
    registry = unpack(members, tmp_path / "out")
    (repo,) = registry.repos()
    assert registry.refs(repo).versions().keys() == {1}


def test_a_changed_file_with_its_own_digest_is_refused(members: Members, tmp_path: Path) -> None:
    evil = b"evil"

    def edit(commit: Commit) -> list[StoredFile]:
        return [
            StoredFile(file.path, StoredBlob.of(evil), lfs=file.lfs) if file.path.endswith(".so") else file
            for file in commit.files
        ]

    with pytest.raises(DigestMismatchError, match=f"build/{LABEL}: changed") as caught:
        unpack(edited(members, edit, (evil,)), tmp_path / "out")
    assert caught.value.violations[0].expected.startswith("sha256:")


def test_a_build_that_is_consistent_in_itself_is_held_to_the_lock(members: Members, tmp_path: Path) -> None:
    other = fake_build(LABEL, files={"_k.abi3.so": b"evil"})
    assert DigestAlgorithm.SHA256.value.encode() in other["metadata.json"]

    def edit(commit: Commit) -> list[StoredFile]:
        return [StoredFile.of(f"build/{LABEL}/{path}", StoredBlob.of(content)) for path, content in other.items()]

    with pytest.raises(DigestMismatchError):
        unpack(edited(members, edit, tuple(other.values())), tmp_path / "out")


@pytest.mark.parametrize(
    "path", ["README.md", "build/torch-cuda/__init__.py", "build/x", "setup.py", "attestations/torch-cuda.json"]
)
def test_a_file_outside_of_the_locked_builds_is_refused(members: Members, tmp_path: Path, path: str) -> None:
    def edit(commit: Commit) -> list[StoredFile]:
        return [*commit.files, StoredFile.of(path, commit.files[0].blob)]

    with pytest.raises(UnsafePathError, match="is not locked"):
        unpack(edited(members, edit), tmp_path / "out")


def test_an_extra_file_inside_of_a_locked_build_is_refused(members: Members, tmp_path: Path) -> None:
    def edit(commit: Commit) -> list[StoredFile]:
        return [*commit.files, StoredFile.of(f"build/{LABEL}/more.py", commit.files[0].blob)]

    with pytest.raises(DigestMismatchError):
        unpack(edited(members, edit), tmp_path / "out")


def test_a_missing_file_of_a_locked_build_is_refused(members: Members, tmp_path: Path) -> None:
    with pytest.raises(DigestMismatchError):
        unpack(
            edited(members, lambda commit: [file for file in commit.files if ".so" not in file.path]), tmp_path / "out"
        )


@pytest.mark.parametrize(
    "path", ["../../escape.py", "/etc/cron.d/x", f"build/{LABEL}/../../x", "build/a\\b", "build/.git/x"]
)
def test_a_path_that_leads_out_is_refused(members: Members, tmp_path: Path, path: str) -> None:
    text = members["commits/0.json"].decode().replace(f"build/{LABEL}/__init__.py", path.replace("\\", "\\\\"))
    with pytest.raises(InvalidDocumentError, match="the path"):
        unpack(members | {"commits/0.json": text.encode()}, tmp_path / "out")
    assert not (tmp_path / "escape.py").exists()


def test_bytes_that_are_not_what_their_name_says_are_refused(members: Members, tmp_path: Path) -> None:
    name = next(name for name in members if name.startswith("blobs/"))
    with pytest.raises(BlobMismatchError):
        unpack(members | {name: members[name][::-1]}, tmp_path / "out")
    with pytest.raises(BlobMismatchError, match="its manifest says"):
        unpack(members | {name: members[name] + b"x"}, tmp_path / "out2")


def test_a_forged_git_id_is_refused(members: Members, tmp_path: Path) -> None:
    def edit(commit: Commit) -> list[StoredFile]:
        return [
            StoredFile(file.path, StoredBlob(file.blob.digest, "0" * 40, file.blob.size_bytes), lfs=file.lfs)
            for file in commit.files
        ]

    with pytest.raises(BlobMismatchError, match="git id"):
        unpack(edited(members, edit), tmp_path / "out")


def test_a_missing_stray_or_misplaced_member_is_refused(members: Members, tmp_path: Path) -> None:
    for number, name in enumerate(members):
        without = {key: content for key, content in members.items() if key != name}
        with pytest.raises(InvalidDocumentError, match="it lacks"):
            unpack(without, tmp_path / f"without{number}")
    with pytest.raises(UnsafePathError, match="which no manifest names"):
        unpack(members | {"blobs/zz": b""}, tmp_path / "stray")
    with pytest.raises(InvalidDocumentError, match="it lacks"):
        unpack(dict(sorted(members.items())), tmp_path / "sorted")


@pytest.mark.parametrize(
    "edit",
    [
        lambda head: head | {"format": "zip"},
        lambda head: head | {"version": 2},
        lambda head: head | {"kernels": []},
        lambda head: head | {"kernels": head["kernels"] * 2},
        lambda head: head | {"kernels": [head["kernels"][0] | {"repo": "evil/axpy"}]},
        lambda head: head | {"kernels": [head["kernels"][0] | {"commit": "0" * 40}]},
        lambda head: head | {"kernels": [head["kernels"][0] | {"branches": ["../../main"]}]},
        lambda head: head | {"kernels": [head["kernels"][0] | {"extra": 1}]},
    ],
)
def test_a_head_that_says_something_else_is_refused(
    members: Members, tmp_path: Path, edit: Callable[..., object]
) -> None:
    head = edit(json.loads(members["archive.json"]))
    with pytest.raises(KernelHubError):
        unpack(members | {"archive.json": canonical(head)}, tmp_path / "out")  # type: ignore[arg-type]


def test_a_commit_that_is_not_a_mirrored_one_is_refused(members: Members, tmp_path: Path) -> None:
    head = json.loads(members["archive.json"])
    commit = Commit.parse(members["commits/0.json"], id=head["kernels"][0]["commit"], name="commit")
    own = Commit.make(commit.files, parents=(), message="", time_s=0)
    head["kernels"][0]["commit"] = own.id
    lock = members["kernel-hub.lock"].replace(commit.id.encode(), own.id.encode())
    forged = members | {"archive.json": canonical(head), "kernel-hub.lock": lock, "commits/0.json": own.format()}
    with pytest.raises(InvalidDocumentError, match="is not a mirrored commit"):
        unpack(forged, tmp_path / "out")
