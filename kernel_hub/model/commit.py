"""A commit of a registry: its immutable manifest, the identities of its files, and how one commit follows another.

Identities are git's, so that a listing shows what the Hub's would: a small text file is the SHA-1 of its git blob, a large
or native file is the SHA-256 of its bytes, as in large-file storage. Leaves out where bytes and manifests are kept (see
`kernel_hub.sources.directory`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_hub.errors import EntryNotFoundError, InvalidDocumentError
from kernel_hub.model.document import JsonObject, load_json
from kernel_hub.model.repo_path import check_file_path, check_tree
from kernel_hub.model.requirement import is_commit
from kernel_hub.model.source import FileEntry, GitBlob, LfsBlob

FORMAT = 1
MAX_MANIFEST_BYTES = 256 << 20
LARGE_BYTES = 1 << 20
NATIVE_SUFFIXES = (".so", ".dll", ".dylib", ".pyd", ".bin", ".safetensors")
_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """Bytes that a registry holds.

    Attributes:
        digest: SHA-256 over the bytes, in hexadecimal; also where they are kept.
        git_id: SHA-1 of the bytes as a git blob, in hexadecimal.
        size_bytes: Their length.
    """

    digest: str
    git_id: str
    size_bytes: int

    @classmethod
    def of(cls, content: bytes) -> StoredBlob:
        """The identity of `content`."""
        return cls(hashlib.sha256(content).hexdigest(), git_blob_id(content), len(content))


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a commit.

    Attributes:
        path: Relative to the repository's root.
        blob: Its bytes.
        lfs: Whether listings show it as large-file storage.
    """

    path: str
    blob: StoredBlob
    lfs: bool

    @classmethod
    def of(cls, path: str, blob: StoredBlob, *, lfs: bool = False) -> StoredFile:
        """A file, shown as large-file storage if it came that way, or if it is large or native code."""
        return cls(path, blob, lfs or blob.size_bytes >= LARGE_BYTES or path.lower().endswith(NATIVE_SUFFIXES))

    @property
    def entry(self) -> FileEntry:
        """The file as sources list it."""
        identity = LfsBlob(self.blob.digest) if self.lfs else GitBlob(self.blob.git_id)
        return FileEntry(self.path, self.blob.size_bytes, identity)

    @property
    def pointer(self) -> bytes:
        """The text that git keeps in place of a file in large-file storage."""
        return _POINTER.format(self.blob.digest, self.blob.size_bytes).encode("ascii")

    @property
    def tree_id(self) -> str:
        """The id by which a git tree names the file: of its bytes, or of its pointer."""
        return git_blob_id(self.pointer) if self.lfs else self.blob.git_id


