"""The ecosystem's two lock formats, read and written: JSON lists with a commit per kernel (repository format, section d).

The newer one (kernels 0.17.2) names commits only. The older one adds a digest per build over the source's file ids, which
its own loader never compared; `ListingDigest` is that digest, so that it can be.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, assert_never

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.document import JsonObject, load_json_value
from kernel_hub.model.lock import Lock, plain_wish
from kernel_hub.model.requirement import (
    AnyVersion,
    AtRevision,
    ExactVersion,
    RepoId,
    Requirement,
    VersionRange,
    Wish,
)
from kernel_hub.model.source import BlobId

MAX_BYTES = 16 << 20
_OBJECT_ID = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?")
_LISTING_KIND = "git_lfs_concat"
_SRI = re.compile(r"sha256-([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class ListingDigest:
    """The older format's digest of a build: SHA-256 over each file's path and raw id, in order of both."""

    hex: str

    @classmethod
    def of(cls, files: Iterable[tuple[str, BlobId]]) -> ListingDigest:
        """The digest of a listing: paths inside the build with the ids that the source announces.

        Bytecode is left out. An id is the 20 bytes of a git blob's or the 32 bytes of a large file's.
        """
        hasher = hashlib.sha256()
        for path, blob in sorted((path.encode("utf-8"), blob.id) for path, blob in files if not _is_bytecode(path)):
            hasher.update(path)
            hasher.update(bytes.fromhex(blob))
        return cls(hasher.hexdigest())

    def __str__(self) -> str:
        return f"sha256-{self.hex}"


@dataclass(frozen=True, slots=True)
class PeerKernel:
    """One entry.

    Attributes:
        repo: The repository.
        wish: The version or revision that it was locked for; None in the older format, which does not say.
        commit: The commit id.
        builds: Digests by label; None in the newer format, which has none.
    """

    repo: RepoId
    wish: Wish | None
    commit: str
    builds: Mapping[str, ListingDigest] | None = None


@dataclass(frozen=True, slots=True)
class PeerLock:
    """A lock of either format, in the order of the file."""

    kernels: tuple[PeerKernel, ...]

    def find(self, requirement: Requirement) -> PeerKernel | None:
        """The entry for a requirement; without a wish, the first of the repository, as the ecosystem's loader has it."""
        wish = plain_wish(requirement.wish)
        own = [kernel for kernel in self.kernels if kernel.repo == requirement.repo]
        exact = (kernel for kernel in own if kernel.wish == wish)
        return next(exact, None) or next((kernel for kernel in own if _may_answer(kernel, wish)), None)

    def named(self, repo: RepoId) -> tuple[PeerKernel, ...]:
        """Every locked commit of a repository."""
        return tuple(kernel for kernel in self.kernels if kernel.repo == repo)


def parse_peer_lock(content: bytes, *, name: str) -> PeerLock:
    """Read either format.

    Raises:
        InvalidDocumentError: Naming the entry and key at fault.
    """
    value = load_json_value(content, name=name, limit_bytes=MAX_BYTES)
    if not isinstance(value, list):
        raise InvalidDocumentError(name, "is not a list of locked kernels")
    entries = JsonObject({"kernels": value}, name).objects("kernels")
    read = tuple(_old(entry) if entry.has("repo_id") else _new(entry) for entry in entries)
    seen: set[tuple[RepoId, Wish | None]] = set()
    for entry, kernel in zip(entries, read, strict=True):
        if (kernel.repo, kernel.wish) in seen:
            raise entry.fault("", f"locks {kernel.repo} twice")
        seen.add((kernel.repo, kernel.wish))
    return PeerLock(read)


