"""Answers to requests that change nothing: who, what, which commits, which files, and the bytes of one.

Each function takes a call and returns a reply; refusals are raised.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote, urlencode

from kernel_hub.errors import EntryNotFoundError, InvalidDocumentError
from kernel_hub.model.commit import Commit, StoredFile
from kernel_hub.model.repo_path import check_file_path, check_prefix
from kernel_hub.model.requirement import RepoId
from kernel_hub.server import wire
from kernel_hub.server.exchange import Call, FileReply, JsonReply, Refusal, Reply, Request, Store

EXPANDED_PAGE_ROWS = 50
MAX_PATHS = 10_000
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_T = TypeVar("_T")


def whoami(call: Call) -> Reply:
    """Who the token belongs to."""
    if "authorization" not in call.request.headers:
        raise Refusal(401, "Invalid credentials in Authorization header")
    return JsonReply(
        {
            "type": "user",
            "id": call.site.user,
            "name": call.site.user,
            "fullname": call.site.user,
            "isPro": False,
            "orgs": [],
            "auth": {"type": "access_token", "accessToken": {"displayName": call.site.user, "role": "write"}},
        }
    )


def agent_harnesses(call: Call) -> Reply:
    """No agents are known here; an answer spares clients asking again on every start."""
    del call
    return JsonReply({"standardEnvVars": [], "harnesses": {}})


def organization(call: Call) -> Reply:
    """What the registry says of a namespace."""
    namespace = call.names["namespace"]
    trusted = call.store.publisher(namespace).trusted
    repos = sum(1 for repo in call.store.repos() if repo.namespace == namespace)
    if trusted is None and not repos:
        raise Refusal(404, f"this registry has no namespace {namespace!r}")
    document: dict[str, Any] = {"name": namespace, "fullname": namespace, "avatarUrl": "", "numKernels": repos}
    if trusted is not None:
        document["trustedKernelPublisher"] = trusted
    return JsonReply(document)


def search(call: Call) -> Reply:
    """Repositories whose name holds a text, or of one author, in order of their names."""
    text, author = call.request.query.get("search", "").lower(), call.request.query.get("author")
    rows_limit = min(_whole(call.request.query, "limit", call.site.page_rows), call.site.page_rows)
    found = [
        repo
        for repo in call.store.repos()
        if text in str(repo).lower() and author in (None, repo.namespace) and not call.store.visibility(repo).private
    ]
    page, next_cursor = _page(found, call.request.query, rows_limit)
    rows = [_repo_json(call.store, repo, call.store.commit_of(repo, "main"), siblings=False) for repo in page]
    return JsonReply(rows, headers=_link(call.request, call.request.path, next_cursor))


def repo_info(call: Call) -> Reply:
    """A repository at a revision."""
    commit = call.store.commit_of(call.repo, call.names.get("revision", "main"))
    return JsonReply(_repo_json(call.store, call.repo, commit, siblings=call.names["type"] == "models"))


def refs(call: Call) -> Reply:
    """Branches and tags, and proposals if asked for."""
    wanted = call.request.query.get("include_prs", "").lower() in ("1", "true")
    return JsonReply(wire.refs_json(call.store.refs(call.repo), call.store.pulls(call.repo) if wanted else None))


def tree(call: Call) -> Reply:
    """One page of a listing. The next page's URL names the commit, so that a moving branch cannot tear a listing."""
    commit = call.store.load(call.repo, call.store.commit_of(call.repo, call.names["revision"]))
    prefix = check_prefix(call.names.get("path", "").rstrip("/"))
    rows = wire.tree_rows(commit, prefix, recursive=_flag(call.request.query, "recursive"))
    expand = _flag(call.request.query, "expand")
    page, next_cursor = _page(rows, call.request.query, EXPANDED_PAGE_ROWS if expand else call.site.page_rows)
    place = f"/api/{call.names['type']}/{call.repo}/tree/{commit.id}"
    headers = _link(call.request, f"{place}/{quote(prefix, safe='')}" if prefix else place, next_cursor)
    return JsonReply(_row_documents(call.store, call.repo, commit, page, expand), headers=headers)


def paths(call: Call) -> Reply:
    """Files and folders by path; those that are not there are left out."""
    commit = call.store.load(call.repo, call.store.commit_of(call.repo, call.names["revision"]))
    wanted, expand = _wanted_paths(call.request)
    known = {row.path: row for row in wire.tree_rows(commit, "", recursive=True)}
    rows = [known[path] for path in wanted if path in known]
    return JsonReply(_row_documents(call.store, call.repo, commit, rows, expand))


def commits(call: Call) -> Reply:
    """One page of a history, newest first."""
    start = call.store.commit_of(call.repo, call.names["revision"])
    page, next_cursor = _page(list(call.store.history(call.repo, start)), call.request.query, call.site.page_rows)
    place = f"/api/{call.names['type']}/{call.repo}/commits/{start}"
    return JsonReply(
        [wire.commit_json(commit, call.site.user) for commit in page], headers=_link(call.request, place, next_cursor)
    )


def resolve(call: Call) -> Reply:
    """The bytes of a file, or the range of them that was asked for."""
    commit = call.store.load(call.repo, call.store.commit_of(call.repo, call.names["revision"]))
    path = check_file_path(call.names["path"])
    file = commit.file(path)
    if file is None:
        raise Refusal(
            404, f"{call.repo} has no file {path!r}", code="EntryNotFound", headers={"X-Repo-Commit": commit.id}
        )
    return _file_reply(file, call.request.headers, {"X-Repo-Commit": commit.id})