@dataclass(frozen=True, slots=True)
class Commit:
    """One immutable state of a repository.

    Attributes:
        id: 40 hexadecimal digits over the manifest, or the id that it has upstream.
        parents: The commits it follows.
        message: First line.
        description: The rest of the message.
        time_s: When it was made, in seconds of Unix time.
        files: In order of their paths' UTF-8 bytes.
        upstream: Whether `id` was given by another registry instead of derived.
    """

    id: str
    parents: tuple[str, ...]
    message: str
    description: str
    time_s: int
    files: tuple[StoredFile, ...]
    upstream: bool = False

    @classmethod
    def make(
        cls,
        files: Sequence[StoredFile],
        *,
        parents: Sequence[str],
        message: str,
        time_s: int,
        description: str = "",
        upstream_id: str | None = None,
    ) -> Commit:
        """A commit of `files`, with the id that follows from everything in it, or the one it has upstream.

        Raises:
            InvalidDocumentError: If a path is not acceptable or stands twice, or an id is none.
        """
        for file in files:
            check_file_path(file.path, document="commit")
        try:
            f"{message}{description}".encode()
        except UnicodeEncodeError as error:
            raise InvalidDocumentError("commit", "the message is not Unicode text") from error
        by_path = {file.path: file for file in files}
        if len(by_path) != len(files):
            raise InvalidDocumentError("commit", "a path stands twice")
        check_tree(by_path)
        for commit in (*parents, *([upstream_id] if upstream_id is not None else [])):
            if not is_commit(commit):
                raise InvalidDocumentError("commit", f"{commit!r} is not a commit id")
        ordered = tuple(by_path[path] for path in sorted(by_path, key=lambda path: path.encode("utf-8")))
        body = _body(ordered, tuple(parents), message, description, time_s)
        return cls(
            upstream_id or _derived_id(body),
            tuple(parents),
            message,
            description,
            time_s,
            ordered,
            upstream=upstream_id is not None,
        )

    @classmethod
    def parse(cls, content: bytes, *, id: str, name: str) -> Commit:
        """Read a manifest.

        Args:
            content: The manifest's bytes.
            id: The id under which it was found.
            name: What to call it in errors.

        Raises:
            InvalidDocumentError: If it is no manifest of this format, or not the one that `id` names.
        """
        top = load_json(content, name=name, limit_bytes=MAX_MANIFEST_BYTES)
        version = top.whole("format")
        if version != FORMAT:
            raise InvalidDocumentError(
                name, f"{version} is not {FORMAT}", location="format", hint="read it with a newer kernel_hub"
            )
        upstream_id = top.optional_text("upstream")
        read = cls.make(
            [_file(item) for item in top.objects("files")],
            parents=top.texts("parents"),
            message=top.line("message"),
            description=top.line("description"),
            time_s=top.whole("time"),
            upstream_id=upstream_id,
        )
        if read.id != id:
            raise InvalidDocumentError(
                name, f"its content belongs to commit {read.id}", hint="restore it from a mirror"
            )
        return read

    def format(self) -> bytes:
        """The manifest's bytes, the inverse of `parse`."""
        body = _body(self.files, self.parents, self.message, self.description, self.time_s)
        return canonical(body | {"upstream": self.id} if self.upstream else body)

    def file(self, path: str) -> StoredFile | None:
        """The file at `path`, or None."""
        return next((file for file in self.files if file.path == path), None)

    def below(self, prefix: str) -> tuple[StoredFile, ...]:
        """Every file below the folder `prefix` ("" for all)."""
        return self.files if prefix == "" else tuple(file for file in self.files if file.path.startswith(f"{prefix}/"))

    def changed(self, additions: Sequence[StoredFile], deletions: Sequence[str]) -> tuple[StoredFile, ...]:
        """The files after some were deleted and others added; an addition wins over a deletion of the same path.

        Raises:
            EntryNotFoundError: If a path to delete is not there.
        """
        files = {file.path: file for file in self.files}
        for path in deletions:
            if files.pop(path, None) is None:
                raise EntryNotFoundError(f"commit {self.id[:12]} has no file {path!r} to delete")
        files |= {file.path: file for file in additions}
        return tuple(files.values())


def git_blob_id(content: bytes) -> str:
    """SHA-1 of `content` as a git blob, in hexadecimal."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def canonical(value: Mapping[str, Any]) -> bytes:
    """The one JSON text of a value: UTF-8, keys sorted, no spaces."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _body(
    files: Sequence[StoredFile], parents: tuple[str, ...], message: str, description: str, time_s: int
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "parents": list(parents),
        "message": message,
        "description": description,
        "time": time_s,
        "files": [
            {
                "path": file.path,
                "size": file.blob.size_bytes,
                "sha256": file.blob.digest,
                "git": file.blob.git_id,
                "lfs": file.lfs,
            }
            for file in files
        ],
    }


def _derived_id(body: Mapping[str, Any]) -> str:
    # Clients take 40 digits for a commit id; SHA-256 cut to that length is harder to collide than SHA-1.
    return hashlib.sha256(b"kernel_hub commit\0" + canonical(body)).hexdigest()[:40]


def _file(item: JsonObject) -> StoredFile:
    digest, git_id = item.text("sha256"), item.text("git")
    if len(digest) != 64 or len(git_id) != 40 or not set(digest + git_id) <= set("0123456789abcdef"):
        raise item.fault("", "has no SHA-256 and git id in lower-case hexadecimal digits")
    return StoredFile(item.text("path"), StoredBlob(digest, git_id, item.size("size")), item.flag("lfs"))
