"""The Hub as a source: plain GET requests of the kernel endpoints, checked.

Implements `kernel_hub.model.source.Source` over the protocol of the Hugging Face Hub for repositories of type `kernel`,
which any server may speak (`kernel-hub serve` does). Leaves out publishing (see `kernel_hub.sources.hub_sink`), and
remembering anything (see `kernel_hub.sources.wrappers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from kernel_hub.errors import (
    EntryNotFoundError,
    InvalidDocumentError,
    KernelHubError,
    RepositoryNotFoundError,
    SourceUnavailableError,
)
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.repo_path import check_file_path, check_prefix
from kernel_hub.model.requirement import RepoId, is_commit
from kernel_hub.model.source import FileEntry, PublisherStanding, Refs
from kernel_hub.sources import hub_json, hub_xet
from kernel_hub.sources.hub_headers import checked_token, implicit_token, user_agent_text
from kernel_hub.sources.hub_http import Answer, HubClient, Limits, TryFailedError, origin
from kernel_hub.sources.hub_refusal import HUB, Place, Subject, is_html, not_the_hub

_NEXT = Pattern(r'<([^<>]+)>\s*;[^,<]*\brel="?next"?')
_CONTENT_RANGE = Pattern(r"bytes (\d+)-")
_MAX_PAGES = 300
_CHUNK_BYTES = 1 << 20


class HubSource:
    """Reads kernels from a Hub.

    Args:
        endpoint: The Hub's URL.
        token: A token for it; None finds the stored one, but only for the endpoint that huggingface_hub itself is set to.
        user_agent: The caller's addition to the user agent.
        telemetry: Whether requests may name the versions of this machine.
        host_facts: Those versions.
        limits: How long requests may take.
        client: Makes the requests; replaced in tests.
        place: The Hub, for hints.
        xet: Brings large files from the Hub's store of chunks; None leaves that to what is installed and allowed.
        environ_names_token: See `implicit_token`.

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
        client: HubClient | None = None,
        place: Place = HUB,
        xet: hub_xet.XetGet | None = None,
        environ_names_token: bool = True,
    ) -> None:
        self._name = checked_endpoint(endpoint)
        headers = {"User-Agent": user_agent_text(user_agent, telemetry=telemetry, host_facts=host_facts or {})}
        self._client = client or HubClient(
            self._name, headers, token=checked_token(token) if token else None, limits=limits or Limits(), place=place
        )
        self._finds_token = token is None and client is None
        self._environ_names_token = environ_names_token
        self._xet = xet
        self._xet_failed = False

    @property
    def name(self) -> str:
        """The endpoint."""
        return self._name

    def hurried(self, patience_s: float) -> HubSource:
        """The same source with one short try, for a caller who can do without an answer."""
        return HubSource(self._name, client=self._ready().hurried(patience_s))

    def refs(self, repo: RepoId) -> Refs:
        """See `Source.refs`."""
        answer = self._api(repo, "refs", Subject(str(repo)))
        return hub_json.refs_of(answer.content, answer.url)

    def commit_of(self, repo: RepoId, revision: str) -> str:
        """See `Source.commit_of`."""
        answer = self._api(repo, f"revision/{quote(revision, safe='')}", Subject(str(repo), revision))
        commit = hub_json.commit_of(answer.content, answer.url)
        if is_commit(revision) and commit != revision:
            raise InvalidDocumentError(answer.url, f"names commit {commit} when asked for {revision}", location="sha")
        return commit

    def files(self, repo: RepoId, commit: str, prefix: str = "") -> tuple[FileEntry, ...]:
        """See `Source.files`.

        Raises:
            UnsafePathError: If the server lists a path that leads outside.
        """
        check_prefix(prefix)
        subject = Subject(str(repo), commit)
        place = f"tree/{quote(commit, safe='')}" + (f"/{quote(prefix, safe='')}" if prefix else "")
        try:
            answer = self._api(repo, f"{place}?recursive=true", subject)
        except EntryNotFoundError:
            if prefix:
                return ()
            raise
        found: list[FileEntry] = []
        for page in self._pages(answer, subject, str(repo)):
            found.extend(hub_json.page_of(page.content, page.url))
            if len(found) > hub_json.MAX_FILES:
                raise InvalidDocumentError(answer.url, f"lists more than {hub_json.MAX_FILES} files")
        return hub_json.listing_of(found, prefix, answer.url)

    def commits(self, repo: RepoId, revision: str) -> tuple[str, ...]:
        """See `History.commits`."""
        subject = Subject(str(repo), revision)
        answer = self._api(repo, f"commits/{quote(revision, safe='')}", subject)
        pages = self._pages(answer, subject, str(repo))
        return tuple(id for page in pages for id in hub_json.commits_of(page.content, page.url))

    def _pages(self, first: Answer, subject: Subject, owner: str) -> Iterator[Answer]:
        answer, asked = first, {first.url}
        yield answer
        while (following := _next_page(answer)) is not None:
            if origin(following) != origin(first.url) or following in asked:
                raise InvalidDocumentError(first.url, f"continues at {following!r}, which is not a further page of it")
            if len(asked) >= _MAX_PAGES:
                raise InvalidDocumentError(first.url, f"has more than {_MAX_PAGES} pages")
            asked.add(following)
            answer = self._get(following, subject, owner)
            yield answer

    def read(self, repo: RepoId, commit: str, path: str, *, limit_bytes: int) -> bytes:
        """See `Source.read`."""
        subject = Subject(str(repo), commit, path)
        return self._ready().get(_file_place(repo, commit, path), subject, limit_bytes=limit_bytes).content

    def chunks(self, repo: RepoId, commit: str, entry: FileEntry, *, start_bytes: int = 0) -> Iterator[bytes]:
        """See `Source.chunks`. A broken connection is taken up again where it broke."""
        client = self._ready()
        subject = Subject(str(repo), commit, entry.path)
        url = f"{self._name}/{_file_place(repo, commit, entry.path)}"
        course = client.course()
        at_bytes = start_bytes
        while at_bytes < entry.size_bytes:
            headers = {"Accept-Encoding": "identity"}
            if at_bytes:
                headers["Range"] = f"bytes={at_bytes}-"
            try:
                with client.opened(url, subject, headers=headers) as response:
                    passed_over_bytes = _passed_over(response, at_bytes, url)
                    for chunk in response.iter_bytes(_CHUNK_BYTES):
                        fresh = chunk[passed_over_bytes:]
                        passed_over_bytes -= len(chunk) - len(fresh)
                        if fresh:
                            course.progressed()
                            at_bytes += len(fresh)
                            yield fresh
                    return
            except TryFailedError as failed:
                course.again(failed)

    def download(self, repo: RepoId, commit: str, entry: FileEntry, place: Path, told: Callable[[int], None]) -> bool:
        """See `kernel_hub.cache.download.WholeFiles`: by Xet, if the Hub offers the file that way."""
        if self._xet_failed or not hub_xet.is_offered(entry):
            return False
        get = self._xet or (hub_xet.get_from_store if hub_xet.is_usable() else None)
        if get is None:
            return False
        client = self._ready()
        headers = dict(client.headers) | ({"Authorization": f"Bearer {client.token}"} if client.token else {})
        came = hub_xet.download(
            get,
            place,
            entry,
            token_url=f"{self._name}/api/kernels/{repo}/xet-read-token/{quote(commit, safe='')}",
            headers=headers,
            told=told,
            stall_s=client.limits.stall_s,
            clock=client.clock,
        )
        # What failed once in a process would fail, or make wait, for every further file.
        self._xet_failed = not came
        return came

    def publisher(self, namespace: str) -> PublisherStanding:
        """See `Source.publisher`."""
        try:
            answer = self._get(f"api/organizations/{quote(namespace, safe='')}/overview", Subject(namespace), namespace)
            return hub_json.standing_of(answer.content, answer.url)
        except RepositoryNotFoundError:
            return PublisherStanding(False, f"{self._name} knows no organization of that name")
        except KernelHubError as error:
            return PublisherStanding(None, error.message)

    def _api(self, repo: RepoId, place: str, subject: Subject) -> Answer:
        return self._get(f"api/kernels/{repo}/{place}", subject, str(repo))

    def _get(self, place: str, subject: Subject, owner: str) -> Answer:
        def allow(target: str) -> None:
            if origin(target) != origin(self._name):
                raise SourceUnavailableError(
                    f"{self._name} redirects to another place, {target}",
                    url=self._name,
                    hint="check the endpoint, and whether a proxy or log-in page is in between",
                )
            # A renamed repository may have gone to another publisher, whom nobody was asked about.
            if f"/{owner}/" not in urlsplit(target).path:
                raise RepositoryNotFoundError(
                    f"{owner} is not at {self._name} any more; it redirects to {target}",
                    hint="if you trust its new place, ask for the kernel by its new name",
                )

        answer = self._ready().get(place, subject, limit_bytes=hub_json.MAX_DOCUMENT_BYTES, allow=allow)
        if is_html(answer.headers, answer.content):
            raise not_the_hub(answer.url, 200, self._client.place)
        return answer

    def _ready(self) -> HubClient:
        if self._finds_token:
            # Found at the first request and not before, because that imports huggingface_hub.
            token = implicit_token(self._name, environ_names_token=self._environ_names_token)
            self._client = replace(self._client, token=token)
            self._finds_token = False
        return self._client


