"""What was learned from sources, kept beside the cache: references, listings, publishers.

One folder per source, one per repository in it; one JSON file per fact, replaced as a whole. Every file carries the
format's number. A file that is damaged, foreign or of another format counts as absent, and is written anew when its fact
is learned again; a folder that cannot be written is no error, because everything here can be asked for again.

Layout, below the root:

    <source>/<namespace>/publisher.json             whether the namespace is trusted
    <source>/<namespace>/<name>/refs.json           branches and tags, and the commits they had before
    <source>/<namespace>/<name>/<commit>/<prefix>.json   the listing of a folder of a commit

Leaves out the files themselves (see `kernel_hub.cache`).
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.document import JsonObject, load_json_value
from kernel_hub.model.pattern import HEX_DIGITS, is_of
from kernel_hub.model.repo_path import check_ref_name
from kernel_hub.model.requirement import RepoId, is_commit
from kernel_hub.model.source import BlobId, FileEntry, GitBlob, LfsBlob, PublisherStanding, Refs
from kernel_hub.model.value import dataclass
from kernel_hub.writable import is_writable, tell_unwritable

_FORMAT = 1
_ASKED = "sources are asked"
_MAX_FILE_BYTES = 128 << 20
# An old commit is remembered only to have something to load when the newest cannot be had.
_MAX_EARLIER = 8


@dataclass(frozen=True, slots=True)
class KnownRefs:
    """References as they were when a source was last asked.

    Attributes:
        refs: The answer.
        asked_s: When, in seconds of Unix time.
        earlier: By branch, the commits it had before, newest first.
    """

    refs: Refs
    asked_s: float
    earlier: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownStanding:
    """What a source last said of a namespace, and when."""

    standing: PublisherStanding
    asked_s: float

    def dated(self) -> PublisherStanding:
        """The standing with the day that it was looked up on, for when it cannot be looked up now."""
        day = datetime.fromtimestamp(self.asked_s, UTC).date().isoformat()
        return PublisherStanding(self.standing.trusted, f"{self.standing.reason}; looked up on {day}")


class Index:
    """The facts below one folder.

    Args:
        root: The folder; made when the first fact is written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def refs(self, source: str, repo: RepoId) -> KnownRefs | None:
        """The references of a repository as last seen."""
        top = self._read(self._repo(source, repo) / "refs.json")
        try:
            return None if top is None else _known_refs(JsonObject(top, "refs.json"))
        except InvalidDocumentError:
            return None

    def repos(self, source: str, namespace: str) -> tuple[RepoId, ...]:
        """The repositories of a namespace whose references were seen."""
        found = (path.parent.name for path in (self.root / source / namespace).glob("*/refs.json"))
        return tuple(RepoId(namespace, name) for name in sorted(found))

    def remember_refs(self, source: str, repo: RepoId, refs: Refs, asked_s: float) -> None:
        """Keep references, and what they were before."""
        known = self.refs(source, repo)
        earlier = {name: _earlier(name, commit, known) for name, commit in refs.branches.items()}
        document = {
            "asked": int(asked_s),
            "branches": dict(refs.branches),
            "tags": dict(refs.tags),
            "earlier": {name: list(commits) for name, commits in earlier.items() if commits},
        }
        self._write(self._repo(source, repo) / "refs.json", document)

    def listing(self, source: str, repo: RepoId, commit: str, prefix: str) -> tuple[FileEntry, ...] | None:
        """The listing of a folder of a commit, taken from one of the whole commit if there is such a one."""
        folder = self._repo(source, repo) / commit
        for known in dict.fromkeys((prefix, "")):
            top = self._read(folder / _listing_name(known))
            entries = None if top is None else _entries(top.get("files"))
            if entries is not None:
                return tuple(entry for entry in entries if not prefix or entry.path.startswith(f"{prefix}/"))
        return None

    def listing_of_any_source(self, repo: RepoId, commit: str, prefix: str) -> tuple[FileEntry, ...] | None:
        """As `listing`, from whichever source listed the commit; a commit is the same everywhere."""
        try:
            sources = sorted(path.name for path in self.root.iterdir())
        except OSError:
            return None
        found = (self.listing(source, repo, commit, prefix) for source in sources)
        return next((entries for entries in found if entries is not None), None)

    def remember_listing(
        self, source: str, repo: RepoId, commit: str, prefix: str, entries: tuple[FileEntry, ...]
    ) -> None:
        """Keep the listing of a folder of a commit; it is immutable."""
        rows = [[entry.path, entry.size_bytes, _blob_text(entry.blob), entry.xet] for entry in entries]
        self._write(self._repo(source, repo) / commit / _listing_name(prefix), {"files": rows})

    def standing(self, source: str, namespace: str) -> KnownStanding | None:
        """What a source last said of a namespace."""
        top = self._read(self.root / source / namespace / "publisher.json")
        try:
            return None if top is None else _known_standing(JsonObject(top, "publisher.json"))
        except InvalidDocumentError:
            return None

    def remember_standing(self, source: str, namespace: str, standing: PublisherStanding, asked_s: float) -> None:
        """Keep what a source says of a namespace."""
        document = {"asked": int(asked_s), "trusted": standing.trusted, "reason": standing.reason}
        self._write(self.root / source / namespace / "publisher.json", document)

    def _repo(self, source: str, repo: RepoId) -> Path:
        return self.root / source / repo.namespace / repo.name

    def _read(self, path: Path) -> Mapping[str, Any] | None:
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_FILE_BYTES + 1)
            top = load_json_value(content, name=path.name, limit_bytes=_MAX_FILE_BYTES)
        except (OSError, InvalidDocumentError):
            return None
        return top if isinstance(top, dict) and top.get("format") == _FORMAT else None

    def _write(self, path: Path, document: Mapping[str, Any]) -> None:
        content = json.dumps({"format": _FORMAT, **document}, ensure_ascii=True, separators=(",", ":")).encode()
        growing = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        if not is_writable(path.parent):
            tell_unwritable(self.root, _ASKED)
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with growing.open("xb") as file:
                file.write(content)
            growing.replace(path)
        except OSError as error:
            tell_unwritable(self.root, _ASKED, error)
            with contextlib.suppress(OSError):
                growing.unlink(missing_ok=True)


