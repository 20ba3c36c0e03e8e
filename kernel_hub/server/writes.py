"""Answers to requests that change the registry: repositories, branches, tags, uploads and commits.

Each function takes a call and returns a reply; refusals are raised. Bodies that are large
have been taken in before (see `kernel_hub.server.http`).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from kernel_hub.errors import ConflictError, EntryNotFoundError, InvalidDocumentError
from kernel_hub.model.commit import NATIVE_SUFFIXES, StoredFile
from kernel_hub.model.document import JsonObject
from kernel_hub.model.repo_path import check_file_path
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.visibility import Visibility
from kernel_hub.server import wire
from kernel_hub.server.exchange import MIB, Call, JsonReply, Refusal, Reply, Request, Site, Store

MAX_OPERATIONS = 50_000
_WEB = {"kernels": "/kernels", "models": ""}


def create_repo(call: Call) -> Reply:
    """Make a repository."""
    body = wire.read_object(call.request.body, "body")
    repo, prefix = _named_repo(body, call.site)
    visibility = body.optional_text("visibility") or ("private" if _is_true(body, "private") else "public")
    if visibility not in ("public", "private"):
        raise InvalidDocumentError("body", f"{visibility!r} is neither public nor private", location="visibility")
    address = {"url": f"{call.request.origin}{prefix}/{repo}", "name": str(repo), "id": str(repo)}
    if not call.store.add_repo(repo, Visibility(private=visibility == "private")):
        raise Refusal(409, f"{repo} is there already", extra=address)
    return JsonReply(address)


def delete_repo(call: Call) -> Reply:
    """Remove a repository."""
    repo, _ = _named_repo(wire.read_object(call.request.body, "body"), call.site)
    call.store.delete_repo(repo)
    return JsonReply({})


def create_branch(call: Call) -> Reply:
    """Make a branch."""
    body = wire.read_object(call.request.body or b"{}", "body")
    if not call.store.add_branch(call.repo, call.names["branch"], start=body.optional_text("startingPoint")):
        raise Refusal(409, f"{call.repo} has a branch {call.names['branch']!r} already")
    return JsonReply({})


def delete_branch(call: Call) -> Reply:
    """Remove a branch."""
    call.store.delete_branch(call.repo, call.names["branch"])
    return JsonReply({})


def create_tag(call: Call) -> Reply:
    """Name a revision."""
    body = wire.read_object(call.request.body, "body")
    call.store.create_tag(call.repo, body.text("tag"), revision=call.names["revision"])
    return JsonReply({})


def delete_tag(call: Call) -> Reply:
    """Remove a tag."""
    call.store.delete_tag(call.repo, call.names["revision"])
    return JsonReply({})


def validate_yaml(call: Call) -> Reply:
    """Look at a card's front matter, as far as that needs no YAML reader: it must end."""
    content = wire.read_object(call.request.body, "body").line("content").replace("\r\n", "\n")
    if content.startswith("---\n") and "\n---" not in content[3:]:
        error = {"message": "the front matter starts with '---' and does not end"}
        raise Refusal(400, error["message"], extra={"errors": [error], "warnings": []})
    return JsonReply({"errors": [], "warnings": []})


