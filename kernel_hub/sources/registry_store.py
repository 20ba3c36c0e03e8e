"""How a registry lies in a folder: blobs by digest, one immutable manifest per commit, references as small files.

    registry.json                          format marker
    publishers.json                        what the registry says of namespaces (optional)
    blobs/<2 digits>/<62 digits>           bytes by SHA-256
    repos/<namespace>/<name>/repo.json     visibility
                            /commits/<id>.json
                            /heads|tags|pulls|imports/<reference>, holding a commit id
    scratch/                               files that are still growing
    locks/                                 one lock per repository, and one that keeps sweeping and committing apart

Readers take no lock: every file is replaced atomically, and a reference is moved only after everything it leads to is on
the disk. Leaves out what a commit or a branch may be (see `kernel_hub.sources.directory`).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from kernel_hub.errors import InvalidDocumentError, RepositoryNotFoundError, RevisionNotFoundError
from kernel_hub.model.commit import MAX_MANIFEST_BYTES, Commit, canonical
from kernel_hub.model.document import load_json
from kernel_hub.model.repo_path import is_ref_name
from kernel_hub.model.requirement import RepoId, is_commit
from kernel_hub.model.visibility import Visibility
from kernel_hub.sources.blobs import Blobs, Swept, is_older
from kernel_hub.sources.durable import file_name, locked, name_of_file, new_name, write_whole

MARKER = "registry.json"
FORMAT_NAME = "kernel_hub registry"
FORMAT_VERSION = 1
_MAX_MARKER_BYTES = 1 << 16
_MAX_PUBLISHERS_BYTES = 1 << 24
_MAX_REF_BYTES = 128
# Manifests do not change, but holding all of them in memory would let a large registry grow without bound.
_CACHED_COMMITS = 32


class RefKind(StrEnum):
    """The kinds of references; the value is their folder."""

    HEAD = "heads"
    TAG = "tags"
    PULL = "pulls"
    IMPORT = "imports"


class RegistryStore:
    """The files of one registry. `create` and `open` are the ways to get one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scratch = root / "scratch"
        self.blobs = Blobs(root / "blobs", self.scratch)
        self._commits: dict[Path, tuple[tuple[int, int, int], Commit]] = {}

    @classmethod
    def create(cls, root: Path) -> RegistryStore:
        """Lay out a new registry in an absent or empty folder; open it if it is one already."""
        if (root / MARKER).exists():
            return cls.open(root)
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise InvalidDocumentError(str(root), "is not empty, and is no registry", hint="name a new or empty folder")
        for folder in ("blobs", "repos", "scratch", "locks"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        # The marker comes last, so that a half made folder is never taken for a registry.
        marker = canonical({"format": FORMAT_NAME, "version": FORMAT_VERSION})
        write_whole(root / MARKER, marker, scratch=root / "scratch")
        return cls(root)

    @classmethod
    def open(cls, root: Path) -> RegistryStore:
        """The registry in a folder.

        Raises:
            InvalidDocumentError: If the folder is no registry, or one of a newer format.
        """
        try:
            content = (root / MARKER).read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InvalidDocumentError(
                str(root), f"is no registry: it has no {MARKER}", hint="create one, or name the folder that holds it"
            ) from error
        marker = load_json(content, name=str(root / MARKER), limit_bytes=_MAX_MARKER_BYTES)
        if marker.text("format") != FORMAT_NAME:
            raise marker.fault("format", f"is not {FORMAT_NAME!r}")
        version = marker.whole("version")
        if version != FORMAT_VERSION:
            raise InvalidDocumentError(
                str(root / MARKER),
                f"{version} is not a format that this release reads (it reads {FORMAT_VERSION})",
                location="version",
                hint="use a newer kernel_hub",
            )
        return cls(root)

    def repos(self) -> tuple[RepoId, ...]:
        """Every repository, sorted."""
        found = []
        for namespace in (self.root / "repos").iterdir():
            found += [RepoId(name_of_file(namespace.name), name_of_file(folder.name)) for folder in namespace.iterdir()]
        return tuple(sorted(found))

    def has_repo(self, repo: RepoId) -> bool:
        return self._folder(repo).is_dir()

    def visibility(self, repo: RepoId) -> Visibility:
        path = self._existing(repo) / "repo.json"
        settings = load_json(path.read_bytes(), name=str(path), limit_bytes=_MAX_MARKER_BYTES)
        return Visibility(private=settings.flag("private"), gated=settings.flag("gated"))

    def add_repo(self, repo: RepoId, first: Commit, visibility: Visibility) -> bool:
        """Make a repository whose branch `main` is at `first`; False if there is one already."""
        growing = self.scratch / new_name()
        for folder in ("commits", *(kind.value for kind in RefKind)):
            (growing / folder).mkdir(parents=True)
        settings = canonical({"private": visibility.private, "gated": visibility.gated})
        write_whole(growing / "repo.json", settings, scratch=self.scratch)
        write_whole(growing / "commits" / f"{first.id}.json", first.format(), scratch=self.scratch)
        write_whole(growing / RefKind.HEAD.value / "main", first.id.encode("ascii"), scratch=self.scratch)
        self._folder(repo).parent.mkdir(exist_ok=True)
        try:
            with self.writing(repo):
                if self.has_repo(repo):
                    return False
                growing.rename(self._folder(repo))
        finally:
            shutil.rmtree(growing, ignore_errors=True)
        return True

    def remove_repo(self, repo: RepoId) -> None:
        """Remove a repository at once for every reader; its blobs stay until the next sweep."""
        leaving = self.scratch / new_name()
        with self.writing(repo):
            self._existing(repo).rename(leaving)
        shutil.rmtree(leaving)

    def commit(self, repo: RepoId, commit: str) -> Commit:
        """Read a manifest.

        Raises:
            RevisionNotFoundError: If the repository has no such commit.
            InvalidDocumentError: If the manifest is damaged.
        """
        path = self._existing(repo) / "commits" / f"{commit}.json"
        try:
            found = path.stat()
            # An upstream id may come back with other content after its repository was made anew.
            state = (found.st_mtime_ns, found.st_ino, found.st_size)
            known = self._commits.get(path)
            if known is not None and known[0] == state:
                return known[1]
            if found.st_size > MAX_MANIFEST_BYTES:
                raise InvalidDocumentError(str(path), f"is longer than {MAX_MANIFEST_BYTES} bytes")
            read = Commit.parse(path.read_bytes(), id=commit, name=str(path))
        except FileNotFoundError:
            raise RevisionNotFoundError(f"{repo} has no commit {commit}") from None
        if len(self._commits) >= _CACHED_COMMITS:
            self._commits.clear()
        self._commits[path] = (state, read)
        return read

    def has_commit(self, repo: RepoId, commit: str) -> bool:
        return is_commit(commit) and (self._existing(repo) / "commits" / f"{commit}.json").exists()

    def write_commit(self, repo: RepoId, commit: Commit) -> None:
        path = self._existing(repo) / "commits" / f"{commit.id}.json"
        if not path.exists():
            write_whole(path, commit.format(), scratch=self.scratch)

    def replace_commit(self, repo: RepoId, commit: Commit) -> None:
        """Put a manifest in the place of one with the same id; the caller holds the repository's lock."""
        path = self._existing(repo) / "commits" / f"{commit.id}.json"
        write_whole(path, commit.format(), scratch=self.scratch)

    def references(self, repo: RepoId, kind: RefKind) -> dict[str, str]:
        """Names and commits of one kind of reference, sorted by name."""
        folder = self._existing(repo) / kind.value
        found = {}
        for path in folder.iterdir():
            # A reference may be deleted between listing and reading.
            with contextlib.suppress(FileNotFoundError):
                found[name_of_file(path.name)] = _read_reference(path)
        return dict(sorted(found.items()))

    def reference(self, repo: RepoId, kind: RefKind, name: str) -> str | None:
        """The commit of a reference, or None; a name that no reference can have is asked of no file."""
        if not is_ref_name(name):
            return None
        try:
            return _read_reference(self._existing(repo) / kind.value / file_name(name))
        except FileNotFoundError:
            return None

    def set_reference(self, repo: RepoId, kind: RefKind, name: str, commit: str) -> None:
        """Point a reference at a commit; the caller holds the repository's lock."""
        path = self._existing(repo) / kind.value / file_name(name)
        write_whole(path, commit.encode("ascii"), scratch=self.scratch)

    def remove_reference(self, repo: RepoId, kind: RefKind, name: str) -> None:
        """Remove a reference; the caller holds the repository's lock."""
        (self._existing(repo) / kind.value / file_name(name)).unlink()

    @contextlib.contextmanager
    def writing(self, repo: RepoId) -> Iterator[None]:
        """Be the only writer of a repository, while nothing is swept away."""
        locks = self.root / "locks"
        # A repository's name holds no '--', so this name is its own.
        own = file_name(f"{repo.namespace}--{repo.name}.lock")
        with locked(locks / "sweep.lock", shared=True), locked(locks / own):
            yield

    def publishers(self) -> dict[str, bool]:
        """What the registry says of namespaces."""
        path = self.root / "publishers.json"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return {}
        stated = load_json(content, name=str(path), limit_bytes=_MAX_PUBLISHERS_BYTES).object("trusted")
        return {namespace: stated.flag(namespace) for namespace in stated.names()}

    def set_publisher(self, namespace: str, trusted: bool | None) -> None:
        """Say whether a namespace is trusted; None says nothing of it any more."""
        with locked(self.root / "locks" / "publishers.lock"):
            stated = self.publishers()
            stated.pop(namespace, None)
            if trusted is not None:
                stated[namespace] = trusted
            write_whole(self.root / "publishers.json", canonical({"trusted": stated}), scratch=self.scratch)

    def sweep(self, *, grace_s: float) -> Swept:
        """Remove what no reference leads to and nothing touched for `grace_s`."""
        with locked(self.root / "locks" / "sweep.lock"):
            in_use: set[str] = set()
            commits = 0
            for repo in self.repos():
                reachable = self._reachable(repo)
                for path in sorted((self._folder(repo) / "commits").iterdir()):
                    if path.stem not in reachable and is_older(path.stat().st_mtime, grace_s):
                        path.unlink()
                        commits += 1
                    else:
                        in_use |= {file.blob.digest for file in self.commit(repo, path.stem).files}
            blobs, freed_bytes = self.blobs.sweep(in_use, grace_s=grace_s)
            return Swept(commits, blobs, self._sweep_scratch(grace_s), freed_bytes)

    def _sweep_scratch(self, grace_s: float) -> int:
        removed = 0
        for path in sorted(self.scratch.iterdir()):
            if is_older(path.stat().st_mtime, grace_s):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
                removed += 1
        return removed

    def _reachable(self, repo: RepoId) -> set[str]:
        pending = [commit for kind in RefKind for commit in self.references(repo, kind).values()]
        found: set[str] = set()
        while pending:
            commit = pending.pop()
            # A mirrored commit may name parents that were not mirrored.
            if commit not in found and self.has_commit(repo, commit):
                found.add(commit)
                pending += self.commit(repo, commit).parents
        return found

    def _folder(self, repo: RepoId) -> Path:
        return self.root / "repos" / file_name(repo.namespace) / file_name(repo.name)

    def _existing(self, repo: RepoId) -> Path:
        folder = self._folder(repo)
        if not folder.is_dir():
            raise RepositoryNotFoundError(f"{self.root} has no repository {repo}")
        return folder


def _read_reference(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(_MAX_REF_BYTES)
    commit = content.decode("ascii", errors="replace").strip()
    if not is_commit(commit):
        raise InvalidDocumentError(str(path), "holds no commit id", hint="restore it from a mirror")
    return commit
