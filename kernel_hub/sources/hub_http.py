"""Requests to a Hub: headers, redirects, retries and bounds, over huggingface_hub's own session.

The session is huggingface_hub's so that proxies, certificates and a client factory that the user has set apply here too.
Its request functions are not used, because they wait without a limit in places, retry by kind of request instead of by
what the caller can do without an answer, and follow redirects to anywhere.

Bounds of every call: redirects, tries, seconds in all, seconds without a byte, bytes of an answer. The token goes to the
endpoint's own origin and nowhere else.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from types import ModuleType
from typing import Any
from urllib.parse import urljoin, urlsplit

from kernel_hub.errors import InvalidDocumentError, KernelHubError, OfflineError, SourceUnavailableError
from kernel_hub.model.value import dataclass
from kernel_hub.sources.hub_refusal import HUB, RETRIED, Place, Subject, refusal, unavailable

_LOG = logging.getLogger("kernel_hub")
_MAX_REDIRECTS = 5
_MAX_TRIES = 6
# A server that refuses connections comes back less often than one that answers "busy".
_MAX_REFUSED_TRIES = 3
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 8.0
_TOLD_FROM_S = 1.0
_ERROR_BODY_BYTES = 64 << 10
_CHUNK_BYTES = 1 << 20
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

RedirectRule = Callable[[str], None]
"""Raises for an address that a redirect must not lead to."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a request may take.

    Attributes:
        patience_s: In all, with every try and wait.
        stall_s: Without a byte, until a try counts as failed.
        tries: At most.
    """

    patience_s: float = 60.0
    stall_s: float = 10.0
    tries: int = _MAX_TRIES

    def hurried(self, patience_s: float) -> Limits:
        """One short try, for a caller who can do without an answer."""
        return replace(self, patience_s=patience_s, stall_s=min(self.stall_s, patience_s), tries=1)


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer.

    Attributes:
        url: Where it came from, after redirects.
        headers: By lower-case name.
        content: The whole body.
    """

    url: str
    headers: Mapping[str, str]
    content: bytes