def preupload(call: Call) -> Reply:
    """Say of each file how it is to be sent, and what is there now."""
    commit = call.store.load(call.repo, call.store.commit_of(call.repo, call.names["revision"]))
    present = {file.path: file for file in commit.files}
    rows = []
    for item in wire.read_object(call.request.body, "body").objects("files"):
        path, size_bytes = check_file_path(item.text("path"), document="body"), item.size("size")
        native = call.site.native_by_lfs and path.lower().endswith(NATIVE_SUFFIXES)
        large = size_bytes > call.site.inline_limit_bytes or (native and size_bytes > 0)
        row: dict[str, Any] = {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
        if path in present:
            # Clients compare this with the id of the bytes in the mode they are told to use.
            row["oid"] = present[path].blob.digest if large else present[path].blob.git_id
        rows.append(row)
    return JsonReply({"files": rows})


def lfs_batch(call: Call) -> Reply:
    """Say where large files are to be sent, or to be had."""
    body = wire.read_object(call.request.body, "body")
    if body.optional_text("hash_algo") not in (None, "sha256"):
        raise Refusal(409, "objects are named by SHA-256 here")
    operation = body.text("operation")
    if operation not in ("upload", "download"):
        raise InvalidDocumentError("body", f"{operation!r} is neither upload nor download", location="operation")
    held = _held(call.store, call.repo) if operation == "download" else {}
    objects = []
    for item in body.objects("objects"):
        oid, size_bytes = wire.read_digest(item, "oid"), item.size("size")
        found = _upload(call, oid, size_bytes) if operation == "upload" else _download(call, oid, held)
        objects.append({"oid": oid, "size": size_bytes} | found)
    return JsonReply({"transfer": "basic", "objects": objects}, headers={"Content-Type": wire.LFS_TYPE})


def is_upload(request: Request) -> bool:
    """Whether an LFS batch asks to write."""
    return wire.read_object(request.body, "body").text("operation") != "download"


def lfs_verify(call: Call) -> Reply:
    """Say whether a large file arrived."""
    body = wire.read_object(call.request.body, "body")
    if call.store.stored(wire.read_digest(body, "oid"), body.size("size")) is None:
        raise Refusal(404, "this object has not arrived")
    return JsonReply({})


def lfs_put(call: Call) -> Reply:
    """A large file arrived, and was checked on its way in."""
    return JsonReply(None, headers={"ETag": f'"{call.names["digest"]}"'})


def check_signed(site: Site, request: Request) -> None:
    """Refuse a large file's URL that this server did not give, or gave too long ago."""
    query = request.query
    action = "GET" if request.method == "HEAD" else request.method
    text = _signed_text(action, request.names["digest"], query.get("size", ""), query.get("expires", ""))
    expected = site.signature(text)
    # A difference in any byte must take the same time to find.
    if (
        not hmac.compare_digest(expected.encode(), query.get("signature", "").encode(errors="replace"))
        or int(query["expires"]) < request.now_s
    ):
        raise Refusal(403, "this URL was not issued by this server, or is too old")


def commit(call: Call) -> Reply:
    """Make a commit of what was sent, on a branch, or as a proposal beside it."""
    assert call.request.spool is not None
    change = _read_change(call.store, call.site, call.request.spool)
    branch = call.names["revision"].removeprefix("refs/heads/")
    start = call.store.commit_of(call.repo, f"refs/heads/{branch}")
    deletions = list(change.deletions)
    if change.folders:
        present = call.store.load(call.repo, start)
        for folder in change.folders:
            below = present.below(folder)
            if not below:
                raise EntryNotFoundError(f"{call.repo} has no folder {folder!r} to delete")
            deletions += [file.path for file in below]
    deletions = list(dict.fromkeys(deletions))
    web = f"{call.request.origin}{_WEB[call.names['type']]}/{call.repo}"
    if call.request.query.get("create_pr") in ("1", "true"):
        number, made = call.store.propose_files(
            call.repo,
            change.header.parent or start,
            files=change.files,
            deletions=deletions,
            message=change.header.summary,
            description=change.header.description,
        )
        return _commit_reply(web, made, f"{web}/discussions/{number}")
    try:
        made = call.store.commit_files(
            call.repo,
            branch,
            # Deletions of folders were worked out for one head, so they hold for no other.
            parent=change.header.parent or (start if change.folders else None),
            files=change.files,
            deletions=deletions,
            message=change.header.summary,
            description=change.header.description,
        )
    except ConflictError as error:
        raise Refusal(412, error.message) from error
    return _commit_reply(web, made, None)


@dataclass(slots=True)
class _Change:
    header: wire.Header
    files: list[StoredFile] = field(default_factory=list)
    deletions: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


def _read_change(store: Store, site: Site, spool: Path) -> _Change:
    with spool.open("rb") as body:
        lines = _lines(body, site)
        header = next(lines, None)
        if not isinstance(header, wire.Header):
            raise InvalidDocumentError("commit", "the first line is no header")
        change = _Change(header)
        for line in lines:
            match line:
                case wire.Header():
                    raise InvalidDocumentError("commit", "a header stands twice")
                case wire.InlineFile():
                    change.files.append(StoredFile.of(line.path, store.store(line.content)))
                case wire.LargeFile():
                    blob = store.stored(line.digest, line.size_bytes)
                    if blob is None:
                        raise Refusal(400, f"the bytes of {line.path!r} have not been uploaded")
                    change.files.append(StoredFile.of(line.path, blob, lfs=True))
                case wire.DeletedFile():
                    change.deletions.append(line.path)
                case wire.DeletedFolder():
                    change.folders.append(line.path)
    if len({file.path for file in change.files}) != len(change.files):
        raise InvalidDocumentError("commit", "a path is added twice")
    return change


def _lines(body: BinaryIO, site: Site) -> Iterator[wire.CommitLine]:
    # Base64 makes three bytes four; what is left is for the path.
    limit_bytes = site.inline_limit_bytes // 3 * 4 + MIB
    number = 0
    while line := body.readline(limit_bytes + 1):
        if len(line) > limit_bytes:
            raise Refusal(413, f"a file in a commit is larger than {site.inline_limit_bytes} bytes; send it by LFS")
        if not line.strip():
            continue
        number += 1
        if number > MAX_OPERATIONS:
            raise Refusal(413, f"a commit has more than {MAX_OPERATIONS} operations")
        yield wire.read_commit_line(line, number=number)


def _commit_reply(web: str, made: str, pull: str | None) -> Reply:
    document = {"success": True, "commitOid": made, "commitUrl": f"{web}/commit/{made}", "hookOutput": ""}
    return JsonReply(document if pull is None else document | {"pullRequestUrl": pull})


def _named_repo(body: JsonObject, site: Site) -> tuple[RepoId, str]:
    """The repository that a body names, and the prefix of its web address."""
    kind = body.optional_text("type") or "model"
    if kind not in ("kernel", "model"):
        raise Refusal(400, f"this registry holds kernels, not repositories of type {kind!r}")
    return RepoId.parse(f"{body.optional_text('organization') or site.user}/{body.text('name')}"), _WEB[f"{kind}s"]


def _is_true(body: JsonObject, key: str) -> bool:
    return body.has(key) and body.flag(key)


def _held(store: Store, repo: RepoId) -> dict[str, int]:
    refs = store.refs(repo)
    heads = {*refs.branches.values(), *refs.tags.values(), *store.pulls(repo).values()}
    return {file.blob.digest: file.blob.size_bytes for head in sorted(heads) for file in store.load(repo, head).files}


def _upload(call: Call, oid: str, size_bytes: int) -> dict[str, Any]:
    if size_bytes > call.site.max_file_bytes:
        return {"error": {"code": 422, "message": f"files have at most {call.site.max_file_bytes} bytes here"}}
    if call.store.stored(oid, size_bytes) is not None:
        return {}
    verify = call.request.origin + call.request.path.removesuffix("batch") + "verify"
    return {"actions": {"upload": _action(call, "PUT", oid, size_bytes), "verify": {"href": verify, "header": {}}}}


def _download(call: Call, oid: str, held: dict[str, int]) -> dict[str, Any]:
    if oid not in held:
        return {"error": {"code": 404, "message": f"{call.repo} has no such object"}}
    return {"actions": {"download": _action(call, "GET", oid, held[oid])}}


def _action(call: Call, method: str, oid: str, size_bytes: int) -> dict[str, Any]:
    expires = str(call.request.now_s + call.site.upload_lifetime_s)
    signature = call.site.signature(_signed_text(method, oid, str(size_bytes), expires))
    query = f"size={size_bytes}&expires={expires}&signature={signature}"
    href = f"{call.request.origin}/lfs-objects/{oid}?{query}"
    return {"href": href, "header": {}, "expires_in": call.site.upload_lifetime_s}


def _signed_text(method: str, oid: str, size: str, expires: str) -> str:
    return f"{method} {oid} {size} {expires}"