def large_file(call: Call) -> Reply:
    """The bytes behind a download URL that an LFS batch gave."""
    blob = call.store.stored(call.names["digest"])
    if blob is None:
        raise EntryNotFoundError("this registry has no such object")
    return _file_reply(StoredFile(blob.digest, blob, lfs=True), call.request.headers, {})


def no_xet(call: Call) -> Reply:
    """Xet is not offered; the message reaches the user of a client that tries it."""
    raise Refusal(
        404,
        f"this registry does not offer Xet: set HF_HUB_DISABLE_XET=1 to upload files of more than "
        f"{call.site.inline_limit_bytes} bytes",
    )


def _file_reply(file: StoredFile, asked: Mapping[str, str], headers: Mapping[str, str]) -> Reply:
    blob = file.blob
    etag = f'"{blob.digest if file.lfs else blob.git_id}"'
    found = dict(headers) | {
        "ETag": etag,
        "Accept-Ranges": "bytes",
        "Cache-Control": "no-cache",
        "Content-Type": "application/octet-stream" if file.lfs else "text/plain; charset=utf-8",
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f"inline; filename*=UTF-8''{quote(file.path.rpartition('/')[2], safe='')}",
    }
    if file.lfs:
        found |= {"X-Linked-Etag": etag, "X-Linked-Size": str(blob.size_bytes)}
    if etag in re.split(r"\s*,\s*", asked.get("if-none-match", "").replace("W/", "")):
        return JsonReply(None, status=304, headers=found)
    span = _span(asked, blob.size_bytes, etag)
    if span is None:
        return FileReply(blob, 0, blob.size_bytes, 200, found)
    start_bytes, end_bytes = span
    if start_bytes >= end_bytes:
        raise Refusal(416, "the range lies outside the file", headers={"Content-Range": f"bytes */{blob.size_bytes}"})
    found["Content-Range"] = f"bytes {start_bytes}-{end_bytes - 1}/{blob.size_bytes}"
    return FileReply(blob, start_bytes, end_bytes - start_bytes, 206, found)


def _span(asked: Mapping[str, str], size_bytes: int, etag: str) -> tuple[int, int] | None:
    """First and last-plus-one byte of the one range that was asked for; None to send everything."""
    found = _RANGE.fullmatch(asked.get("range", "").replace(" ", ""))
    if found is None or found.groups() == ("", "") or asked.get("if-range", etag) != etag:
        return None
    first, last = found.groups()
    if first == "":
        return max(0, size_bytes - int(last)), size_bytes
    if last != "" and int(last) < int(first):
        return None
    return int(first), size_bytes if last == "" else min(int(last) + 1, size_bytes)


def _repo_json(store: Store, repo: RepoId, commit: str, *, siblings: bool) -> dict[str, Any]:
    trusted = store.publisher(repo.namespace).trusted
    return wire.repo_json(repo, store.load(repo, commit), store.visibility(repo), trusted=trusted, siblings=siblings)


def _row_documents(
    store: Store, repo: RepoId, commit: Commit, rows: Sequence[wire.Row], expand: bool
) -> list[dict[str, Any]]:
    last = wire.last_changes(rows, store.history(repo, commit.id)) if expand else {}
    return [wire.row_json(row, last.get(row.path)) for row in rows]


def _wanted_paths(request: Request) -> tuple[list[str], bool]:
    if request.headers.get("content-type", "").startswith("application/json"):
        asked = wire.read_object(request.body, "body")
        wanted, expand = list(asked.texts("paths")), asked.has("expand") and asked.flag("expand")
    else:
        try:
            form = parse_qs(request.body.decode("ascii"), max_num_fields=MAX_PATHS + 1, errors="strict")
        except ValueError as error:
            raise InvalidDocumentError("body", "is not a form") from error
        wanted, expand = form.get("paths", []), form.get("expand", [""])[-1].lower() in ("1", "true")
    if len(wanted) > MAX_PATHS:
        raise Refusal(413, f"more than {MAX_PATHS} paths are asked for")
    return [path.strip("/") for path in wanted], expand


def _page(rows: Sequence[_T], query: Mapping[str, str], limit: int) -> tuple[Sequence[_T], str | None]:
    start = _cursor(query)
    end = start + max(1, limit)
    return rows[start:end], _cursor_text(end) if end < len(rows) else None


def _cursor_text(start: int) -> str:
    # Clients must not count on what a cursor holds, so it does not look like a number.
    return base64.urlsafe_b64encode(b"from:%d" % start).decode("ascii")


def _cursor(query: Mapping[str, str]) -> int:
    if "cursor" not in query:
        return 0
    try:
        word, _, number = (
            base64.b64decode(query["cursor"], altchars=b"-_", validate=True).decode("ascii").partition(":")
        )
        if word != "from" or not number.isascii() or not number.isdigit() or len(number) > 12:
            raise ValueError(number)
        return int(number)
    except ValueError as error:
        raise InvalidDocumentError("cursor", f"{query['cursor']!r} is not one of this server's") from error


def _link(request: Request, path: str, next_cursor: str | None) -> dict[str, str]:
    if next_cursor is None:
        return {}
    query = urlencode(dict(request.query) | {"cursor": next_cursor})
    return {"Link": f'<{request.origin}{path}?{query}>; rel="next"'}


def _flag(query: Mapping[str, str], key: str) -> bool:
    return query.get(key, "").lower() in ("1", "true")


def _whole(query: Mapping[str, str], key: str, default: int) -> int:
    text = query.get(key, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidDocumentError(key, f"{text!r} is not a whole number")
    return int(text)