def format_peer_lock(lock: Lock) -> bytes:
    """The newer format: every wish of every locked kernel, in the order and the bytes of the ecosystem's writer.

    A range becomes the version it was locked to, because that format has whole numbers only.
    """
    found: dict[tuple[str, bool, int, str], dict[str, Any]] = {}
    pairs = [(kernel, wish) for kernel in lock.kernels for wish in kernel.wishes]
    # A version that was asked for by number comes before a range that happened to end at the same one.
    for kernel, wish in sorted(pairs, key=lambda pair: not isinstance(pair[1], ExactVersion)):
        revision = wish.revision if isinstance(wish, AtRevision) else None
        number = wish.number if isinstance(wish, ExactVersion) else kernel.version
        wanted = {"version": number} if revision is None else {"revision": revision}
        key = (str(kernel.repo), revision is not None, 0 if revision else number, revision or "")
        entry = {"dependency": {"repo-id": str(kernel.repo)} | wanted, "lock": {"commit": kernel.commit}}
        found.setdefault(key, entry)
    return _json([found[key] for key in sorted(found)])


def format_old_peer_lock(kernels: Iterable[tuple[RepoId, str, Mapping[str, ListingDigest]]]) -> bytes:
    """The older format, of repositories with commits and digests by label."""
    return _json(
        [
            {
                "repo_id": str(repo),
                "sha": commit,
                "variants": {
                    label: {"hash": str(builds[label]), "hash_type": _LISTING_KIND} for label in sorted(builds)
                },
            }
            for repo, commit, builds in sorted(kernels, key=lambda item: str(item[0]))
        ]
    )


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8")


def _may_answer(kernel: PeerKernel, wish: Wish) -> bool:
    match wish:
        case AnyVersion():
            return True
        case ExactVersion():
            return kernel.wish is None
        case VersionRange():
            return kernel.wish is None or (isinstance(kernel.wish, ExactVersion) and kernel.wish.number in wish)
        case AtRevision(revision):
            return revision == kernel.commit
        case _:
            assert_never(wish)


def _new(entry: JsonObject) -> PeerKernel:
    entry.only("dependency", "lock")
    dependency, lock = entry.object("dependency"), entry.object("lock")
    dependency.only("repo-id", "version", "revision")
    # A Nix twin of the format adds the digest of its store path, which says nothing about the repository's files.
    lock.only("commit", "hash")
    if dependency.has("version") == dependency.has("revision"):
        raise dependency.fault("", "needs exactly one of 'version' and 'revision'")
    repo = _repo(dependency, "repo-id")
    wish: Wish
    if dependency.has("version"):
        wish = ExactVersion(dependency.whole("version"))
    else:
        wish = plain_wish(Requirement.parse(str(repo), revision=dependency.text("revision")).wish)
    return PeerKernel(repo, wish, _commit(lock, "commit"))


def _old(entry: JsonObject) -> PeerKernel:
    entry.only("repo_id", "sha", "variants")
    variants = entry.object("variants")
    builds: dict[str, ListingDigest] = {}
    for label in variants.names():
        build = variants.object(label)
        build.only("hash", "hash_type")
        kind = build.text("hash_type")
        if kind != _LISTING_KIND:
            raise build.fault("hash_type", f"{kind!r} is not {_LISTING_KIND!r}")
        found = _SRI.fullmatch(build.text("hash"))
        if not found:
            raise build.fault("hash", "is not of the form 'sha256-<64 hexadecimal digits>'")
        builds[label] = ListingDigest(found[1])
    return PeerKernel(_repo(entry, "repo_id"), None, _commit(entry, "sha"), MappingProxyType(builds))


def _repo(item: JsonObject, key: str) -> RepoId:
    try:
        return RepoId.parse(item.text(key))
    except InvalidDocumentError as error:
        raise item.fault(key, error.problem) from error


def _commit(item: JsonObject, key: str) -> str:
    text = item.text(key)
    if not _OBJECT_ID.fullmatch(text):
        raise item.fault(key, f"{text!r} is not a commit id")
    return text.lower()


def _is_bytecode(path: str) -> bool:
    return "__pycache__" in path.split("/") or path.endswith(".pyc")
