"""Asking a source that may fail, with no more waiting than the answer is worth.

Who has something else to use waits a moment; who has not waits as long as the source's own limits allow. A source that failed
somebody who could do without it is not asked by such callers again, and is told of once. Leaves out what the something else is
(see `kernel_hub.sources.wrappers`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from kernel_hub.errors import InvalidDocumentError, KernelHubError, OfflineError, SourceUnavailableError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import FileEntry, Source
from kernel_hub.sources.beside import Hurried, begin

_LOG = logging.getLogger("kernel_hub")
_T = TypeVar("_T")


class Asking:
    """One source, as long as it answers.

    Args:
        source: The source; None if nobody may be asked.
        name: Its name, for messages.
        patience_s: How long to wait for an answer that can be done without.
    """

    def __init__(self, source: Source | None, name: str, patience_s: float) -> None:
        self.source = source
        self.patience_s = patience_s
        self.failed: KernelHubError | None = None
        self._name = name
        self._guard = threading.Lock()

    def ask(self, call: Callable[[Source], _T], what: str, *, can_serve: bool) -> _T | None:
        """The source's answer; None if it has none and `can_serve` says that there is something else to use.

        Raises:
            OfflineError: If nobody may be asked.
            KernelHubError: What the source raises, if there is nothing else.
        """
        if self.source is None:
            raise self.offline(what)
        if not can_serve:
            return call(self.source)
        if self.failed is not None:
            return None
        try:
            if not isinstance(self.source, Hurried):
                return call(self.source)
            source = self.source.hurried(self.patience_s)
            return begin(lambda: call(source))(self.patience_s)
        except TimeoutError:
            told = f"{self._name} does not answer within {self.patience_s:g} s"
            self._note(SourceUnavailableError(told, url=self._name))
        except (SourceUnavailableError, OfflineError, InvalidDocumentError) as error:
            self._note(error)
        return None

    def chunks(
        self, repo: RepoId, commit: str, entry: FileEntry, *, start_bytes: int, can_serve: bool
    ) -> Iterator[bytes]:
        """See `Source.chunks`; if there is something else to use, its beginning must not be long in coming.

        Raises:
            OfflineError: If nobody may be asked.
        """
        if self.source is None:
            raise self.offline(f"{entry.path} of {repo}")
        if not can_serve or not isinstance(self.source, Hurried):
            return self.source.chunks(repo, commit, entry, start_bytes=start_bytes)
        return self._begun_in_a_hurry(self.source, self.source, repo, commit, entry, start_bytes)

    def give_up(self) -> NoReturn:
        """Raise what the source failed with."""
        assert self.failed is not None, "asked only after a failure"
        raise self.failed

    def offline(self, what: str) -> OfflineError:
        """The error for what would have to be asked for."""
        return OfflineError(
            f"{what} cannot be had: it is not in the cache, and the network may not be used",
            hint="unset HF_HUB_OFFLINE, or bring the kernel into the cache on a machine with network access",
        )

    def _begun_in_a_hurry(
        self, patient: Source, hasty: Hurried, repo: RepoId, commit: str, entry: FileEntry, start_bytes: int
    ) -> Iterator[bytes]:
        if self.failed is not None:
            raise self.failed
        at_bytes = start_bytes
        try:
            for chunk in hasty.hurried(self.patience_s).chunks(repo, commit, entry, start_bytes=start_bytes):
                at_bytes += len(chunk)
                yield chunk
        except SourceUnavailableError as error:
            if at_bytes == start_bytes:
                self._note(error)
                raise
        else:
            return
        # What has begun to come is worth waiting for.
        yield from patient.chunks(repo, commit, entry, start_bytes=at_bytes)

    def _note(self, error: KernelHubError) -> None:
        """Remember a failure, and tell of the first; several threads may find out together."""
        with self._guard:
            is_first = self.failed is None
            self.failed = self.failed or error
        if is_first:
            _LOG.warning("%s; using what is in the cache", error.message)
