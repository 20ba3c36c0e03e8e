"""A source that remembers: what was learned once is not asked again, and is what there is when the network is not.

Implements `kernel_hub.model.source.Source` over another source, the cache and the index. Commits are immutable, so their
listings and files are never asked for twice. References are asked for when they are older than the freshness time. When the
source fails and something is remembered, that serves, after a short wait and with one notice.

What others put into the Hugging Face cache counts as remembered too. Leaves out: fetching builds (see `kernel_hub.fetch`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

from kernel_hub.cache import Cache
from kernel_hub.cache.download import WholeFiles
from kernel_hub.cache.foreign import listing_in_cache
from kernel_hub.cache.whole import has_whole_build
from kernel_hub.cache.worklock import Patience, WorkLock
from kernel_hub.errors import (
    InvalidDocumentError,
    KernelHubError,
    OfflineError,
    RevisionNotFoundError,
    SourceUnavailableError,
)
from kernel_hub.index import Index, KnownRefs, KnownStanding
from kernel_hub.model.repo_path import check_prefix
from kernel_hub.model.requirement import RepoId, is_commit
from kernel_hub.model.source import FileEntry, PublisherStanding, Refs, Source
from kernel_hub.select import BUILD_FOLDER
from kernel_hub.sources.beside import Hurried, begin

_LOG = logging.getLogger("kernel_hub")
_HURRY_S = 1.0
# A caller who wants references looked up now has more patience than one who would take yesterday's.
_PATIENT_S = 5.0

# An answer takes a moment; who has waited much longer than that for another process had better ask.
_LOCK_PATIENCE = Patience(stale_s=5.0, give_up_s=10.0)

Mode = Literal["online", "cached-first", "offline"]
_T = TypeVar("_T")


class CachedSource:
    """Another source, remembered.

    Args:
        inner: Where answers come from; None if there is nothing to ask.
        cache: Where files are.
        index: Where references and listings are remembered.
        key: The source's folder in the index.
        name: The source's name, for messages.
        mode: "online" asks for what is not fresh, "cached-first" for what is not remembered, "offline" for nothing.
        freshness_s: How long references count as current.
        standing_freshness_s: How long the word that a publisher is trusted does. That one is not trusted is asked about as
            often as references are, because it stands in somebody's way.
        patience_s: How long to wait for an answer that can be done without; default: by whether freshness is wanted.
        clock: The time in seconds of Unix time; replaced in tests.
    """

    def __init__(
        self,
        inner: Source | None,
        cache: Cache,
        index: Index,
        *,
        key: str,
        name: str,
        mode: Mode = "online",
        freshness_s: float = 600.0,
        standing_freshness_s: float = 86400.0,
        patience_s: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._inner = inner if mode != "offline" else None
        self._cache = cache
        self._index = index
        self._key = key
        self._name = name
        self._mode = mode
        self._freshness_s = freshness_s
        self._standing_freshness_s = standing_freshness_s
        self._patience_s = patience_s if patience_s is not None else (_HURRY_S if freshness_s > 0 else _PATIENT_S)
        self._clock = clock
        self._failed: KernelHubError | None = None
        self._begun: dict[str, Callable[[], PublisherStanding]] = {}
        self._listings: dict[tuple[RepoId, str], tuple[FileEntry, ...]] = {}

    @property
    def name(self) -> str:
        """The inner source's name."""
        return self._name

    def refs(self, repo: RepoId) -> Refs:
        """See `Source.refs`.

        Raises:
            OfflineError: If the network may not be used and nothing is remembered.
        """
        known = self._index.refs(self._key, repo)
        if known is not None and self._inner is not None and self._is_current(known.asked_s):
            return known.refs
        can_serve = known is not None or bool(self._cache.refs(repo))
        if can_serve and (self._inner is None or self._mode == "cached-first"):
            return self._loadable(repo, known)
        if self._inner is None:
            raise self._offline(f"the versions of {repo}")
        with self._alone(repo.namespace, f"{repo.name}.refs"):
            asked_meanwhile = self._index.refs(self._key, repo)
            if asked_meanwhile is not None and self._is_current(asked_meanwhile.asked_s):
                return asked_meanwhile.refs
            found = self._ask(lambda source: source.refs(repo), f"the versions of {repo}", can_serve=can_serve)
            if found is None:
                return self._loadable(repo, known)
            self._index.remember_refs(self._key, repo, found, self._clock())
            return found

    def commit_of(self, repo: RepoId, revision: str) -> str:
        """See `Source.commit_of`."""
        if is_commit(revision) and self._known_listing(repo, revision, BUILD_FOLDER) is not None:
            return revision
        known = self._index.refs(self._key, repo)
        refs = self.refs(repo) if not is_commit(revision) else known.refs if known is not None else Refs({})
        commit = refs.branches.get(revision) or refs.tags.get(revision)
        if commit is not None:
            return commit
        if self._inner is not None:
            return self._inner.commit_of(repo, revision)
        if is_commit(revision):
            raise self._offline(f"{repo}@{revision}")
        raise RevisionNotFoundError(f"nothing is remembered of a revision {revision!r} of {repo}")

    def files(self, repo: RepoId, commit: str, prefix: str = "") -> tuple[FileEntry, ...]:
        """See `Source.files`."""
        check_prefix(prefix)
        known = self._known_listing(repo, commit, prefix)
        if known is not None:
            return known
        foreign = listing_in_cache(self._cache, repo, commit, prefix)
        if foreign is not None and (self._inner is None or self._mode == "cached-first"):
            return foreign
        if self._inner is None:
            raise self._offline(f"the files of {repo}")
        with self._alone(repo.namespace, f"{repo.name}.{commit}"):
            known = self._known_listing(repo, commit, prefix)
            if known is not None:
                return known
            # The whole commit at once: builds, bundles, attestations and the status are asked for one after another.
            found = self._ask(
                lambda source: source.files(repo, commit), f"the files of {repo}", can_serve=foreign is not None
            )
            if found is None:
                assert foreign is not None
                return foreign
            self._index.remember_listing(self._key, repo, commit, "", found)
            return self._remember(repo, commit, found, prefix)

    def look_again(self, repo: RepoId, commit: str, prefix: str) -> bool:
        """Ask for a listing although it is remembered, because a mirror's commit may have grown; whether it had."""
        if self._inner is None:
            return False
        before = self._known_listing(repo, commit, prefix)
        found = self._ask(lambda source: source.files(repo, commit), f"the files of {repo}", can_serve=True)
        if found is None:
            return False
        self._index.remember_listing(self._key, repo, commit, "", found)
        return self._remember(repo, commit, found, prefix) != before

    def read(self, repo: RepoId, commit: str, path: str, *, limit_bytes: int) -> bytes:
        """See `Source.read`."""
        place = self._cache.path(repo, commit, path)
        try:
            with place.open("rb") as file:
                content = file.read(limit_bytes + 1)
        except OSError:
            found = self._ask(
                lambda source: source.read(repo, commit, path, limit_bytes=limit_bytes),
                f"{path} of {repo}",
                can_serve=False,
            )
            assert found is not None
            return found
        if len(content) > limit_bytes:
            raise InvalidDocumentError(str(place), f"is longer than {limit_bytes} bytes")
        return content

    def chunks(self, repo: RepoId, commit: str, entry: FileEntry, *, start_bytes: int = 0) -> Iterator[bytes]:
        """See `Source.chunks`; always from the inner source, because the caller looks into the cache first."""
        if self._inner is None:
            raise self._offline(f"{entry.path} of {repo}")
        return self._inner.chunks(repo, commit, entry, start_bytes=start_bytes)

    def download(self, repo: RepoId, commit: str, entry: FileEntry, place: Path, told: Callable[[int], None]) -> bool:
        """See `WholeFiles.download`; as for `chunks`, from the inner source."""
        inner: Source | WholeFiles | None = self._inner
        return isinstance(inner, WholeFiles) and inner.download(repo, commit, entry, place, told)

    def publisher(self, namespace: str) -> PublisherStanding:
        """See `Source.publisher`. What was found out once serves when it cannot be asked, with its date."""
        known = self._index.standing(self._key, namespace)
        if known is not None and self._need_not_ask(known):
            return known.standing if self._inner is not None else _dated(known.standing, known.asked_s)
        begun = self._begun.pop(namespace, None)
        try:
            found = self._ask(
                lambda source: begun() if begun is not None else source.publisher(namespace),
                f"the publisher {namespace}",
                can_serve=known is not None,
            )
        except (OfflineError, SourceUnavailableError) as error:
            return PublisherStanding(None, error.message)
        if found is not None and found.trusted is not None:
            self._index.remember_standing(self._key, namespace, found, self._clock())
            return found
        if known is not None:
            return _dated(known.standing, known.asked_s)
        return found or PublisherStanding(None, "nothing is known of it")

    def begin_publisher(self, namespace: str) -> None:
        """Start to ask about a publisher beside what is asked next; `publisher` then waits for that answer."""
        known = self._index.standing(self._key, namespace)
        source = self._inner
        if source is None or (known is not None and self._need_not_ask(known)):
            return
        if known is not None and isinstance(source, Hurried):
            source = source.hurried(self._patience_s)
        self._begun[namespace] = begin(partial(source.publisher, namespace))

    def _ask(self, call: Callable[[Source], _T], what: str, *, can_serve: bool) -> _T | None:
        """The inner source's answer; None if it has none and `can_serve` says that there is something else to use."""
        if self._inner is None:
            raise self._offline(what)
        if not can_serve:
            return call(self._inner)
        if self._failed is not None:
            return None
        try:
            if not isinstance(self._inner, Hurried):
                return call(self._inner)
            source = self._inner.hurried(self._patience_s)
            return begin(lambda: call(source))(self._patience_s)
        except TimeoutError:
            self._failed = SourceUnavailableError(
                f"{self._name} does not answer within {self._patience_s:g} s", url=self._name
            )
        except (SourceUnavailableError, OfflineError, InvalidDocumentError) as error:
            self._failed = error
        _LOG.warning("%s; using what is in the cache", self._failed.message)
        return None

    def _offline(self, what: str) -> OfflineError:
        return OfflineError(
            f"{what} cannot be had: it is not in the cache, and the network may not be used",
            hint="unset HF_HUB_OFFLINE, or bring the kernel into the cache on a machine with network access",
        )

    def _alone(self, namespace: str, name: str) -> AbstractContextManager[None]:
        """While this process asks, others of this machine wait for what it will remember."""
        place = self._index.root / self._key / namespace / f"{name}.lock"
        return WorkLock(place, f"asking {self._name}", patience=_LOCK_PATIENCE).held(lambda: False)

    def _is_current(self, asked_s: float, freshness_s: float | None = None) -> bool:
        # A time that lies ahead comes from a clock that was wrong then or is wrong now.
        return 0 <= self._clock() - asked_s < (self._freshness_s if freshness_s is None else freshness_s)

    def _need_not_ask(self, known: KnownStanding) -> bool:
        freshness_s = self._standing_freshness_s if known.standing.trusted else self._freshness_s
        return self._mode != "online" or self._is_current(known.asked_s, freshness_s)

    def _known_listing(self, repo: RepoId, commit: str, prefix: str) -> tuple[FileEntry, ...] | None:
        whole = self._listings.get((repo, commit)) or self._index.listing(self._key, repo, commit, "")
        return None if whole is None else self._remember(repo, commit, whole, prefix)

    def _remember(self, repo: RepoId, commit: str, whole: tuple[FileEntry, ...], prefix: str) -> tuple[FileEntry, ...]:
        """Keep the listing of a commit for this process; the part of it below `prefix`."""
        self._listings[repo, commit] = whole
        return tuple(entry for entry in whole if not prefix or entry.path.startswith(f"{prefix}/"))

    def _loadable(self, repo: RepoId, known: KnownRefs | None) -> Refs:
        """The remembered references, each at the newest of its commits that a build in the cache belongs to."""
        foreign = self._cache.refs(repo)
        branches = dict(known.refs.branches) if known is not None else {}
        earlier = known.earlier if known is not None else {}
        for name in sorted({*branches, *foreign}):
            own = (branches[name],) if name in branches else ()
            commits = (*own, *earlier.get(name, ()), *((foreign[name],) if name in foreign else ()))
            branches[name] = next((commit for commit in commits if self._has_build(repo, commit)), commits[0])
        return Refs(branches, known.refs.tags if known is not None else {})

    def _has_build(self, repo: RepoId, commit: str) -> bool:
        listing = self._known_listing(repo, commit, BUILD_FOLDER)
        if listing is None:
            listing = listing_in_cache(self._cache, repo, commit, BUILD_FOLDER) or ()
        return has_whole_build(self._cache, repo, commit, listing)


def _dated(standing: PublisherStanding, asked_s: float) -> PublisherStanding:
    day = datetime.fromtimestamp(asked_s, UTC).date().isoformat()
    return PublisherStanding(standing.trusted, f"{standing.reason}; looked up on {day}")
