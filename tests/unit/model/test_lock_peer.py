"""The ecosystem's lock formats, with its own parser as the oracle."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kernels._rust import KernelDependency, KernelLock, KernelLocks, KernelVersion

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.lock import Lock, LockedKernel
from kernel_hub.model.lock_peer import (
    ListingDigest,
    PeerLock,
    format_old_peer_lock,
    format_peer_lock,
    parse_peer_lock,
)
from kernel_hub.model.lock_text import parse_lock
from kernel_hub.model.requirement import AtRevision, ExactVersion, RepoId, Requirement
from kernel_hub.model.source import GitBlob, LfsBlob

VECTORS = Path(__file__).parents[2] / "vectors"
NEW = (VECTORS / "repo-format" / "kernels.lock.new.json").read_bytes()
OLD = (VECTORS / "repo-format" / "kernels.lock.old.json").read_bytes()
OURS = (VECTORS / "locks" / "every-kind.lock").read_bytes()
AXPY = RepoId("acme", "axpy")
LABEL = "torch-stable-abi211-cu126-x86_64-linux"


def read(content: bytes) -> PeerLock:
    return parse_peer_lock(content, name="kernels.lock")


def entry(repo: str = "acme/axpy", commit: str = "3" * 40, **wanted: object) -> dict[str, object]:
    return {"dependency": {"repo-id": repo} | wanted, "lock": {"commit": commit}}


def test_the_newer_format_is_read() -> None:
    axpy, base = read(NEW).kernels
    assert (axpy.repo, axpy.wish, axpy.commit, axpy.builds) == (AXPY, ExactVersion(1), "3" * 40, None)
    assert (base.wish, base.commit) == (AtRevision("main"), "4" * 40)


def test_the_older_format_is_read_with_its_digests_and_written_again() -> None:
    (axpy,) = read(OLD).kernels
    assert axpy.wish is None and axpy.builds is not None
    assert list(axpy.builds) == [LABEL]
    written = format_old_peer_lock([(AXPY, axpy.commit, axpy.builds)])
    assert written.decode() == OLD.decode().rstrip("\n")


def test_the_digest_of_the_older_format_is_over_paths_and_raw_ids() -> None:
    (axpy,) = read(OLD).kernels
    assert axpy.builds is not None
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    listing = [
        ("_ops.py", GitBlob("2e65efe2a145dda7ee51d1741299f848e5bf752e")),
        ("_k.abi3.so", LfsBlob(empty)),
        ("__init__.py", GitBlob("e69de29bb2d1d6434b8b29ae775ad8c2e48c5391")),
        ("__pycache__/x.cpython-311.pyc", GitBlob("f" * 40)),
    ]
    assert ListingDigest.of(listing) == axpy.builds[LABEL]
    assert ListingDigest.of(listing[:2]) != axpy.builds[LABEL]


def test_the_ecosystems_parser_reads_what_we_write_and_writes_the_same_bytes() -> None:
    written = format_peer_lock(parse_lock(OURS, name="kernel-hub.lock"))
    theirs = KernelLocks.from_json(written.decode())
    assert [(dep.repo_id, version_of(dep), lock.commit) for dep, lock in theirs.items()] == [
        ("acme/axpy", 2, "3" * 40),
        ("acme/core-ops", 1, "4" * 40),
        ("acme/moe", 0, "5" * 40),
        ("zoo/attn", "main", "6" * 64),
    ]
    assert theirs.to_json() == written.decode()


def version_of(dependency: KernelDependency) -> object:
    match dependency.version:
        case KernelVersion.Version(version=number):
            return number
        case KernelVersion.Revision(revision=revision):
            return revision


def test_our_order_is_the_one_that_the_ecosystem_writes() -> None:
    wishes = [
        ("acme/b", KernelVersion.Version(10), ExactVersion(10)),
        ("acme/b", KernelVersion.Version(9), ExactVersion(9)),
        ("acme/b", KernelVersion.Revision("main"), AtRevision("main")),
        ("acme-x/a", KernelVersion.Version(1), ExactVersion(1)),
        ("acme/a", KernelVersion.Version(2), ExactVersion(2)),
    ]
    theirs = {}
    ours = []
    for index, (repo, version, wish) in enumerate(wishes):
        commit = f"{index:040x}"
        theirs[KernelDependency(repo, version)] = KernelLock(commit)
        ours.append(LockedKernel(RepoId.parse(repo), commit, 0, (wish,), ()))
    assert format_peer_lock(Lock((), tuple(ours))).decode() == KernelLocks(theirs).to_json()


@pytest.mark.parametrize(
    ("value", "location", "problem"),
    [
        ({"a": 1}, "", "not a list"),
        ([1], "kernels[0]", "not an object"),
        ([entry(version=1, revision="main")], "kernels[0].dependency", "exactly one"),
        ([entry()], "kernels[0].dependency", "exactly one"),
        ([entry(version=-1)], "kernels[0].dependency.version", "whole number"),
        ([entry(repo="axpy", version=1)], "kernels[0].dependency.repo-id", "org/name"),
        ([entry(commit="33", version=1)], "kernels[0].lock.commit", "not a commit id"),
        ([entry(version=1), entry(version=1)], "kernels[1]", "twice"),
        ([entry(version=1) | {"extra": 1}], "kernels[0].extra", "unknown key"),
        ([{"repo_id": "acme/axpy", "sha": "3" * 40}], "kernels[0].variants", "missing"),
        (
            [{"repo_id": "acme/axpy", "sha": "3" * 40, "variants": {"torch-cpu": {"hash": "x", "hash_type": "md5"}}}],
            "kernels[0].variants.torch-cpu.hash_type",
            "git_lfs_concat",
        ),
        (
            [
                {
                    "repo_id": "acme/axpy",
                    "sha": "3" * 40,
                    "variants": {"torch-cpu": {"hash": "sha256-12", "hash_type": "git_lfs_concat"}},
                }
            ],
            "kernels[0].variants.torch-cpu.hash",
            "64 hexadecimal digits",
        ),
    ],
)
def test_a_fault_is_refused_and_named(value: object, location: str, problem: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        read(json.dumps(value).encode())
    assert (caught.value.location, problem in caught.value.problem) == (location, True), caught.value


def test_a_requirement_finds_its_entry() -> None:
    locks = read(
        json.dumps([entry(version=1), entry(commit="4" * 40, version=2), entry("zoo/a", revision="main")]).encode()
    )
    found = {
        text: kernel.commit[:1] if (kernel := locks.find(Requirement.parse(text))) else None
        for text in (
            "acme/axpy",
            "acme/axpy@v2",
            "acme/axpy@>1",
            "acme/axpy@v3",
            "acme/axpy@main",
            "zoo/a@main",
            "zoo/a",
        )
    }
    assert found == {
        "acme/axpy": "3",
        "acme/axpy@v2": "4",
        "acme/axpy@>1": "4",
        "acme/axpy@v3": None,
        "acme/axpy@main": None,
        "zoo/a@main": "3",
        "zoo/a": "3",
    }
    assert locks.find(Requirement.parse("acme/axpy", revision="4" * 40)) == locks.kernels[1]