def _listing_name(prefix: str) -> str:
    return f"{quote(prefix, safe='') or '%'}.json"


def _earlier(name: str, commit: str, known: KnownRefs | None) -> tuple[str, ...]:
    if known is None:
        return ()
    past = known.earlier.get(name, ())
    before = known.refs.branches.get(name)
    ordered = ((before,) if before is not None else ()) + tuple(past)
    return tuple(dict.fromkeys(past_commit for past_commit in ordered if past_commit != commit))[:_MAX_EARLIER]


def _known_refs(top: JsonObject) -> KnownRefs:
    earlier = top.object("earlier")
    return KnownRefs(
        Refs(_commits(top.object("branches")), _commits(top.object("tags"))),
        _time(top),
        {name: earlier.texts(name) for name in earlier.names()},
    )


def _commits(table: JsonObject) -> dict[str, str]:
    found = {}
    for name in table.names():
        commit = table.text(name)
        if not is_commit(commit):
            raise table.fault(name, "is not a commit id")
        found[check_ref_name(name)] = commit
    return found


def _known_standing(top: JsonObject) -> KnownStanding:
    trusted = top.flag("trusted") if top.has("trusted") else None
    return KnownStanding(PublisherStanding(trusted, top.text("reason")), _time(top))


def _time(top: JsonObject) -> float:
    return float(top.whole("asked"))


def _blob_text(blob: BlobId) -> str:
    return f"lfs:{blob.id}" if isinstance(blob, LfsBlob) else f"git:{blob.id}"


def _entries(rows: object) -> tuple[FileEntry, ...] | None:
    """The rows of a listing; paths are checked where they are used, see `kernel_hub.cache`."""
    if not isinstance(rows, list):
        return None
    found = []
    for row in rows:
        match row:
            case [str(path), int(size_bytes), str(text), None | str() as xet] if size_bytes >= 0:
                blob = _blob(text)
                if blob is None:
                    return None
                found.append(FileEntry(path, size_bytes, blob, xet))
            case _:
                return None
    return tuple(found)


def _blob(text: str) -> BlobId | None:
    kind, _, id = text.partition(":")
    if not is_of(id, HEX_DIGITS):
        return None
    match kind, len(id):
        case "git", 40:
            return GitBlob(id)
        case "lfs", 64:
            return LfsBlob(id)
        case _:
            return None
