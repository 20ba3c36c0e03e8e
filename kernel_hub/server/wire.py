"""The Hub's JSON, written from and read into values. Pure.

Members and their meaning are those that the Hub's clients use. Reading is strict: a body that is not what it must be is a
refusal with status 400. Leaves out which request asks for what (see `kernel_hub.server.routes`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from kernel_hub.errors import EntryNotFoundError, InvalidDocumentError
from kernel_hub.model.commit import Commit, StoredFile
from kernel_hub.model.document import JsonObject, load_json
from kernel_hub.model.repo_path import check_file_path
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Refs
from kernel_hub.model.visibility import Visibility

LFS_TYPE = "application/vnd.git-lfs+json"


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a commit."""

    summary: str
    description: str
    parent: str | None


@dataclass(frozen=True, slots=True)
class InlineFile:
    """A file whose bytes stand in the commit."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class LargeFile:
    """A file whose bytes were sent before."""

    path: str
    digest: str
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class DeletedFile:
    path: str


@dataclass(frozen=True, slots=True)
class DeletedFolder:
    path: str


CommitLine: TypeAlias = Header | InlineFile | LargeFile | DeletedFile | DeletedFolder


@dataclass(frozen=True, slots=True)
class Row:
    """One file or folder of a tree listing; `file` is None for a folder."""

    path: str
    id: str
    file: StoredFile | None


def date(time_s: int) -> str:
    """A time as the Hub writes it."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def repo_json(
    repo: RepoId, commit: Commit, visibility: Visibility, *, trusted: bool | None, siblings: bool
) -> dict[str, Any]:
    """What a client asks of a repository at one commit."""
    document: dict[str, Any] = {
        "_id": hashlib.sha256(str(repo).encode()).hexdigest()[:24],
        "id": str(repo),
        "author": repo.namespace,
        "sha": commit.id,
        "lastModified": date(commit.time_s),
        "private": visibility.private,
        "gated": "manual" if visibility.gated else False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
    }
    if trusted is not None:
        document["trustedKernelPublisher"] = trusted
    if siblings:
        document["siblings"] = [{"rfilename": file.path} for file in commit.files]
    return document


def refs_json(refs: Refs, pulls: Mapping[int, str] | None) -> dict[str, Any]:
    """Branches and tags; proposals only if asked for."""

    def rows(folder: str, found: Mapping[str, str]) -> list[dict[str, str]]:
        return [{"name": name, "ref": f"refs/{folder}/{name}", "targetCommit": at} for name, at in found.items()]

    document: dict[str, Any] = {
        "branches": rows("heads", refs.branches),
        "converts": [],
        "tags": rows("tags", refs.tags),
    }
    if pulls is not None:
        document["pullRequests"] = [
            {"name": str(number), "ref": f"refs/pr/{number}", "targetCommit": at} for number, at in pulls.items()
        ]
    return document


def commit_json(commit: Commit, user: str) -> dict[str, Any]:
    """One row of a history."""
    return {
        "id": commit.id,
        "title": commit.message,
        "message": commit.description,
        "authors": [{"user": user}],
        "date": date(commit.time_s),
    }


def tree_rows(commit: Commit, prefix: str, *, recursive: bool) -> list[Row]:
    """Files and folders below `prefix`, sorted by path.

    Raises:
        EntryNotFoundError: If there is no such folder.
    """
    below = commit.below(prefix)
    if prefix and not below:
        raise EntryNotFoundError(f"commit {commit.id[:12]} has no folder {prefix!r}")
    rows = {path: Row(path, id, None) for path, id in _folder_ids(below, prefix).items()}
    rows |= {file.path: Row(file.path, file.tree_id, file) for file in below}
    start = len(prefix) + 1 if prefix else 0
    return [rows[path] for path in sorted(rows) if recursive or "/" not in path[start:]]


