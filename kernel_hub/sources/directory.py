"""A registry in a folder, as a source and a sink: the same repositories, branches and commits as on the Hub, on a disk.

Readers never wait. A writer moves a branch only if its head is still the one the writer saw. Leaves out the layout of the
folder (see `kernel_hub.sources.registry_store`) and every network (see `kernel_hub.server`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kernel_hub.errors import ConflictError, InvalidDocumentError, RevisionNotFoundError
from kernel_hub.model.commit import Commit, StoredBlob, StoredFile
from kernel_hub.model.repo_path import check_file_path, check_ref_name
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, Proposal
from kernel_hub.model.visibility import Visibility
from kernel_hub.sources.blobs import Incoming, Swept
from kernel_hub.sources.durable import reaching
from kernel_hub.sources.registry_imports import RegistryImports
from kernel_hub.sources.registry_store import RefKind, RegistryStore

MAIN = "main"
SWEEP_GRACE_S = 3600.0


class DirectoryRegistry(RegistryImports):
    """A registry folder; both a `Source` and a `Sink`. `create` and `open` are the ways to get one.

    Args:
        store: The folder's files.
        clock_s: The time that new commits carry, in seconds of Unix time.
    """

    def __init__(self, store: RegistryStore, *, clock_s: Callable[[], int] | None = None) -> None:
        super().__init__(store)
        self._clock_s = clock_s or _now_s

    @classmethod
    def create(cls, path: Path | str, *, clock_s: Callable[[], int] | None = None) -> DirectoryRegistry:
        """A new registry in an absent or empty folder, or the one that is there.

        Raises:
            InvalidDocumentError: If the folder holds something else.
            SourceUnavailableError: If it cannot be written.
        """
        with reaching(Path(path)):
            return cls(RegistryStore.create(Path(path)), clock_s=clock_s)

    @classmethod
    def open(cls, path: Path | str, *, clock_s: Callable[[], int] | None = None) -> DirectoryRegistry:
        """The registry in a folder.

        Raises:
            InvalidDocumentError: If the folder is no registry, or one of a newer format.
        """
        with reaching(Path(path)):
            return cls(RegistryStore.open(Path(path)), clock_s=clock_s)

    def set_publisher(self, namespace: str, trusted: bool | None) -> None:
        """State whether a namespace is trusted; None states nothing of it."""
        with self._reaching():
            self._store.set_publisher(RepoId.parse(f"{namespace}/any").namespace, trusted)

    def create_repo(self, repo: RepoId, *, private: bool = False) -> None:
        self.add_repo(repo, Visibility(private=private))

    def add_repo(self, repo: RepoId, visibility: Visibility) -> bool:
        """Create a repository with an empty branch `main`; False if it is there already."""
        RepoId.parse(str(repo))
        first = Commit.make((), parents=(), message="Create the repository", time_s=self._clock_s())
        with self._reaching():
            return self._store.add_repo(repo, first, visibility)

    def delete_repo(self, repo: RepoId) -> None:
        """Remove a repository."""
        with self._reaching():
            self._store.remove_repo(repo)

    def create_branch(self, repo: RepoId, branch: str, *, start: str | None = None) -> str:
        self.add_branch(repo, branch, start=start)
        return self.commit_of(repo, f"refs/heads/{branch}")

    def add_branch(self, repo: RepoId, branch: str, *, start: str | None = None) -> bool:
        """Create a branch at `start` (default: `main`'s head); False if it is there already, wherever it is."""
        check_ref_name(branch)
        target = self.commit_of(repo, MAIN if start is None else start)
        with self._reaching(), self._store.writing(repo):
            if self._store.reference(repo, RefKind.HEAD, branch) is not None:
                return False
            self._store.set_reference(repo, RefKind.HEAD, branch, target)
            return True

    def move_branch(self, repo: RepoId, branch: str, commit: str, *, expected: str | None) -> None:
        """Point a branch at a commit, if its head is still `expected` (None: if there is no such branch).

        Raises:
            ConflictError: If it is not.
        """
        check_ref_name(branch)
        with self._reaching(), self._store.writing(repo):
            if not self._store.has_commit(repo, commit):
                raise RevisionNotFoundError(f"{repo} has no commit {commit!r}")
            if self._store.reference(repo, RefKind.HEAD, branch) != expected:
                raise ConflictError(f"branch {branch!r} of {repo} was moved by someone else")
            self._store.set_reference(repo, RefKind.HEAD, branch, commit)

    def create_tag(self, repo: RepoId, tag: str, *, revision: str = MAIN) -> str:
        """Name a commit for good.

        Raises:
            ConflictError: If the tag exists.
        """
        check_ref_name(tag, document="tag")
        target = self.commit_of(repo, revision)
        with self._reaching(), self._store.writing(repo):
            if self._store.reference(repo, RefKind.TAG, tag) is not None:
                raise ConflictError(f"{repo} has a tag {tag!r} already")
            self._store.set_reference(repo, RefKind.TAG, tag, target)
        return target

    def delete_branch(self, repo: RepoId, branch: str) -> None:
        """Remove a branch; its commits stay until the next sweep."""
        if branch == MAIN:
            raise InvalidDocumentError("branch", f"{MAIN!r} cannot be deleted")
        self._remove(repo, RefKind.HEAD, branch)

    def delete_tag(self, repo: RepoId, tag: str) -> None:
        """Remove a tag."""
        self._remove(repo, RefKind.TAG, tag)

    @property
    def scratch(self) -> Path:
        """A folder for files that are still growing; what a crash leaves there, `gc` removes."""
        return self._store.scratch

    def store(self, content: bytes | Path) -> StoredBlob:
        """Keep bytes, so that a commit may name them."""
        with self._reaching():
            return self._store.blobs.put(content)

    def receive(self, size_bytes: int) -> Incoming:
        """Start to keep bytes that arrive piece by piece; the caller closes the result."""
        with self._reaching():
            return self._store.blobs.receive(size_bytes)

    def stored(self, digest: str, size_bytes: int | None = None) -> StoredBlob | None:
        """The blob with this SHA-256 (64 hexadecimal digits) and length, if it is here; it counts as new for `gc`."""
        with self._reaching():
            return self._store.blobs.find(digest, size_bytes)

    def commit(
        self,
        repo: RepoId,
        branch: str,
        *,
        parent: str,
        additions: Sequence[Addition],
        deletions: Sequence[str],
        message: str,
    ) -> str:
        for addition in additions:
            check_file_path(addition.path, document="commit")
        self.load(repo, parent)
        files = [StoredFile.of(addition.path, self.store(addition.content)) for addition in additions]
        return self.commit_files(repo, branch, parent=parent, files=files, deletions=deletions, message=message)

    def commit_files(
        self,
        repo: RepoId,
        branch: str,
        *,
        parent: str | None,
        files: Sequence[StoredFile],
        deletions: Sequence[str],
        message: str,
        description: str = "",
    ) -> str:
        """Like `commit`, with bytes that are stored already; parent None takes the head as it is.

        A commit that changes nothing is not made; the head is returned.
        """
        with self._reaching(), self._store.writing(repo):
            head = self._store.reference(repo, RefKind.HEAD, branch)
            if head is None:
                raise RevisionNotFoundError(f"{repo} has no branch {branch!r}")
            if parent is not None and head != parent:
                raise ConflictError(
                    f"branch {branch!r} of {repo} is at {head[:12]}, not at {parent[:12]}",
                    hint="read it again and retry",
                )
            following = self._following(repo, head, files, deletions, message, description)
            if following is None:
                return head
            self._store.write_commit(repo, following)
            self._store.set_reference(repo, RefKind.HEAD, branch, following.id)
            return following.id

    def propose(
        self,
        repo: RepoId,
        branch: str,
        *,
        parent: str,
        additions: Sequence[Addition],
        deletions: Sequence[str],
        message: str,
    ) -> Proposal:
        for addition in additions:
            check_file_path(addition.path, document="commit")
        self.commit_of(repo, f"refs/heads/{branch}")
        self.load(repo, parent)
        files = [StoredFile.of(addition.path, self.store(addition.content)) for addition in additions]
        number, commit = self.propose_files(repo, parent, files=files, deletions=deletions, message=message)
        return Proposal(number, commit)

    def propose_files(
        self,
        repo: RepoId,
        revision: str,
        *,
        files: Sequence[StoredFile],
        deletions: Sequence[str],
        message: str,
        description: str = "",
    ) -> tuple[int, str]:
        """Commit on top of `revision` without moving a branch; the number and commit of the proposal."""
        start = self.commit_of(repo, revision)
        with self._reaching(), self._store.writing(repo):
            following = self._following(repo, start, files, deletions, message, description)
            taken = self._store.references(repo, RefKind.PULL)
            number = max((int(name) for name in taken), default=0) + 1
            if following is not None:
                self._store.write_commit(repo, following)
            commit = start if following is None else following.id
            self._store.set_reference(repo, RefKind.PULL, str(number), commit)
            return number, commit

    def gc(self, *, grace_s: float = SWEEP_GRACE_S) -> Swept:
        """Remove commits that no reference leads to, blobs that no commit names, and what crashed writers left.

        Args:
            grace_s: What was touched more recently stays, because an upload may be about to commit it.
        """
        with self._reaching():
            return self._store.sweep(grace_s=grace_s)

    def _following(
        self,
        repo: RepoId,
        head: str,
        files: Sequence[StoredFile],
        deletions: Sequence[str],
        message: str,
        description: str,
    ) -> Commit | None:
        self._need_blobs(files)
        before = self._store.commit(repo, head)
        following = Commit.make(
            before.changed(files, deletions),
            parents=(head,),
            message=message,
            description=description,
            time_s=self._clock_s(),
        )
        return None if following.files == before.files else following

    def _remove(self, repo: RepoId, kind: RefKind, name: str) -> None:
        with self._reaching(), self._store.writing(repo):
            if self._store.reference(repo, kind, name) is None:
                raise RevisionNotFoundError(f"{repo} has no {kind.value[:-1]} {name!r}")
            self._store.remove_reference(repo, kind, name)


def _now_s() -> int:
    return int(time.time())
