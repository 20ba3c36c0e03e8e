"""What the Hub's refusals mean: an HTTP answer that is not a success becomes the error that says what to do.

Pure. The header `X-Error-Code` decides where it is present; its absence is common on mirrors and proxies, so the status
and the shape of the answer decide then. A page of HTML is never an answer of the Hub's API, whatever its status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from kernel_hub.errors import (
    AccessDeniedError,
    EntryNotFoundError,
    KernelHubError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SourceUnavailableError,
)
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.value import dataclass

_RATE_LIMIT = Pattern(r'"[^"]*"\s*;\s*r\s*=\s*0\s*;\s*t\s*=\s*(\d+)')
_LONGEST_NAMED_WAIT_S = 365 * 86400.0
_MAX_REASON_CHARS = 300


@dataclass(frozen=True, slots=True)
class Subject:
    """What a request was about, for messages.

    Attributes:
        repo: The repository's name, or the namespace's.
        revision: The revision asked for; empty if the request was about the repository as a whole.
        path: The file asked for; empty if none.
    """

    repo: str
    revision: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """The server that a request goes to, as far as hints speak of it.

    Attributes:
        setting: What names the server: a variable, a file's table, or an option.
        credentials: How it is given a token.
        unbound_at: The Hub's URL, if kernels are looked up there because nothing binds their namespace; else empty.
        is_own: Whether it is a server that the reader, or somebody near, has to keep running.
    """

    setting: str = "HF_ENDPOINT"
    credentials: str = "set HF_TOKEN, or log in with `hf auth login`,"
    unbound_at: str = ""
    is_own: bool = False

    def authenticate(self, *, writes: bool) -> str:
        """What to do when it does not say yes to who asks."""
        return f"{self.credentials} as a user who may {'write to' if writes else 'read'} it"

    def reach(self, subject: Subject) -> str:
        """What to do when it does not answer."""
        if self.is_own:
            return f"check that the server is running, and its address ({self.setting})"
        return f"check the network, and the endpoint ({self.setting}){self.told_apart(subject)}"

    def told_apart(self, subject: Subject) -> str:
        """Why the request came here and not to a registry, to stand after a hint; empty if it could not be otherwise."""
        if not self.unbound_at:
            return ""
        return (
            f"; {subject.repo.partition('/')[0]!r} is looked up at {self.unbound_at} because no registry is bound to it "
            "(KERNEL_HUB_REGISTRIES or [tool.kernel-hub.registries])"
        )


HUB = Place()


def refusal(
    status: int,
    headers: Mapping[str, str],
    content: bytes,
    *,
    url: str,
    subject: Subject,
    place: Place = HUB,
    writes: bool = False,
) -> KernelHubError:
    """The error that an unsuccessful answer stands for.

    Args:
        status: The HTTP status.
        headers: By lower-case name.
        content: The beginning of the body.
        url: What was asked.
        subject: What it was about.
        place: The server.
        writes: Whether it was to change something.
    """
    authenticate = place.authenticate(writes=writes)
    code = headers.get("x-error-code", "")
    reason = _reason(headers, content)
    if code == "GatedRepo":
        return AccessDeniedError(
            f"{subject.repo} is gated: {reason}", hint=f"ask for access on its page, then {authenticate}"
        )
    if code == "RepoNotFound":
        return _no_repo(subject, url, place, authenticate)
    if code == "RevisionNotFound":
        return _no_revision(subject, url)
    if code == "EntryNotFound":
        return _no_entry(subject, url) if subject.path else EntryNotFoundError(f"{subject.repo}: {reason} ({url})")
    if status in (401, 403):
        access = f"{'writing' if writes else 'reading'} ({status})"
        return AccessDeniedError(f"{subject.repo}: {url} refuses {access}: {reason}", hint=authenticate)
    if is_html(headers, content):
        return not_the_hub(url, status, place)
    if status == 404:
        if subject.path:
            return _no_entry(subject, url)
        return _no_revision(subject, url) if subject.revision else _no_repo(subject, url, place, authenticate)
    return unavailable(status, headers, url=url, reason=reason)


def unavailable(status: int, headers: Mapping[str, str], *, url: str, reason: str = "") -> SourceUnavailableError:
    """The error for an answer that says "not now"."""
    wait_s = asked_wait_s(headers)
    told = f", and asks to wait {wait_s:g} s" if wait_s is not None else ""
    return SourceUnavailableError(
        f"{url} answered {status}{told}{f': {reason}' if reason else ''}",
        url=url,
        status=status,
        retry_after_s=wait_s,
        hint="try again later" if status in RETRIED else "",
    )


def not_the_hub(url: str, status: int, place: Place = HUB) -> SourceUnavailableError:
    """The error for a page of HTML where JSON belongs."""
    return SourceUnavailableError(
        f"{url} answered with a web page (status {status}), not as a Hub does",
        url=url,
        status=status,
        hint=f"check the address ({place.setting}), and whether a proxy or log-in page is in between",
    )


RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that a later try may change."""


def asked_wait_s(headers: Mapping[str, str]) -> float | None:
    """How long the server asks to wait: `Retry-After` in seconds or as a date, else an exhausted `RateLimit`."""
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return min(float(text), _LONGEST_NAMED_WAIT_S)
    if text:
        try:
            until = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    found = _RATE_LIMIT.search(headers.get("ratelimit", ""))
    return min(float(found[1]), _LONGEST_NAMED_WAIT_S) if found else None


def is_html(headers: Mapping[str, str], content: bytes) -> bool:
    """Whether an answer is a web page."""
    return "html" in headers.get("content-type", "").lower() or content.lstrip()[:1] == b"<"


def _reason(headers: Mapping[str, str], content: bytes) -> str:
    told = headers.get("x-error-message", "")
    if not told and not is_html(headers, content):
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        error = body.get("error") if isinstance(body, dict) else None
        told = error if isinstance(error, str) else ""
    # A server's text goes to a terminal: nothing in it may move the cursor.
    printable = "".join(char if char.isprintable() else " " for char in told)
    return " ".join(printable.split())[:_MAX_REASON_CHARS] or "no reason given"


def _no_repo(subject: Subject, url: str, place: Place, authenticate: str) -> RepositoryNotFoundError:
    return RepositoryNotFoundError(
        f"{subject.repo} does not exist at {url}, or you may not see it",
        hint=f"check the name; if it is private, {authenticate}{place.told_apart(subject)}",
    )


def _no_revision(subject: Subject, url: str) -> RevisionNotFoundError:
    return RevisionNotFoundError(f"{subject.repo} has no revision {subject.revision!r} ({url})")


def _no_entry(subject: Subject, url: str) -> EntryNotFoundError:
    return EntryNotFoundError(f"{subject.repo} has no file {subject.path!r} at {subject.revision[:12]} ({url})")