class TryFailedError(Exception):
    """One try that a later one may make good.

    Attributes:
        error: What to raise if there is no later one.
        refused: Whether not even a connection came about.
    """

    def __init__(self, error: KernelHubError, *, refused: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.refused = refused


@dataclass(frozen=True, slots=True)
class HubClient:
    """Makes GET requests to one Hub.

    Attributes:
        endpoint: The Hub's URL, without a trailing slash.
        headers: Sent with every request.
        token: Sent to the endpoint's own origin only; None for none.
        limits: See `Limits`.
        clock, sleep: The time; replaced in tests.
        place: The Hub, for hints.
    """

    endpoint: str
    headers: Mapping[str, str]
    token: str | None = field(default=None, repr=False)
    limits: Limits = Limits()
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    place: Place = HUB

    def hurried(self, patience_s: float) -> HubClient:
        """The same with one short try; what only the first request needs is loaded now, so that it does not count."""
        transport()
        return replace(self, limits=self.limits.hurried(patience_s))

    def get(self, path: str, subject: Subject, *, limit_bytes: int, allow: RedirectRule | None = None) -> Answer:
        """The whole answer to a GET.

        Args:
            path: Below the endpoint, or a URL.
            subject: What it is about, for errors.
            limit_bytes: The longest body that is accepted.
            allow: See `RedirectRule`.

        Raises:
            SourceUnavailableError: If there is no answer in time.
            InvalidDocumentError: If the body is longer than `limit_bytes`.
            KernelHubError: The Hub's refusal.
        """
        url = path if "://" in path else f"{self.endpoint}/{path}"
        course = self.course()
        while True:
            try:
                with self.opened(url, subject, allow=allow) as response:
                    content = self._body(response, limit_bytes, course)
                    return Answer(str(response.url), lowered(response.headers), content)
            except TryFailedError as failed:
                course.again(failed)

    def course(self) -> Course:
        """A fresh allowance of tries and time."""
        return Course(self.limits, self.clock, self.sleep)

    @contextlib.contextmanager
    def opened(
        self, url: str, subject: Subject, *, headers: Mapping[str, str] | None = None, allow: RedirectRule | None = None
    ) -> Iterator[Any]:
        """One try: the head of a successful answer, with its body still to be read.

        Raises:
            TryFailedError: If there is none, but a later try may bring one.
            KernelHubError: The Hub's refusal, or a redirect to where this does not go.
        """
        library, session = transport()
        asked = url
        with translated(library, asked, self.place.reach(subject)):
            for _ in range(_MAX_REDIRECTS + 1):
                sent = {**self.headers, **(headers or {})}
                if self.token and origin(url) == origin(self.endpoint):
                    sent["Authorization"] = f"Bearer {self.token}"
                timeout_s = min(self.limits.stall_s, self.limits.patience_s)
                with session.stream("GET", url, headers=sent, timeout=timeout_s, follow_redirects=False) as response:
                    if response.status_code in _REDIRECTS:
                        url = _redirect(url, response.headers.get("location", ""), allow)
                        continue
                    if response.status_code >= 300:
                        raise _refused(response, url, subject, self.place)
                    yield response
                    return
        raise SourceUnavailableError(f"{asked} redirects more than {_MAX_REDIRECTS} times", url=asked)

    def _body(self, response: Any, limit_bytes: int, course: Course) -> bytes:
        parts, length_bytes = [], 0
        for chunk in response.iter_bytes(_CHUNK_BYTES):
            parts.append(chunk)
            length_bytes += len(chunk)
            if length_bytes > limit_bytes:
                raise InvalidDocumentError(str(response.url), f"is longer than {limit_bytes} bytes")
            if course.is_over():
                url = str(response.url)
                raise SourceUnavailableError(f"{url} is still sending after {self.limits.patience_s:g} s", url=url)
        return b"".join(parts)


class Course:
    """The tries of one call: counts them, waits between them, and ends them."""

    def __init__(self, limits: Limits, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._limits = limits
        self._clock = clock
        self._sleep = sleep
        self._started_s = clock()
        self._tries = 1

    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self._clock() - self._started_s > self._limits.patience_s

    def progressed(self) -> None:
        """Start over, because the last try brought something."""
        self._started_s = self._clock()
        self._tries = 1

    def again(self, failed: TryFailedError) -> None:
        """Wait before the next try.

        Raises:
            KernelHubError: The failure's, if there is to be no next try.
        """
        error = failed.error
        told_s = error.retry_after_s if isinstance(error, SourceUnavailableError) else None
        wait_s = min(_FIRST_WAIT_S * 2 ** (self._tries - 1), _LONGEST_WAIT_S) if told_s is None else told_s
        left_s = self._limits.patience_s - (self._clock() - self._started_s)
        most = min(self._limits.tries, _MAX_REFUSED_TRIES if failed.refused else _MAX_TRIES)
        if self._tries >= most or wait_s > left_s:
            raise error from None
        if wait_s >= _TOLD_FROM_S:
            _LOG.warning("%s; trying again in %.3g s", error.message, wait_s)
        self._sleep(wait_s)
        self._tries += 1


def transport() -> tuple[ModuleType, Any]:
    """The HTTP library that huggingface_hub is built on (its major versions differ in that), and its session."""
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    root = next(kind for kind in HfHubHTTPError.__mro__ if kind.__name__ == "HTTPError")
    return importlib.import_module(root.__module__.partition(".")[0]), get_session()


@contextlib.contextmanager
def translated(library: ModuleType, url: str, hint: str) -> Iterator[None]:
    """Turn the HTTP library's errors into ours, whole: below them are only the library's own frames.

    Args:
        library: See `transport`.
        url: What is asked.
        hint: What to do if it cannot be reached.
    """
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        yield
    except OfflineModeIsEnabled:
        raise OfflineError(f"{url} may not be asked: huggingface_hub is in offline mode (HF_HUB_OFFLINE)") from None
    except (library.InvalidURL, library.LocalProtocolError, library.UnsupportedProtocol) as error:
        raise SourceUnavailableError(f"{url} cannot be asked: {error}", url=url, hint=hint) from None
    except library.TimeoutException:
        raise TryFailedError(SourceUnavailableError(f"{url} does not answer in time", url=url, hint=hint)) from None
    except library.ConnectError as error:
        reason = str(error) or type(error).__name__
        failure = SourceUnavailableError(f"{url} cannot be reached: {reason}", url=url, hint=hint)
        raise TryFailedError(failure, refused=True) from None
    except library.RequestError as error:
        reason = str(error) or type(error).__name__
        raise TryFailedError(SourceUnavailableError(f"{url}: the connection broke: {reason}", url=url)) from None


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a URL: what a token belongs to. A text that is no URL has an origin of its own."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return "", url, -1
    return parts.scheme, (parts.hostname or "").lower(), port


def lowered(headers: Any) -> dict[str, str]:
    """An answer's headers by lower-case name."""
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _redirect(url: str, location: str, allow: RedirectRule | None) -> str:
    try:
        target = urljoin(url, location)
    except ValueError:
        target = ""
    if not location or origin(target)[0] not in ("http", "https"):
        raise SourceUnavailableError(f"{url} redirects to {location!r}, which is no web address", url=url)
    if origin(url)[0] == "https" and origin(target)[0] == "http":
        raise SourceUnavailableError(f"{url} redirects to an address without encryption ({target})", url=url)
    if allow is not None:
        allow(target)
    return target


def _refused(response: Any, url: str, subject: Subject, place: Place) -> Exception:
    headers = lowered(response.headers)
    if response.status_code in RETRIED:
        return TryFailedError(unavailable(response.status_code, headers, url=url))
    parts, length_bytes = [], 0
    for chunk in response.iter_bytes(_ERROR_BODY_BYTES):
        parts.append(chunk)
        length_bytes += len(chunk)
        if length_bytes >= _ERROR_BODY_BYTES:
            break
    return refusal(response.status_code, headers, b"".join(parts), url=url, subject=subject, place=place)
