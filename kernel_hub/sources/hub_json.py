"""The Hub's JSON answers as values: references, listings, revisions, organizations.

Pure. Every path, commit id and file identity from a server is checked here, before anything is done with it. Leaves out
the requests (see `kernel_hub.sources.hub_http`) and what a refusal means (see `kernel_hub.sources.hub_refusal`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel_hub.errors import InvalidDocumentError, UnsafePathError
from kernel_hub.model.document import JsonObject, load_json, load_json_value
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.repo_path import check_file_path, check_ref_name, check_tree
from kernel_hub.model.requirement import is_commit
from kernel_hub.model.source import BlobId, FileEntry, GitBlob, LfsBlob, PublisherStanding, Refs

MAX_DOCUMENT_BYTES = 32 << 20
MAX_FILES = 200_000

_GIT_ID = Pattern(r"[0-9a-f]{40}")
_LFS_ID = Pattern(r"[0-9a-f]{64}")


def refs_of(content: bytes, url: str) -> Refs:
    """Read the answer to a references request.

    Names that no reference of a kernel can have (pull requests, exotic characters) are left out, because nobody can ask
    for them.
    """
    top = load_json(content, name=url, limit_bytes=MAX_DOCUMENT_BYTES)
    return Refs(_targets(top, "branches"), _targets(top, "tags"))


def commit_of(content: bytes, url: str) -> str:
    """Read the commit id from the answer to a revision request."""
    top = load_json(content, name=url, limit_bytes=MAX_DOCUMENT_BYTES)
    commit = top.text("sha")
    if not is_commit(commit):
        raise top.fault("sha", f"{commit!r} is not a commit id")
    return commit


def standing_of(content: bytes, url: str) -> PublisherStanding:
    """Read whether an organization is a trusted publisher."""
    top = load_json(content, name=url, limit_bytes=MAX_DOCUMENT_BYTES)
    if not top.has("trustedKernelPublisher"):
        return PublisherStanding(False, "the organization is not marked as a trusted publisher of kernels")
    if top.flag("trustedKernelPublisher"):
        return PublisherStanding(True, "so the source says of the organization")
    return PublisherStanding(False, "the source says so of the organization")


def page_of(content: bytes, url: str) -> tuple[FileEntry, ...]:
    """Read one page of a listing; folders are left out.

    Raises:
        UnsafePathError: If a path is not one that may be written on a disk.
        InvalidDocumentError: If anything else is outside the protocol.
    """
    rows = load_json_value(content, name=url, limit_bytes=MAX_DOCUMENT_BYTES)
    if not isinstance(rows, list):
        raise InvalidDocumentError(url, "is not a list of files")
    found = []
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise InvalidDocumentError(url, "is not an object", location=f"[{index}]")
        item = JsonObject(row, url, f"[{index}]")
        if item.text("type") == "file":
            found.append(_entry(item))
    return tuple(found)


def commits_of(content: bytes, url: str) -> tuple[str, ...]:
    """Read the commit ids of one page of a history."""
    rows = load_json_value(content, name=url, limit_bytes=MAX_DOCUMENT_BYTES)
    commits = JsonObject({"commits": rows}, url).objects("commits")
    ids = tuple(item.text("id") for item in commits)
    if not all(map(is_commit, ids)):
        raise InvalidDocumentError(url, "names a commit by something that is not a commit id")
    return ids


def listing_of(entries: Sequence[FileEntry], prefix: str, url: str) -> tuple[FileEntry, ...]:
    """Check the pages of a listing together: within `prefix`, no path twice, none both file and folder; sorted.

    Raises:
        InvalidDocumentError: If they are no listing of one folder.
    """
    by_path = {entry.path: entry for entry in entries}
    if len(by_path) != len(entries):
        raise InvalidDocumentError(url, "lists a path twice")
    outside = next((path for path in by_path if prefix and not path.startswith(f"{prefix}/")), None)
    if outside is not None:
        raise InvalidDocumentError(url, f"lists {outside!r}, which is not below {prefix!r}")
    check_tree(by_path, document=url)
    return tuple(by_path[path] for path in sorted(by_path))


def check_path(path: str, document: str) -> str:
    """A path that a server named, unchanged.

    Raises:
        UnsafePathError: If it could lead anywhere but below the folder it is meant for.
    """
    try:
        return check_file_path(path, document=document)
    except InvalidDocumentError as error:
        raise UnsafePathError(
            error.message, hint="the listing is not one of an honest server; nothing was written"
        ) from error


def blob_of(kind: str, id: str) -> BlobId | None:
    """A file identity by its kind (`git` or `lfs`) and digits; None if there is no such identity."""
    if kind == "git" and _GIT_ID.fullmatch(id):
        return GitBlob(id)
    if kind == "lfs" and _LFS_ID.fullmatch(id):
        return LfsBlob(id)
    return None


def _targets(top: JsonObject, key: str) -> dict[str, str]:
    found = {}
    for item in top.objects(key, default=()):
        name, commit = item.text("name"), item.text("targetCommit")
        if not is_commit(commit):
            raise item.fault("targetCommit", f"{commit!r} is not a commit id")
        if _is_ref_name(name):
            found[name] = commit
    return found


def _is_ref_name(name: str) -> bool:
    try:
        check_ref_name(name)
    except InvalidDocumentError:
        return False
    return True


def _entry(item: JsonObject) -> FileEntry:
    path = check_path(item.text("path"), "listing")
    lfs = item.optional_object("lfs")
    xet = item.optional_text("xetHash")
    if lfs is None:
        blob = blob_of("git", item.text("oid"))
        size_bytes = item.size("size")
    else:
        blob = blob_of("lfs", lfs.text("oid").removeprefix("sha256:"))
        size_bytes = lfs.size("size")
    if blob is None:
        raise item.fault("lfs.oid" if lfs else "oid", "is not a file identity")
    return FileEntry(path, size_bytes, blob, xet)
