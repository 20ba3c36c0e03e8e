"""A source that remembers: what was learned once is not asked again, and is what there is when the network is not.

Implements `kernel_hub.model.source.Source` over another source, the cache and the index. Commits are immutable, so their
listings and files are never asked for twice. References are asked for when they are older than the freshness time. When the
source fails and something is remembered, that serves, after a short wait and with one notice.

What others put into the Hugging Face cache counts as remembered too. Leaves out: fetching builds (see `kernel_hub.fetch`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kernel_hub.cache import Cache
from kernel_hub.cache.download import WholeFiles
from kernel_hub.cache.foreign import listing_in_cache
from kernel_hub.cache.worklock import Patience, WorkLock
from kernel_hub.errors import (
    InvalidDocumentError,
    OfflineError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SourceUnavailableError,
)
from kernel_hub.index import Index, KnownStanding
from kernel_hub.model.repo_path import check_prefix
from kernel_hub.model.requirement import RepoId, Requirement, is_commit
from kernel_hub.model.source import FileEntry, PublisherStanding, Refs, Source
from kernel_hub.select import BUILD_FOLDER
from kernel_hub.sources.asking import Asking
from kernel_hub.sources.beside import Hurried, begin

if TYPE_CHECKING:
    from kernel_hub.sources.loadable import Loadable

_HURRY_S = 1.0
# A caller who wants references looked up now has more patience than one who would take yesterday's.
_PATIENT_S = 5.0

# An answer takes a moment; who has waited much longer than that for another process had better ask.
_LOCK_PATIENCE = Patience(stale_s=5.0, give_up_s=10.0)

Mode = Literal["online", "cached-first", "offline"]


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
        self._cache = cache
        self._index = index
        self._key = key
        self._name = name
        self._mode = mode
        self._freshness_s = freshness_s
        self._standing_freshness_s = standing_freshness_s
        if patience_s is None:
            patience_s = _HURRY_S if freshness_s > 0 else _PATIENT_S
        self._asking = Asking(inner if mode != "offline" else None, name, patience_s)
        self._clock = clock
        self._wanted: dict[RepoId, Requirement] = {}
        self._others: dict[Requirement, bool] = {}
        self._begun: dict[str, Callable[[], PublisherStanding]] = {}
        self._listings: dict[tuple[RepoId, str], tuple[FileEntry, ...]] = {}

    @cached_property
    def _loadable(self) -> Loadable:
        # Imported here, because few loads need another commit than the newest.
        from kernel_hub.sources.loadable import Loadable

        return Loadable(self._cache, lambda repo, commit: self._known_listing(repo, commit, BUILD_FOLDER))

    @property
    def _inner(self) -> Source | None:
        return self._asking.source

    @property
    def name(self) -> str:
        """The inner source's name."""
        return self._name

    def refs(self, repo: RepoId) -> Refs:
        """See `Source.refs`.

        Raises:
            OfflineError: If the network may not be used and nothing is remembered.
        """
        try:
            return self._refs(repo)
        except (RepositoryNotFoundError, OfflineError) as error:
            from kernel_hub.sources.near_names import with_meant

            known = (self._inner, self._cache, self._index, self._key)
            raise with_meant(error, repo, *known) from None

    def _refs(self, repo: RepoId) -> Refs:
        known = self._index.refs(self._key, repo)
        if known is not None and self._inner is not None and self._is_current(known.asked_s):
            return known.refs
        can_serve = known is not None or bool(self._cache.refs(repo))
        if can_serve and (self._inner is None or self._mode == "cached-first"):
            return self._loadable.refs(repo, known)
        if self._inner is None:
            raise self._asking.offline(f"the versions of {repo}")
        with self._alone(repo.namespace, f"{repo.name}.refs"):
            asked_meanwhile = self._index.refs(self._key, repo)
            if asked_meanwhile is not None and self._is_current(asked_meanwhile.asked_s):
                return asked_meanwhile.refs
            found = self._asking.ask(lambda source: source.refs(repo), f"the versions of {repo}", can_serve=can_serve)
            if found is None:
                return self._loadable.refs(repo, known)
            self._index.remember_refs(self._key, repo, found, self._clock())
            return found

    def refs_for(self, requirement: Requirement) -> Refs:
        """As `refs`, for one requirement; from the cache alone, with only such versions as it can serve."""
        repo = requirement.repo
        self._wanted[repo] = requirement
        if self._inner is None and ((known := self._index.refs(self._key, repo)) or self._cache.refs(repo)):
            return self._loadable.refs_for(requirement, known)
        return self.refs(repo)

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
            raise self._asking.offline(f"{repo}@{revision}")
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
            raise self._asking.offline(f"the files of {repo}")
        with self._alone(repo.namespace, f"{repo.name}.{commit}"):
            known = self._known_listing(repo, commit, prefix)
            if known is not None:
                return known
            # The whole commit at once: builds, bundles, attestations and the status are asked for one after another.
            found = self._asking.ask(
                lambda source: source.files(repo, commit),
                f"the files of {repo}",
                can_serve=foreign is not None or self._has_other(repo),
            )
            if found is None:
                return foreign if foreign is not None else self._asking.give_up()
            self._index.remember_listing(self._key, repo, commit, "", found)
            return self._remember(repo, commit, found, prefix)

    def look_again(self, repo: RepoId, commit: str, prefix: str) -> bool:
        """Ask for a listing although it is remembered, because a mirror's commit may have grown; whether it had."""
        if self._inner is None:
            return False
        before = self._known_listing(repo, commit, prefix)
        found = self._asking.ask(lambda source: source.files(repo, commit), f"the files of {repo}", can_serve=True)
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
            found = self._asking.ask(
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
        can_serve = self._has_other(repo)
        return self._asking.chunks(repo, commit, entry, start_bytes=start_bytes, can_serve=can_serve)

    def fall_back(self) -> bool:
        """Answer from the cache alone from now on; False unless the source failed and the cache has something to offer."""
        if self._inner is None or self._asking.failed is None or not any(self._others.values()):
            return False
        self._asking.source = None
        return True

    def download(self, repo: RepoId, commit: str, entry: FileEntry, place: Path, told: Callable[[int], None]) -> bool:
        """See `WholeFiles.download`; as for `chunks`, from the inner source."""
        inner: Source | WholeFiles | None = self._inner
        return isinstance(inner, WholeFiles) and inner.download(repo, commit, entry, place, told)

    def publisher(self, namespace: str) -> PublisherStanding:
        """See `Source.publisher`. What was found out once serves when it cannot be asked, with its date."""
        known = self._index.standing(self._key, namespace)
        if known is not None and self._need_not_ask(known):
            return known.standing if self._inner is not None else known.dated()
        begun = self._begun.pop(namespace, None)
        try:
            found = self._asking.ask(
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
            return known.dated()
        return found or PublisherStanding(None, "nothing is known of it")

    def begin_publisher(self, namespace: str) -> None:
        """Start to ask about a publisher beside what is asked next; `publisher` then waits for that answer."""
        known = self._index.standing(self._key, namespace)
        source = self._inner
        if source is None or (known is not None and self._need_not_ask(known)):
            return
        if known is not None and isinstance(source, Hurried):
            source = source.hurried(self._asking.patience_s)
        self._begun[namespace] = begin(partial(source.publisher, namespace))

    def _has_other(self, repo: RepoId) -> bool:
        """Whether the cache has another commit to offer of a repository that was not asked for by commit."""
        wanted = self._wanted.get(repo)
        if wanted is not None and wanted not in self._others:
            known = self._index.refs(self._key, repo)
            self._others[wanted] = known is not None and self._loadable.has_other(wanted, known)
        return wanted is not None and self._others[wanted]

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