def checked_endpoint(endpoint: str) -> str:
    """An endpoint's URL without a trailing slash.

    Raises:
        InvalidDocumentError: If it is no http(s) URL, or holds credentials.
    """
    scheme, host, _ = origin(endpoint)
    if scheme not in ("http", "https") or not host or "?" in endpoint or "#" in endpoint:
        raise InvalidDocumentError("endpoint", f"{endpoint!r} is not an http(s) URL")
    if "@" in urlsplit(endpoint).netloc:
        raise InvalidDocumentError(
            "endpoint", f"the URL of {host} may not hold credentials", hint="set HF_TOKEN instead"
        )
    return endpoint.rstrip("/")


def _file_place(repo: RepoId, commit: str, path: str) -> str:
    return f"kernels/{repo}/resolve/{quote(commit, safe='')}/{quote(check_file_path(path))}"


def _next_page(answer: Answer) -> str | None:
    found = _NEXT.search(answer.headers.get("link", ""))
    return found[1] if found else None


def _passed_over(response: Any, start_bytes: int, url: str) -> int:
    """How many bytes at the beginning of the body were there before: all of them if the server ignores ranges."""
    if start_bytes == 0:
        return 0
    if response.status_code != 206:
        return start_bytes
    found = _CONTENT_RANGE.match(response.headers.get("content-range", ""))
    if found is None or int(found[1]) != start_bytes:
        raise SourceUnavailableError(f"{url} answers with another range than was asked for", url=url)
    return 0
