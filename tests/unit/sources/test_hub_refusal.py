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
from kernel_hub.sources.hub_refusal import Place, Subject, asked_wait_s, refusal

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


def test_a_refusal_says_whether_it_was_reading_or_writing() -> None:
    reading = refusal(403, {}, b"", url=URL, subject=REPO)
    writing = refusal(403, {}, b"", url=URL, subject=REPO, writes=True)
    assert "refuses reading (403)" in reading.message and "who may read it" in reading.hint()
    assert "refuses writing (403)" in writing.message and "who may write to it" in writing.hint()


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_server_that_is_not_the_hub_asks_for_its_own_credentials(status: int) -> None:
    place = Place(setting="--to http://hub", credentials="use --token-env NAME,", is_own=True)
    hint = refusal(status, {}, b"", url=URL, subject=REPO, place=place).hint()
    assert "--token-env NAME" in hint and "HF_TOKEN" not in hint
    assert "running" in place.reach(REPO) and "--to http://hub" in place.reach(REPO)
    assert "HF_ENDPOINT" not in place.reach(REPO)


def test_a_namespace_that_is_not_bound_is_told_apart_from_one_that_is() -> None:
    unbound = Place(unbound_at="http://hub")
    for hint in (refusal(404, {}, b"", url=URL, subject=REPO, place=unbound).hint(), unbound.reach(REPO)):
        assert "'acme' is looked up at http://hub because no registry is bound to it" in hint
        assert "[tool.kernel-hub.registries]" in hint and "KERNEL_HUB_REGISTRIES" in hint
    assert "looked up" not in Place().reach(REPO)
