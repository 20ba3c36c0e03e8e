"""Mirrors and archives: the same lock loads from the upstream, from a mirror in a folder or behind a server, and unpacked."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.errors import (
    BlobMismatchError,
    ConflictError,
    DigestMismatchError,
    IncompleteArtifactError,
    InvalidDocumentError,
    RepositoryNotFoundError,
    VerificationError,
)
from kernel_hub.loader import Loader
from kernel_hub.locking.archive import write_archive
from kernel_hub.locking.mirror import FolderMirror, Mirror, Mirrored, bring, copy_lock, open_mirror
from kernel_hub.locking.sync import Syncer
from kernel_hub.locking.unpack import read_archive
from kernel_hub.model.commit import StoredFile
from kernel_hub.model.digest import Digest
from kernel_hub.model.host import Host
from kernel_hub.model.lock import Lock
from kernel_hub.model.lock_text import format_lock
from kernel_hub.model.metadata import AtVersion
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.model.source import LfsBlob
from kernel_hub.plan import Request
from kernel_hub.settings import Settings, load_settings
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.hub import HubServer
from tests.support.locks import bound_settings, connector, lock_of, registry_in

CPU = "torch-stable-abi211-cpu-x86_64-linux"
ARM = "torch-stable-abi211-cpu-aarch64-linux"
BESIDE = {"README.md": b"not needed", f"attestations/{CPU}.json": b"signed", "attestations/other.json": b"not needed"}
HOST = Host.from_json(
    {"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "cxx11_abi": True, "backend": "cpu", "devices": []}
)
AXPY = RepoId("acme", "axpy")


@pytest.fixture
def upstream(tmp_path: Path) -> DirectoryRegistry:
    registry = registry_in(tmp_path / "upstream")
    core = {label: fake_build(label, name="core") for label in (CPU, ARM)}
    publish_fake_kernel(registry, "acme/core", builds=core)
    needs = (AtVersion(RepoId("acme", "core"), 1),)
    builds = {
        label: fake_build(label, kernel_depends=needs, files={"_k.abi3.so": label.encode(), "big.py": b"#" * (2 << 20)})
        for label in (CPU, ARM)
    }
    publish_fake_kernel(registry, "acme/axpy", builds=builds, extra_files=BESIDE)
    return registry


@pytest.fixture
def settings(tmp_path: Path, upstream: DirectoryRegistry) -> Settings:
    return bound_settings(tmp_path / "home", tmp_path / "upstream")


@pytest.fixture
def lock(settings: Settings) -> Lock:
    return lock_of(settings, "acme/axpy@v1", targets=["linux-x86_64"]).lock


def written(lock: Lock, folder: Path) -> Path:
    path = folder / "kernel-hub.lock"
    path.write_bytes(format_lock(lock))
    return path


def mirrored(settings: Settings, lock: Lock, folder: Path, mirror: Mirror) -> list[Mirrored]:
    syncer = Syncer(settings, lock, written(lock, folder), connector(settings))
    return list(copy_lock(lock, syncer, connector(settings), mirror))


def load_from(place: Path | str, lock: Lock, folder: Path) -> object:
    """Load what a lock holds with the namespace bound to a mirror and nothing else."""
    folder.mkdir()
    bound = {"HF_HOME": str(folder / "hf"), "HOME": str(folder), "KERNEL_HUB_REGISTRIES": f"acme={place}"}
    settings = load_settings(bound, folder)
    request = Request(Requirement.parse("acme/axpy"), locked=True, lock_file=written(lock, folder))
    return Loader(settings, HOST).load(request)


def test_a_mirror_holds_what_the_lock_needs_and_nothing_else(
    settings: Settings, lock: Lock, upstream: DirectoryRegistry, tmp_path: Path
) -> None:
    mirror = registry_in(tmp_path / "mirror")
    copied = mirrored(settings, lock, tmp_path, FolderMirror(mirror))
    assert [str(item.kernel.repo) for item in copied] == ["acme/axpy", "acme/core"]
    commit = upstream.refs(AXPY).branches["v1"]
    assert mirror.refs(AXPY).branches["v1"] == commit
    assert mirror.files(AXPY, commit, "build") == upstream.files(AXPY, commit, f"build/{CPU}")
    assert [entry.path for entry in mirror.files(AXPY, commit, "attestations")] == [f"attestations/{CPU}.json"]
    assert {entry.path.split("/")[0] for entry in mirror.files(AXPY, commit)} == {"attestations", "build"}
    assert {type(entry.blob) for entry in mirror.files(AXPY, commit) if entry.path.endswith(".so")} == {LfsBlob}
    assert copied[0].sent_bytes == copied[0].size_bytes
    assert [item.sent_bytes for item in mirrored(settings, lock, tmp_path, FolderMirror(mirror))] == [0, 0]


def test_the_same_lock_loads_from_the_mirror(settings: Settings, lock: Lock, tmp_path: Path) -> None:
    mirrored(settings, lock, tmp_path, FolderMirror(registry_in(tmp_path / "mirror")))
    kernel = load_from(tmp_path / "mirror", lock, tmp_path / "elsewhere")
    assert kernel.module.origin() == f"axpy v1 {CPU}"  # type: ignore[attr-defined]
    assert lock_of(bound_settings(tmp_path / "again", tmp_path / "mirror"), "acme/axpy@v1").lock.kernels == tuple(
        lock.kernels
    )


def test_a_stamp_of_an_earlier_load_does_not_stand_in_for_the_lock(
    settings: Settings, lock: Lock, tmp_path: Path
) -> None:
    request = Request(Requirement.parse("acme/core"), lock_file=written(lock, tmp_path))
    Loader(settings, HOST).load(request)
    core = lock.kernels[1]
    other = replace(core, builds=tuple(replace(build, digest=Digest.of(b"other")) for build in core.builds))
    written(replace(lock, kernels=(lock.kernels[0], other)), tmp_path)
    with pytest.raises(DigestMismatchError, match=str(Digest.of(b"other"))) as caught:
        Loader(settings, HOST).load(request)
    assert "kernel-hub.lock" in caught.value.message


def test_a_machine_that_does_not_bind_the_namespace_is_told_to(
    lock: Lock, hub_server: HubServer, tmp_path: Path
) -> None:
    home = tmp_path / "unbound"
    home.mkdir()
    unbound = load_settings({"HF_ENDPOINT": hub_server.url, "HF_HOME": str(home), "HOME": str(home)}, home)
    request = Request(Requirement.parse("acme/axpy"), lock_file=written(lock, home))
    with pytest.raises(RepositoryNotFoundError) as caught:
        Loader(unbound, HOST).load(request)
    assert "KERNEL_HUB_REGISTRIES" in caught.value.hint() and "'acme'" in caught.value.hint()


def test_a_mirror_grows_with_a_wider_lock(
    settings: Settings, lock: Lock, upstream: DirectoryRegistry, tmp_path: Path
) -> None:
    mirror = registry_in(tmp_path / "mirror")
    mirrored(settings, lock, tmp_path, FolderMirror(mirror))
    wider = lock_of(settings, "acme/axpy@v1").lock
    mirrored(settings, wider, tmp_path, FolderMirror(mirror))
    commit = upstream.refs(AXPY).branches["v1"]
    assert mirror.files(AXPY, commit, "build") == upstream.files(AXPY, commit, "build")
    assert mirror.gc(grace_s=0.0).blobs == 0


def test_a_reader_of_a_mirror_that_grew_finds_what_is_new(
    settings: Settings, lock: Lock, hub_server: HubServer, tmp_path: Path
) -> None:
    mirror = open_mirror(settings, hub_server.url)
    mirrored(settings, lock_of(settings, "acme/axpy@v1", targets=["linux-aarch64"]).lock, tmp_path, mirror)
    home = tmp_path / "reader"
    home.mkdir()
    bound = {"HF_HOME": str(home), "HOME": str(home), "KERNEL_HUB_REGISTRIES": f"acme={hub_server.url}"}
    loader = Loader(load_settings(bound, home), HOST)
    request = Request(Requirement.parse("acme/axpy"), locked=True, lock_file=written(lock, home))
    assert loader.plan(request).chosen is None
    mirrored(settings, lock, tmp_path, mirror)
    chosen = loader.plan(request).chosen
    assert chosen is not None and chosen.variant.name == CPU


def test_a_mirror_that_holds_something_else_under_the_commit_is_left_as_it_is(
    settings: Settings, lock: Lock, upstream: DirectoryRegistry, tmp_path: Path
) -> None:
    mirror = registry_in(tmp_path / "mirror")
    commit = upstream.refs(AXPY).branches["v1"]
    mirror.create_repo(AXPY)
    other = [StoredFile.of(f"build/{CPU}/__init__.py", mirror.store(b"other"))]
    mirror.import_commit(AXPY, commit, other, message="other", time_s=0)
    with pytest.raises(ConflictError, match=r"another build/.*/__init__\.py"):
        mirrored(settings, lock, tmp_path, FolderMirror(mirror))
    assert mirror.read(AXPY, commit, f"build/{CPU}/__init__.py", limit_bytes=100) == b"other"


def test_a_server_takes_a_mirror_and_serves_the_lock(
    settings: Settings, lock: Lock, upstream: DirectoryRegistry, hub_server: HubServer, tmp_path: Path
) -> None:
    mirror = open_mirror(settings, hub_server.url)
    copied = mirrored(settings, lock, tmp_path, mirror)
    assert copied[0].sent_bytes == copied[0].size_bytes
    commit = upstream.refs(AXPY).branches["v1"]
    assert hub_server.registry.files(AXPY, commit, "build") == upstream.files(AXPY, commit, f"build/{CPU}")
    assert hub_server.registry.refs(AXPY).branches["v1"] == commit
    assert [item.sent_bytes for item in mirrored(settings, lock, tmp_path, mirror)] == [0, 0]
    kernel = load_from(hub_server.url, lock, tmp_path / "elsewhere")
    assert kernel.module.origin() == f"axpy v1 {CPU}"  # type: ignore[attr-defined]


def test_a_server_without_the_request_is_told_apart(settings: Settings, lock: Lock, start_hub, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    def without(app):  # type: ignore[no-untyped-def]
        async def answer(scope, receive, send):  # type: ignore[no-untyped-def]
            if "/import/" in scope.get("path", ""):
                await send({"type": "http.response.start", "status": 404, "headers": []})
                await send({"type": "http.response.body", "body": b"{}"})
            else:
                await app(scope, receive, send)

        return answer

    hub = start_hub(tmp_path / "hub", wrap=without)
    with pytest.raises(InvalidDocumentError, match="cannot keep commit ids") as caught:
        mirrored(settings, lock, tmp_path, open_mirror(settings, hub.url))
    assert "kernel-hub serve" in caught.value.hint()


def test_a_damaged_upstream_is_never_mirrored(
    settings: Settings, lock: Lock, upstream: DirectoryRegistry, tmp_path: Path
) -> None:
    commit = upstream.load(AXPY, upstream.refs(AXPY).branches["v1"])
    file = commit.file(f"build/{CPU}/_k.abi3.so")
    assert file is not None
    place = tmp_path / "upstream" / "blobs" / file.blob.digest[:2] / file.blob.digest[2:]
    place.write_bytes(bytes(file.blob.size_bytes))
    mirror = registry_in(tmp_path / "mirror")
    with pytest.raises((BlobMismatchError, VerificationError, IncompleteArtifactError)):
        mirrored(settings, lock, tmp_path, FolderMirror(mirror))
    assert mirror.repos() == ()


def bundled(settings: Settings, lock: Lock, folder: Path, name: str = "kernels.tar") -> Path:
    syncer = Syncer(settings, lock, written(lock, folder), connector(settings))
    write_archive(folder / name, lock, list(bring(lock, syncer, connector(settings))))
    return folder / name


def test_an_archive_holds_what_the_lock_needs_and_loads_where_it_is_unpacked(
    settings: Settings, lock: Lock, tmp_path: Path
) -> None:
    archive = bundled(settings, lock, tmp_path)
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert names[:4] == ["archive.json", "kernel-hub.lock", "commits/0.json", "commits/1.json"]
    assert all(name.startswith("blobs/") for name in names[4:])
    with archive.open("rb") as file:
        unpacked = registry_in(tmp_path / "unpacked")
        found = read_archive(file, unpacked, name="kernels.tar", expected=lock)
    assert found.lock == lock
    commit = unpacked.refs(AXPY).branches["v1"]
    assert unpacked.read(AXPY, commit, f"attestations/{CPU}.json", limit_bytes=100) == b"signed"
    kernel = load_from(tmp_path / "unpacked", lock, tmp_path / "elsewhere")
    assert kernel.module.origin() == f"axpy v1 {CPU}"  # type: ignore[attr-defined]


def test_the_same_lock_makes_the_same_archive(
    settings: Settings, lock: Lock, upstream: DirectoryRegistry, tmp_path: Path
) -> None:
    one = bundled(settings, lock, tmp_path, "one.tar").read_bytes()
    two = bundled(bound_settings(tmp_path / "two", tmp_path / "upstream"), lock, tmp_path, "two.tar").read_bytes()
    assert one == two


def test_unpacking_twice_and_beside_another_archive_works(settings: Settings, lock: Lock, tmp_path: Path) -> None:
    archive = bundled(settings, lock, tmp_path)
    wider = bundled(settings, lock_of(settings, "acme/axpy@v1").lock, tmp_path, "wider.tar")
    registry = registry_in(tmp_path / "unpacked")
    for path in (archive, archive, wider, archive):
        with path.open("rb") as file:
            read_archive(file, registry, name=path.name)
    assert registry.gc(grace_s=0.0).blobs == 0


def test_an_archive_of_another_lock_is_refused(settings: Settings, lock: Lock, tmp_path: Path) -> None:
    archive = bundled(settings, lock, tmp_path)
    other = lock_of(settings, "acme/axpy@v1").lock
    registry = registry_in(tmp_path / "unpacked")
    with archive.open("rb") as file, pytest.raises(InvalidDocumentError, match="another lock"):
        read_archive(file, registry, name="kernels.tar", expected=other)
    assert registry.repos() == ()
