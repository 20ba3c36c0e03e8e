"""The Hub as a sink: repositories, branches and commits through huggingface_hub's client.

Implements `kernel_hub.model.source.Sink`. A server says by itself whether a file goes into the commit or by large-file
storage; whether it also takes Xet it does not say, and huggingface_hub goes by what is installed here, so that is found out
first. A commit whose answer got lost is looked for before it is made again. Leaves out what belongs into a commit (see
`kernel_hub.build.publish`).
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from urllib.parse import quote

from kernel_hub import __version__
from kernel_hub.errors import (
    AccessDeniedError,
    ConflictError,
    KernelHubError,
    ResolutionError,
    SourceUnavailableError,
)
from kernel_hub.model.commit import StoredBlob
from kernel_hub.model.repo_path import check_file_path, check_ref_name
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, FileEntry, LfsBlob, Proposal, Refs
from kernel_hub.sources.hub_headers import checked_token, implicit_token, user_agent_text
from kernel_hub.sources.hub_http import Course, HubClient, Limits, TryFailedError, lowered, translated, transport
from kernel_hub.sources.hub_refusal import HUB, RETRIED, Place, Subject, refusal, unavailable
from kernel_hub.sources.hub_source import HubSource, checked_endpoint

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_LOG = logging.getLogger("kernel_hub")
_KIND = "kernel"
_MAIN = "main"
_MAX_TOKEN_ANSWER_BYTES = 1 << 20
_READ_UP_TO_BYTES = 1 << 20
# A server that answers so says that it did nothing.
_NOT_DONE = (429, 503)
_T = TypeVar("_T")


class HubSink:
    """Publishes kernels to a Hub.

    Args:
        endpoint: The Hub's URL.
        token: A token for it; None finds the stored one, but only for the endpoint that huggingface_hub itself is set to.
        user_agent: The caller's addition to the user agent.
        telemetry: Whether requests may name the versions of this machine.
        host_facts: Those versions.
        limits: How long one operation may be tried again.
        place: The Hub, for hints.
        clock, sleep: The time; replaced in tests.

    Raises:
        InvalidDocumentError: If the endpoint is no http(s) URL or holds credentials, or the token is no token.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: str | None = None,
        user_agent: str | Mapping[str, str] | None = None,
        telemetry: bool = True,
        host_facts: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        place: Place = HUB,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._name = checked_endpoint(endpoint)
        self._limits = limits or Limits()
        self._clock = clock
        self._sleep = sleep
        self._token = checked_token(token) if token else implicit_token(self._name)
        self._headers = {"User-Agent": user_agent_text(user_agent, telemetry=telemetry, host_facts=host_facts or {})}
        self._client = HubClient(self._name, self._headers, self._token, self._limits, clock, sleep, place)
        self._source = HubSource(self._name, client=self._client)

    @property
    def name(self) -> str:
        """The endpoint."""
        return self._name

    @property
    def client(self) -> HubClient:
        """What sends its plain requests."""
        return self._client

    def create_repo(self, repo: RepoId, *, private: bool = False) -> None:
        """See `Sink.create_repo`."""
        self._call(
            lambda api: api.create_repo(str(repo), repo_type=_KIND, private=private or None, exist_ok=True),
            Subject(str(repo)),
        )

    def refs(self, repo: RepoId) -> Refs:
        """See `Sink.refs`."""
        return self._source.refs(repo)

    def files(self, repo: RepoId, commit: str, prefix: str = "") -> tuple[FileEntry, ...]:
        """See `Sink.files`."""
        return self._source.files(repo, commit, prefix)

    def read(self, repo: RepoId, commit: str, path: str, *, limit_bytes: int) -> bytes:
        """See `Sink.read`."""
        return self._source.read(repo, commit, path, limit_bytes=limit_bytes)

    def create_branch(self, repo: RepoId, branch: str, *, start: str | None = None) -> str:
        """See `Sink.create_branch`."""
        check_ref_name(branch)
        head = self._source.refs(repo).branches.get(branch)
        if head is not None:
            return head
        self._call(
            lambda api: api.create_branch(str(repo), branch=branch, revision=start, repo_type=_KIND, exist_ok=True),
            Subject(str(repo), start or _MAIN),
        )
        return self._source.refs(repo).branches[branch]

    def commit(
        self,
        repo: RepoId,
        branch: str,
        *,
        parent: str,
        additions: Sequence[Addition],
        deletions: Sequence[str],
        message: str,
    ) -> str:
        """See `Sink.commit`."""
        make = self._making(repo, branch, parent, additions, deletions, message)

        def made(api: HfApi) -> str:
            return str(make(api, False).oid)

        def found() -> str | None:
            """The head, if it is what this commit makes of the parent; None if the parent is still the head."""
            head = self._source.refs(repo).branches.get(branch)
            if head == parent:
                return None
            if head is None or not self._holds(repo, head, additions, deletions):
                raise ConflictError(
                    f"branch {branch!r} of {repo} is not at {parent[:12]} any more", hint="read it again and retry"
                )
            return head

        return self._call(made, Subject(str(repo), branch), found)

    def propose(
        self,
        repo: RepoId,
        branch: str,
        *,
        parent: str,
        additions: Sequence[Addition],
        deletions: Sequence[str],
        message: str,
    ) -> Proposal:
        """See `Sink.propose`."""
        make = self._making(repo, branch, parent, additions, deletions, message)

        def proposed(api: HfApi) -> Proposal:
            done = make(api, True)
            return Proposal(int(done.pr_num), str(done.oid), str(done.pr_url))

        def lost() -> None:
            # Which of the repository's proposals would be this one, nobody could tell; a second one is worse than asking.
            raise SourceUnavailableError(
                f"{self._name}: {repo}: whether the proposal was made is not known, because the answer was lost",
                url=f"{self._name}/kernels/{repo}/discussions",
                hint=f"look at {self._name}/kernels/{repo}/discussions, and try again only if it is not there",
            )

        return self._call(proposed, Subject(str(repo), branch), lost)

    def _making(
        self,
        repo: RepoId,
        branch: str,
        parent: str,
        additions: Sequence[Addition],
        deletions: Sequence[str],
        message: str,
    ) -> Callable[[HfApi, bool], Any]:
        """What makes a commit, or a proposal of one, and may be called again."""
        for path in (*(addition.path for addition in additions), *deletions):
            check_file_path(path, document="commit")
        by_path = any(isinstance(addition.content, Path) for addition in additions) and self._offers_xet(repo, branch)

        def make(api: HfApi, propose: bool) -> Any:
            with contextlib.ExitStack() as files:
                operations = _operations(additions, deletions, files, by_path=by_path)
                return api.create_commit(
                    str(repo),
                    operations,
                    commit_message=message,
                    repo_type=_KIND,
                    revision=branch,
                    parent_commit=parent,
                    create_pr=propose,
                )

        return make

    def _call(self, call: Callable[[HfApi], _T], subject: Subject, found: Callable[[], _T | None] | None = None) -> _T:
        """Do something through huggingface_hub.

        Args:
            call: What to do.
            subject: What it is about, for errors.
            found: Looks whether it was done although the answer did not arrive; None if doing it twice is harmless.
        """
        course = Course(self._limits, self._clock, self._sleep)
        while True:
            try:
                with self._translating(subject):
                    return call(self._api())
            except TryFailedError as failed:
                course.again(failed)
                refused = isinstance(failed.error, SourceUnavailableError) and failed.error.status in _NOT_DONE
                if found is not None and not refused and (result := found()) is not None:
                    return result
            except ConflictError:
                # The first try may have been the one that moved the branch.
                if found is not None and (result := found()) is not None:
                    return result
                raise

    def _api(self) -> HfApi:
        from huggingface_hub import HfApi

        return HfApi(
            self._name,
            token=self._token or False,
            library_name="kernel_hub",
            library_version=__version__,
            headers={"user-agent": self._headers["User-Agent"]},
        )

    @contextlib.contextmanager
    def _translating(self, subject: Subject) -> Iterator[None]:
        from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

        library, _ = transport()
        with translated(library, self._name, self._client.place.reach(subject)):
            try:
                yield
            except HfHubHTTPError as error:
                raise _meaning(error, subject, self._client.place) from None
            except OfflineModeIsEnabled:
                raise
            except (ValueError, RuntimeError, ConnectionError) as error:
                # huggingface_hub says so when an upload, of which it keeps the answer to itself, does not succeed.
                raise SourceUnavailableError(
                    f"{self._name}: {subject.repo}: {error}",
                    url=self._name,
                    hint="older huggingface_hub cannot publish kernels: pip install -U huggingface_hub"
                    if "repo type" in str(error)
                    else "",
                ) from None

    def _offers_xet(self, repo: RepoId, branch: str) -> bool:
        place = f"api/kernels/{repo}/xet-write-token/{quote(branch, safe='')}"
        try:
            self._client.get(place, Subject(str(repo), branch), limit_bytes=_MAX_TOKEN_ANSWER_BYTES)
        except (ResolutionError, AccessDeniedError, SourceUnavailableError) as error:
            _LOG.debug("%s offers no Xet: %s", self._name, error.message)
            return False
        return True

    def _holds(self, repo: RepoId, head: str, additions: Sequence[Addition], deletions: Sequence[str]) -> bool:
        there = {entry.path: entry for entry in self._source.files(repo, head)}
        added = {addition.path for addition in additions}
        return all(path in added or path not in there for path in deletions) and all(
            addition.path in there and _is(there[addition.path], addition.content) for addition in additions
        )


