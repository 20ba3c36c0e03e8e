from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from kernel_hub.errors import (
    AccessDeniedError,
    EntryNotFoundError,
    KernelHubError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SourceUnavailableError,
)
from kernel_hub.sources.hub_refusal import Subject, asked_wait_s, refusal

URL = "http://hub/api"
REPO = Subject("acme/axpy")
REVISION = Subject("acme/axpy", "v1")
FILE = Subject("acme/axpy", "v1", "README.md")


@pytest.mark.parametrize(
    ("status", "headers", "subject", "error"),
    [
        (404, {"x-error-code": "RepoNotFound"}, FILE, RepositoryNotFoundError),
        (401, {"x-error-code": "RepoNotFound"}, REPO, RepositoryNotFoundError),
        (404, {"x-error-code": "RevisionNotFound"}, FILE, RevisionNotFoundError),
        (404, {"x-error-code": "EntryNotFound"}, FILE, EntryNotFoundError),
        (403, {"x-error-code": "GatedRepo"}, FILE, AccessDeniedError),
        (401, {}, REPO, AccessDeniedError),
        (403, {}, REPO, AccessDeniedError),
        (404, {}, REPO, RepositoryNotFoundError),
        (404, {}, REVISION, RevisionNotFoundError),
        (404, {}, FILE, EntryNotFoundError),
        (500, {}, REPO, SourceUnavailableError),
        (418, {}, REPO, SourceUnavailableError),
        (416, {}, FILE, SourceUnavailableError),
    ],
)
def test_each_refusal_has_its_error(
    status: int, headers: dict[str, str], subject: Subject, error: type[KernelHubError]
) -> None:
    found = refusal(status, headers, b'{"error": "because"}', url=URL, subject=subject)
    assert type(found) is error
    assert "acme/axpy" in found.message or URL in found.message


@pytest.mark.parametrize("status", [200, 404, 500])
def test_a_web_page_is_not_an_answer_of_a_hub(status: int) -> None:
    found = refusal(status, {"content-type": "text/html"}, b"<html>", url=URL, subject=FILE)
    assert isinstance(found, SourceUnavailableError)
    assert "HF_ENDPOINT" in found.hint()


def test_access_denied_says_how_to_authenticate() -> None:
    for headers in ({}, {"x-error-code": "GatedRepo"}):
        assert "HF_TOKEN" in refusal(403, headers, b"", url=URL, subject=REPO).hint()


def test_the_servers_reason_is_told_without_what_could_move_a_cursor() -> None:
    content = b'{"error": "no\\u001b[2J way\\n\\nout"}'
    message = refusal(403, {}, content, url=URL, subject=REPO).args[0]
    assert "no [2J way out" in message
    assert "\x1b" not in message


def test_a_reason_has_an_end() -> None:
    content = b'{"error": "' + b"x" * 100_000 + b'"}'
    assert len(refusal(403, {}, content, url=URL, subject=REPO).args[0]) < 1000


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"error": 3}', b'{"error": null}', b"[" * 100_000, b"\xff"])
def test_a_body_that_says_nothing_is_no_fault(content: bytes) -> None:
    assert "no reason given" in refusal(403, {}, content, url=URL, subject=REPO).args[0]


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0 "}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"ratelimit": '"api";r=0;t=55'}, 55.0),
        ({"ratelimit": '"api";r=3;t=55'}, None),
        ({"retry-after": "2", "ratelimit": '"api";r=0;t=55'}, 2.0),
        ({"retry-after": "9" * 30}, 365 * 86400.0),
    ],
)
def test_a_wait_is_read_in_each_of_its_forms(headers: dict[str, str], wait_s: float | None) -> None:
    assert asked_wait_s(headers) == wait_s


def test_a_date_ahead_is_a_wait() -> None:
    ahead = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    found = asked_wait_s({"retry-after": ahead})
    assert found is not None
    assert 3500 < found <= 3600


def test_a_busy_server_is_told_with_its_wait() -> None:
    found = refusal(429, {"retry-after": "30"}, b"", url=URL, subject=REPO)
    assert isinstance(found, SourceUnavailableError)
    assert (found.status, found.retry_after_s, found.url) == (429, 30.0, URL)
    assert "30 s" in found.message
