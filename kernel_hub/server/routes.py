"""Which request is answered by what, who may make it, and how errors become the Hub's own. Pure but for the given store.

The Hub's paths, as its client uses them for kernels (`/api/kernels`, `/kernels`) and for models (`/api/models`, no prefix);
both see the same repositories. Leaves out sockets and bodies (see `kernel_hub.server.http`).
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias
from urllib.parse import unquote

from kernel_hub.errors import (
    BlobMismatchError,
    ConflictError,
    EntryNotFoundError,
    InvalidDocumentError,
    KernelHubError,
    LengthMismatchError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from kernel_hub.server import imports, reads, writes
from kernel_hub.server.exchange import BodyKind, Call, Refusal, Reply, Request, Site, Store

Answer: TypeAlias = Callable[[Call], Reply]

_log = logging.getLogger(__name__)
_PLACE = re.compile(r"\{(\w+)\}")


class Access(Enum):
    """What a request needs."""

    OPEN = auto()
    TOKEN = auto()
    READ = auto()
    READ_FILES = auto()
    WRITE = auto()
    SIGNED = auto()


@dataclass(frozen=True, slots=True)
class Route:
    """One kind of request.

    Attributes:
        method: GET also stands for HEAD.
        pattern: One expression for each part of the path.
        takes_rest: Whether the last expression is for all parts that are left.
        constants: Variable parts that this path fixes.
        answer: What answers it.
        access: What it needs.
        body: How its body is taken in.
    """

    method: str
    pattern: tuple[re.Pattern[str], ...]
    takes_rest: bool
    constants: Mapping[str, str]
    answer: Answer
    access: Access
    body: BodyKind

    def names(self, parts: tuple[str, ...]) -> dict[str, str] | None:
        """The variable parts of a path, or None if it is not of this kind."""
        last = len(self.pattern) - 1
        if len(parts) <= last or (len(parts) > last + 1 and not self.takes_rest):
            return None
        found = dict(self.constants)
        for expression, part in zip(self.pattern, (*parts[:last], "/".join(parts[last:]))):
            match = expression.fullmatch(part)
            if match is None:
                return None
            found |= match.groupdict()
        return found


def _route(
    method: str, path: str, answer: Answer, access: Access, body: BodyKind = BodyKind.NONE, **constants: str
) -> Route:
    """Read a path such as `/api/{type}/{namespace}/{name}/tree/{revision}/{path}`; only `{path}` may hold several parts."""
    pattern = []
    for part in path.strip("/").split("/"):
        pieces = [
            f"(?P<{piece}>{'kernels|models' if piece == 'type' else '.+'})" if index % 2 else re.escape(piece)
            for index, piece in enumerate(_PLACE.split(part))
        ]
        pattern.append(re.compile("".join(pieces), re.DOTALL))
    return Route(method, tuple(pattern), path.endswith("/{path}"), constants, answer, access, body)


_REPO = "/api/{type}/{namespace}/{name}"
_SMALL = BodyKind.SMALL
_ROUTES = (
    _route("GET", "/api/agent-harnesses", reads.agent_harnesses, Access.OPEN),
    _route("GET", "/api/whoami-v2", reads.whoami, Access.TOKEN),
    _route("GET", "/api/organizations/{namespace}/overview", reads.organization, Access.READ),
    _route("POST", "/api/validate-yaml", writes.validate_yaml, Access.OPEN, _SMALL),
    _route("POST", "/api/repos/create", writes.create_repo, Access.WRITE, _SMALL),
    _route("DELETE", "/api/repos/delete", writes.delete_repo, Access.WRITE, _SMALL),
    _route("GET", "/api/{type}", reads.search, Access.READ),
    _route("GET", _REPO, reads.repo_info, Access.READ),
    _route("GET", f"{_REPO}/revision/{{revision}}", reads.repo_info, Access.READ),
    _route("GET", f"{_REPO}/refs", reads.refs, Access.READ),
    _route("GET", f"{_REPO}/tree/{{revision}}", reads.tree, Access.READ),
    _route("GET", f"{_REPO}/tree/{{revision}}/{{path}}", reads.tree, Access.READ),
    _route("POST", f"{_REPO}/paths-info/{{revision}}", reads.paths, Access.READ, _SMALL),
    _route("GET", f"{_REPO}/commits/{{revision}}", reads.commits, Access.READ),
    _route("GET", f"{_REPO}/xet-read-token/{{revision}}", reads.no_xet, Access.READ),
    _route("GET", f"{_REPO}/xet-write-token/{{revision}}", reads.no_xet, Access.READ),
    _route("POST", f"{_REPO}/branch/{{branch}}", writes.create_branch, Access.WRITE, _SMALL),
    _route("DELETE", f"{_REPO}/branch/{{branch}}", writes.delete_branch, Access.WRITE),
    _route("POST", f"{_REPO}/tag/{{revision}}", writes.create_tag, Access.WRITE, _SMALL),
    _route("DELETE", f"{_REPO}/tag/{{revision}}", writes.delete_tag, Access.WRITE),
    _route("POST", f"{_REPO}/preupload/{{revision}}", writes.preupload, Access.WRITE, _SMALL),
    _route("POST", f"{_REPO}/commit/{{revision}}", writes.commit, Access.WRITE, BodyKind.SPOOLED),
    _route("POST", f"{_REPO}/import/{{revision}}", imports.import_commit, Access.WRITE, _SMALL),
    _route("PUT", "/lfs-objects/{digest}", writes.lfs_put, Access.SIGNED, BodyKind.BLOB),
    _route("GET", "/lfs-objects/{digest}", reads.large_file, Access.SIGNED),
    *(
        route
        for kind, web in (("kernels", "/kernels"), ("models", ""))
        for route in (
            _route(
                "GET",
                f"{web}/{{namespace}}/{{name}}/resolve/{{revision}}/{{path}}",
                reads.resolve,
                Access.READ_FILES,
                type=kind,
            ),
            _route(
                "POST",
                f"{web}/{{namespace}}/{{name}}.git/info/lfs/objects/batch",
                writes.lfs_batch,
                Access.READ_FILES,
                _SMALL,
                type=kind,
            ),
            _route(
                "POST",
                f"{web}/{{namespace}}/{{name}}.git/info/lfs/objects/verify",
                writes.lfs_verify,
                Access.WRITE,
                _SMALL,
                type=kind,
            ),
        )
    ),
)


def match(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """The route of a path that is still quoted, and its variable parts.

    Raises:
        Refusal: If there is none.
    """
    try:
        parts = tuple(unquote(part, errors="strict") for part in path.strip("/").split("/"))
    except UnicodeDecodeError as error:
        raise Refusal(400, "the path is not UTF-8") from error
    allowed = set()
    for route in _ROUTES:
        names = route.names(parts)
        if names is not None:
            if route.method == ("GET" if method == "HEAD" else method):
                return route, names
            allowed.add(route.method)
    if allowed:
        raise Refusal(405, f"{method} is not for this path", headers={"Allow": ", ".join(sorted(allowed))})
    raise Refusal(404, "this registry has no such path")


def admit(store: Store, site: Site, route: Route, request: Request) -> None:
    """Decide whether a request may be made, before its body is read.

    Raises:
        Refusal: If not.
    """
    if route.method != "GET" and "origin" in request.headers:
        # Any page in a browser of this machine can send requests here; only browsers send this header.
        raise Refusal(403, "pages of the web may not write to this registry")
    if route.access is Access.SIGNED:
        writes.check_signed(site, request)
        return
    known = _is_known(site, request)
    if known or route.access is Access.OPEN:
        return
    if route.access in (Access.WRITE, Access.TOKEN):
        raise Refusal(401, "this needs the registry's token")
    if site.private:
        raise Refusal(401, "this registry is private, and needs its token", code="RepoNotFound")
    if "name" in request.names:
        _admit_stranger(store, route, request)


def answer(route: Route, call: Call) -> Reply:
    """Answer an admitted request.

    Raises:
        Refusal: If it cannot be answered as asked.
    """
    # Only the body says whether a batch is for reading or for writing.
    if route.answer is writes.lfs_batch and not _is_known(call.site, call.request) and writes.is_upload(call.request):
        raise Refusal(401, "this needs the registry's token")
    return route.answer(call)


def refusal_of(error: KernelHubError) -> Refusal:
    """The Hub's answer for an error of the registry."""
    match error:
        case EntryNotFoundError():
            return Refusal(404, error.message, code="EntryNotFound")
        case RevisionNotFoundError():
            return Refusal(404, error.message, code="RevisionNotFound")
        case RepositoryNotFoundError():
            return Refusal(404, error.message, code="RepoNotFound")
        case InvalidDocumentError() | BlobMismatchError() | LengthMismatchError():
            return Refusal(400, error.message)
        case ConflictError():
            return Refusal(409, error.message)
        case _:
            # Its message names folders of this machine, which are no business of a client's.
            _log.error("the registry failed: %s", error)
            return Refusal(503, "the registry cannot be read or written now")


def _is_known(site: Site, request: Request) -> bool:
    if site.token is None:
        return True
    sent = request.headers.get("authorization")
    if sent is None:
        return False
    if not hmac.compare_digest(sent.encode(errors="replace"), f"Bearer {site.token}".encode()):
        raise Refusal(401, "Invalid credentials in Authorization header")
    return True


def _admit_stranger(store: Store, route: Route, request: Request) -> None:
    repo = request.repo
    try:
        visibility = store.visibility(repo)
    except RepositoryNotFoundError:
        visibility = None
    if visibility is None or visibility.private:
        # Whether it is absent or private must look the same from outside.
        raise Refusal(401, f"{repo} is not here, or needs the registry's token", code="RepoNotFound")
    if visibility.gated and route.access is Access.READ_FILES:
        raise Refusal(401, f"the files of {repo} need the registry's token", code="GatedRepo")