def _operations(
    additions: Sequence[Addition], deletions: Sequence[str], files: contextlib.ExitStack, *, by_path: bool
) -> list[Any]:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    def content_of(content: bytes | Path) -> str | BinaryIO:
        # Only file objects make huggingface_hub fall back from Xet to large-file storage. The number of files that a
        # process may have open is small, so small ones are read.
        if isinstance(content, bytes):
            return io.BytesIO(content)
        if by_path:
            return str(content)
        if content.stat().st_size <= _READ_UP_TO_BYTES:
            return io.BytesIO(content.read_bytes())
        return files.enter_context(content.open("rb"))

    added = {addition.path for addition in additions}
    return [
        *(CommitOperationDelete(path, is_folder=False) for path in deletions if path not in added),
        *(CommitOperationAdd(addition.path, content_of(addition.content)) for addition in additions),
    ]


def _is(entry: FileEntry, content: bytes | Path) -> bool:
    blob = StoredBlob.of(content if isinstance(content, bytes) else content.read_bytes())
    return entry.blob.id == (blob.digest if isinstance(entry.blob, LfsBlob) else blob.git_id)


def _meaning(error: Any, subject: Subject, place: Place) -> KernelHubError | TryFailedError:
    response = error.response
    headers = lowered(response.headers)
    url = str(response.url)
    if response.status_code in (409, 412):
        return ConflictError(f"{subject.repo}@{subject.revision}: {error.server_message or error}")
    if response.status_code in RETRIED:
        return TryFailedError(unavailable(response.status_code, headers, url=url))
    try:
        content = response.content
    except transport()[0].ResponseNotRead:
        content = b""
    return refusal(response.status_code, headers, content, url=url, subject=subject, place=place, writes=True)