def row_json(row: Row, last: Commit | None) -> dict[str, Any]:
    """One row of a listing, with the commit that last changed it if that was asked for."""
    document: dict[str, Any]
    if row.file is None:
        document = {"type": "directory", "oid": row.id, "size": 0, "path": row.path}
    else:
        size_bytes = row.file.blob.size_bytes
        document = {"type": "file", "oid": row.id, "size": size_bytes, "path": row.path}
        if row.file.lfs:
            document["lfs"] = {
                "oid": row.file.blob.digest,
                "size": size_bytes,
                "pointerSize": len(row.file.pointer),
            }
    if last is not None:
        document["lastCommit"] = {"id": last.id, "title": last.message, "date": date(last.time_s)}
    return document


def last_changes(rows: Sequence[Row], history: Iterator[Commit]) -> dict[str, Commit]:
    """For each row the commit of a history, newest first, that gave it its present content."""
    found: dict[str, Commit] = {}
    pending = {row.path: row.id for row in rows}
    for commit in history:
        ids: dict[str, str] = _folder_ids(commit.files, "") | {file.path: file.tree_id for file in commit.files}
        pending = {path: id for path, id in pending.items() if ids.get(path) == id}
        if not pending:
            break
        found |= dict.fromkeys(pending, commit)
    return found


def read_object(body: bytes, name: str) -> JsonObject:
    """A JSON object of a request; the size of bodies is bounded where they are read."""
    return load_json(body, name=name, limit_bytes=len(body))


def read_commit_line(line: bytes, *, number: int) -> CommitLine:
    """Read one line of a commit.

    Raises:
        InvalidDocumentError: Naming the line.
    """
    name = f"line {number} of the commit"
    top = load_json(line, name=name, limit_bytes=len(line))
    key, value = top.text("key"), top.object("value")
    match key:
        case "header":
            description = value.line("description") if value.has("description") else ""
            return Header(value.line("summary"), description, value.optional_text("parentCommit"))
        case "file":
            if value.optional_text("encoding") not in (None, "base64"):
                raise value.fault("encoding", "is not base64")
            return InlineFile(check_file_path(value.text("path"), document=name), _base64(value))
        case "lfsFile":
            if value.optional_text("algo") not in (None, "sha256"):
                raise value.fault("algo", "is not sha256")
            size_bytes = value.size("size") if value.has("size") else None
            return LargeFile(check_file_path(value.text("path"), document=name), read_digest(value, "oid"), size_bytes)
        case "deletedFile":
            return DeletedFile(check_file_path(value.text("path"), document=name))
        case "deletedFolder":
            return DeletedFolder(check_file_path(value.text("path").removesuffix("/"), document=name))
        case _:
            raise top.fault("key", f"{key!r} is not an operation of a commit")


def read_digest(value: JsonObject, key: str) -> str:
    """A SHA-256 in 64 lower-case hexadecimal digits."""
    text = value.text(key)
    if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
        raise value.fault(key, "is not a SHA-256 in lower-case hexadecimal digits")
    return text


def _base64(value: JsonObject) -> bytes:
    try:
        return base64.b64decode(value.line("content"), validate=True)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, InvalidDocumentError):
            raise
        raise value.fault("content", "is not base64") from error


def _folder_ids(files: Sequence[StoredFile], prefix: str) -> dict[str, str]:
    """The git tree id of every folder below `prefix`, by path."""
    children: dict[str, list[tuple[str, bytes]]] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        children.setdefault(folder, []).append((name, b"100644 %s\0" % name.encode() + bytes.fromhex(file.tree_id)))
        while folder and folder != prefix:
            folder = folder.rpartition("/")[0]
            children.setdefault(folder, [])
    ids: dict[str, str] = {}
    for folder in sorted(children, key=lambda path: path.count("/") if path else -1, reverse=True):
        if folder == prefix:
            continue
        # Git sorts a folder among its siblings as if its name ended in '/'.
        content = b"".join(row for _, row in sorted(children[folder], key=lambda child: child[0].encode()))
        id = hashlib.sha1(b"tree %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        ids[folder] = id
        parent, _, name = folder.rpartition("/")
        children[parent].append((f"{name}/", b"40000 %s\0" % name.encode() + bytes.fromhex(id)))
    return ids
