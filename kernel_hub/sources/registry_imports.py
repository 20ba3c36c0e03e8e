"""Commits of other registries in a registry folder, under the ids that they have there.

A mirror holds as much of a commit as was asked for, and may be asked for more of it later: an upstream commit grows, and
never changes what it holds. Leaves out where the files come from (see `kernel_hub.locking.mirror`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel_hub.errors import BlobMismatchError, ConflictError, RevisionNotFoundError
from kernel_hub.model.commit import Commit, StoredFile
from kernel_hub.model.repo_path import check_ref_name
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.registry_reader import RegistryReader
from kernel_hub.sources.registry_store import RefKind


class RegistryImports(RegistryReader):
    """A registry folder that takes in commits of other registries."""

    def import_commit(
        self,
        repo: RepoId,
        commit_id: str,
        files: Sequence[StoredFile],
        *,
        parents: Sequence[str] = (),
        message: str,
        description: str = "",
        time_s: int,
    ) -> None:
        """Store a commit of another registry under the id it has there; move a branch to it with `move_branch`.

        Raises:
            ConflictError: If that id is here with other content.
        """
        mirrored = Commit.make(
            files,
            parents=parents,
            message=message,
            description=description,
            time_s=time_s,
            upstream_id=commit_id,
        )
        with self._reaching(), self._store.writing(repo):
            self._need_blobs(mirrored.files)
            if self._store.has_commit(repo, commit_id):
                if self._store.commit(repo, commit_id).files != mirrored.files:
                    raise ConflictError(f"{repo} has a commit {commit_id} with other files")
                return
            self._store.write_commit(repo, mirrored)
            self._store.set_reference(repo, RefKind.IMPORT, commit_id, commit_id)

    def widen_commit(
        self, repo: RepoId, commit_id: str, files: Sequence[StoredFile], *, message: str, time_s: int
    ) -> bool:
        """As `import_commit`, but a commit that is here already gets the files that it lacks; False if it lacks none.

        Raises:
            ConflictError: If that id is here with another file of the same path, or is not of another registry.
        """
        with self._reaching(), self._store.writing(repo):
            self._need_blobs(files)
            known = self._store.commit(repo, commit_id) if self._store.has_commit(repo, commit_id) else None
            if known is not None and not known.upstream:
                raise ConflictError(f"{repo} has a commit {commit_id} of its own")
            held = {file.path: file for file in known.files} if known is not None else {}
            other = next((file.path for file in files if held.get(file.path, file) != file), None)
            if other is not None:
                raise ConflictError(f"{repo} has a commit {commit_id} with another {other}")
            union = held | {file.path: file for file in files}
            if known is not None and len(union) == len(held):
                return False
            wider = Commit.make(
                tuple(union.values()), parents=(), message=message, time_s=time_s, upstream_id=commit_id
            )
            self._store.replace_commit(repo, wider)
            self._store.set_reference(repo, RefKind.IMPORT, commit_id, commit_id)
            return True

    def point_branch(self, repo: RepoId, branch: str, commit: str) -> None:
        """Point a branch of a mirror at a commit, wherever it pointed before.

        Raises:
            RevisionNotFoundError: If the commit is not here.
        """
        check_ref_name(branch)
        with self._reaching(), self._store.writing(repo):
            if not self._store.has_commit(repo, commit):
                raise RevisionNotFoundError(f"{repo} has no commit {commit!r}")
            self._store.set_reference(repo, RefKind.HEAD, branch, commit)

    def _need_blobs(self, files: Sequence[StoredFile]) -> None:
        for file in files:
            if not self._store.blobs.has(file.blob.digest, file.blob.size_bytes):
                raise BlobMismatchError(
                    f"the bytes of {file.path!r} ({file.blob.digest}) are not in the registry", hint="upload them again"
                )
