from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.errors import (
    AccessDeniedError,
    EntryNotFoundError,
    InvalidDocumentError,
    KernelHubError,
    OfflineError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SourceUnavailableError,
    UnsafePathError,
)
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import FileEntry
from kernel_hub.sources.hub import HubSource
from kernel_hub.sources.hub_http import HubClient, Limits
from tests.support import faults as fault
from tests.support.fake_kernels import publish_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer

REPO = RepoId("acme", "axpy")
LARGE = os.urandom(3 << 20)


class Time:
    """A clock that stands still but for the waits."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits_s: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.waits_s.append(wait_s)
        self.now_s += wait_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def hub(start_hub: Callable[..., HubServer], faults: Faults) -> HubServer:
    server = start_hub(wrap=faults)
    publish_fake_kernel(server.registry, REPO, builds=["torch-cpu"], extra_files={"large.bin": LARGE, "empty": b""})
    server.registry.set_publisher("acme", True)
    return server


@pytest.fixture
def source(hub: HubServer, time: Time) -> HubSource:
    return connect(hub.url, time)


PATIENT = Limits(stall_s=20.0)


def connect(url: str, time: Time, *, token: str | None = None, limits: Limits = PATIENT) -> HubSource:
    client = HubClient(url, {"User-Agent": "kernel_hub/test"}, token, limits, time.clock, time.sleep)
    return HubSource(url, client=client)


@pytest.fixture
def commit(hub: HubServer) -> str:
    return hub.registry.refs(REPO).branches["v1"]


@pytest.fixture
def large(hub: HubServer, commit: str) -> FileEntry:
    return next(entry for entry in hub.registry.files(REPO, commit) if entry.path == "large.bin")


def every_call(source: HubSource, commit: str, large: FileEntry) -> Iterator[Callable[[], object]]:
    yield lambda: source.refs(REPO)
    yield lambda: source.commit_of(REPO, "v1")
    yield lambda: source.files(REPO, commit, "build")
    yield lambda: source.read(REPO, commit, "build/torch-cpu/metadata.json", limit_bytes=1 << 20)
    yield lambda: b"".join(source.chunks(REPO, commit, large))


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_a_passing_failure_is_tried_again_and_not_told(
    source: HubSource, hub: HubServer, faults: Faults, commit: str, large: FileEntry, time: Time, code: int
) -> None:
    for call in every_call(source, commit, large):
        expected = call()
        time.waits_s.clear()
        faults.add(fault.status(code), times=2)
        assert call() == expected
        assert time.waits_s == [0.5, 1.0]


def test_a_lasting_failure_ends_within_the_patience_with_its_status(
    hub: HubServer, faults: Faults, commit: str, large: FileEntry, time: Time
) -> None:
    faults.add(fault.status(503))
    source = connect(hub.url, time, limits=Limits(patience_s=60.0))
    for call in every_call(source, commit, large):
        time.now_s = 0.0
        with pytest.raises(SourceUnavailableError) as caught:
            call()
        assert caught.value.status == 503
        assert time.now_s <= 60


def test_the_server_says_how_long_to_wait_and_is_obeyed_aloud(
    source: HubSource, faults: Faults, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    faults.add(fault.status(429, headers={"retry-after": "17"}), times=1)
    source.refs(REPO)
    assert time.waits_s == [17.0]
    assert "17 s" in caplog.text


def test_a_wait_beyond_the_patience_is_not_begun_but_reported(source: HubSource, faults: Faults, time: Time) -> None:
    faults.add(fault.status(429, headers={"retry-after": "3600"}))
    with pytest.raises(SourceUnavailableError) as caught:
        source.refs(REPO)
    assert (caught.value.status, caught.value.retry_after_s, time.waits_s) == (429, 3600.0, [])


def test_in_a_hurry_there_is_one_try(source: HubSource, faults: Faults, time: Time) -> None:
    faults.add(fault.status(503))
    with pytest.raises(SourceUnavailableError):
        source.hurried(1.0).refs(REPO)
    assert (len(faults.paths()), time.waits_s) == (1, [])


def test_a_refused_connection_is_given_up_soon_and_names_the_address(time: Time) -> None:
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:9/") as caught:
        connect("http://127.0.0.1:9", time).refs(REPO)
    assert caught.value.status is None
    assert sum(time.waits_s) < 5


def test_a_silent_server_is_given_up(hub: HubServer, faults: Faults, time: Time) -> None:
    faults.add(fault.stall())
    with pytest.raises(SourceUnavailableError, match="in time"):
        connect(hub.url, time, limits=Limits(stall_s=0.05, tries=2)).refs(REPO)
    assert len(time.waits_s) == 1


def test_a_broken_download_goes_on_where_it_broke(
    source: HubSource, faults: Faults, commit: str, large: FileEntry
) -> None:
    faults.add(fault.cut(1 << 20), "large.bin", times=1)
    assert b"".join(source.chunks(REPO, commit, large)) == LARGE
    (_, _, first), (_, _, second) = faults.asked
    assert "range" not in first
    start = int(second["range"].removeprefix("bytes=").removesuffix("-"))
    assert 0 < start <= 1 << 20


def test_a_server_that_ignores_ranges_is_read_from_the_start_and_cut_right(
    source: HubSource, faults: Faults, commit: str, large: FileEntry
) -> None:
    def whole(reply: fault.Reply) -> None:
        reply.status, reply.body = 200, LARGE
        reply.headers = {"content-length": str(len(LARGE))}

    faults.add(whole, "large.bin")
    assert b"".join(source.chunks(REPO, commit, large, start_bytes=12345)) == LARGE[12345:]


def test_another_range_than_was_asked_for_is_refused(
    source: HubSource, faults: Faults, commit: str, large: FileEntry
) -> None:
    faults.add(fault.relabelled(content_range=f"bytes 0-9/{len(LARGE)}"), "large.bin")
    with pytest.raises(SourceUnavailableError, match="another range"):
        list(source.chunks(REPO, commit, large, start_bytes=5))


def test_a_download_that_never_brings_anything_ends(
    source: HubSource, faults: Faults, commit: str, large: FileEntry
) -> None:
    faults.add(fault.cut(0), "large.bin")
    with pytest.raises(SourceUnavailableError):
        list(source.chunks(REPO, commit, large))


def test_an_empty_file_needs_no_request(source: HubSource, hub: HubServer, faults: Faults, commit: str) -> None:
    entry = next(entry for entry in hub.registry.files(REPO, commit) if entry.path == "empty")
    assert list(source.chunks(REPO, commit, entry)) == []
    assert faults.asked == []


@pytest.mark.parametrize("code", [200, 404, 403, 502])
def test_a_web_page_is_never_taken_for_an_answer(source: HubSource, faults: Faults, commit: str, code: int) -> None:
    faults.add(fault.web_page(code), "/api/")
    for call in (
        lambda: source.refs(REPO),
        lambda: source.commit_of(REPO, "v1"),
        lambda: source.files(REPO, commit, "build"),
    ):
        with pytest.raises((SourceUnavailableError, AccessDeniedError)):
            call()
    assert source.publisher("acme").trusted is None


@pytest.mark.parametrize(
    "value", [None, [], {}, "x", {"branches": [{"name": "v1", "targetCommit": "../.."}]}, {"sha": 1}]
)
def test_json_of_another_shape_is_a_typed_error(source: HubSource, faults: Faults, commit: str, value: Any) -> None:
    faults.add(fault.document(value), "/api/")
    for call in (lambda: source.refs(REPO), lambda: source.commit_of(REPO, "v1"), lambda: source.files(REPO, commit)):
        try:
            call()
        except InvalidDocumentError as error:
            assert "127.0.0.1" in error.document or error.document == "listing"


def test_a_listed_path_that_leads_elsewhere_is_unsafe(source: HubSource, faults: Faults, commit: str) -> None:
    faults.add(fault.edited(lambda rows: [rows[0] | {"type": "file", "path": "build/../../../x"}]), "/tree/")
    with pytest.raises(UnsafePathError):
        source.files(REPO, commit, "build")


def test_a_listing_outside_the_folder_is_refused(source: HubSource, faults: Faults, commit: str) -> None:
    faults.add(fault.edited(lambda rows: [row | {"path": f"x/{row['path']}"} for row in rows]), "/tree/")
    with pytest.raises(InvalidDocumentError, match="not below"):
        source.files(REPO, commit, "build")


@pytest.mark.parametrize(
    "link", ["{url}", "http://localhost:1/x", "https://evil.example/tree", "file:///etc/passwd", "//evil.example/x"]
)
def test_pages_go_on_neither_in_a_circle_nor_elsewhere(
    source: HubSource, hub: HubServer, faults: Faults, commit: str, link: str
) -> None:
    here = f"{hub.url}/api/kernels/{REPO}/tree/{commit}/build?recursive=true"
    faults.add(fault.relabelled(link=f'<{link.format(url=here)}>; rel="next"'), "/tree/")
    with pytest.raises(InvalidDocumentError, match="not a further page"):
        source.files(REPO, commit, "build")


def test_an_endless_listing_ends(source: HubSource, faults: Faults, hub: HubServer, commit: str) -> None:
    page = 0

    def another(reply: fault.Reply) -> None:
        nonlocal page
        page += 1
        fault.document([])(reply)
        reply.headers["link"] = f'<{hub.url}/api/kernels/{REPO}/tree/x?cursor={page}>; rel="next"'

    faults.add(another, "/tree/")
    with pytest.raises(InvalidDocumentError, match="300 pages"):
        source.files(REPO, commit, "build")


def test_an_oversized_answer_is_not_read_to_the_end(source: HubSource, faults: Faults, commit: str) -> None:
    faults.add(fault.status(200, body=b" " * ((32 << 20) + 1)), "/refs")
    with pytest.raises(InvalidDocumentError, match="longer than"):
        source.refs(REPO)


def test_a_file_longer_than_the_limit_is_refused(source: HubSource, commit: str) -> None:
    with pytest.raises(InvalidDocumentError, match="longer than 100 bytes"):
        source.read(REPO, commit, "large.bin", limit_bytes=100)


def test_redirects_of_files_are_followed_and_not_in_a_circle(
    source: HubSource, hub: HubServer, faults: Faults, commit: str, large: FileEntry
) -> None:
    there = f"{hub.url}/kernels/{REPO}/resolve/{commit}/large.bin"
    faults.add(fault.redirect(there), "large.bin", times=1)
    assert b"".join(source.chunks(REPO, commit, large)) == LARGE
    faults.add(fault.redirect(there), "large.bin")
    with pytest.raises(SourceUnavailableError, match="redirects more than"):
        list(source.chunks(REPO, commit, large))


@pytest.mark.parametrize("location", ["", "file:///etc/passwd", "ftp://x/y", "http://[", "javascript:1"])
def test_a_redirect_to_what_is_no_web_address_is_refused(
    source: HubSource, faults: Faults, commit: str, large: FileEntry, location: str
) -> None:
    faults.add(fault.redirect(location), "large.bin")
    with pytest.raises(SourceUnavailableError):
        list(source.chunks(REPO, commit, large))


def test_a_repository_that_moved_is_not_followed_to_another_publisher(
    source: HubSource, hub: HubServer, faults: Faults
) -> None:
    publish_fake_kernel(hub.registry, RepoId("mallory", "axpy"))
    faults.add(fault.redirect(f"{hub.url}/api/kernels/mallory/axpy/refs", 307), "/acme/axpy/refs")
    with pytest.raises(RepositoryNotFoundError, match="mallory"):
        source.refs(REPO)


def test_the_publisher_is_not_asked_for_elsewhere(source: HubSource, hub: HubServer, faults: Faults) -> None:
    hub.registry.set_publisher("mallory", True)
    faults.add(fault.redirect(f"{hub.url}/api/organizations/mallory/overview"), "/organizations/acme")
    assert source.publisher("acme").trusted is None or source.publisher("acme").trusted is False


def test_missing_things_have_their_own_errors(source: HubSource, commit: str) -> None:
    with pytest.raises(RepositoryNotFoundError):
        source.refs(RepoId("acme", "absent"))
    with pytest.raises(RevisionNotFoundError):
        source.commit_of(REPO, "v9")
    with pytest.raises(EntryNotFoundError):
        source.read(REPO, commit, "absent.txt", limit_bytes=10)
    assert source.files(REPO, commit, "absent") == ()


def test_a_publisher_is_known_unknown_or_cannot_be_asked(source: HubSource, hub: HubServer, faults: Faults) -> None:
    assert source.publisher("acme").trusted is True
    assert source.publisher("nobody").trusted is False
    faults.add(fault.status(503), "/organizations/")
    assert source.publisher("acme").trusted is None


def test_a_commit_other_than_the_one_asked_for_is_refused(source: HubSource, faults: Faults, commit: str) -> None:
    faults.add(fault.document({"sha": "0" * 40}), "/revision/")
    with pytest.raises(InvalidDocumentError):
        source.commit_of(REPO, commit)


def test_huggingface_hubs_offline_mode_is_obeyed(source: HubSource, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OfflineError):
        source.refs(REPO)


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "hub.example",
        "http://[",
        "http://x:99999",
        "ftp://x",
        "http://",
        "http://u:p@x",
        "http://x?a=b",
        "http://x#y",
    ],
)
def test_an_endpoint_that_is_none_is_refused_without_its_password(endpoint: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        HubSource(endpoint)
    assert "u:p" not in str(caught.value)


def test_making_a_source_asks_nobody_and_its_name_has_no_trailing_slash() -> None:
    assert HubSource("http://127.0.0.1:9/").name == "http://127.0.0.1:9"


def test_the_token_is_in_no_text_of_the_source(hub: HubServer, time: Time) -> None:
    assert "hf_secret" not in repr(HubClient(hub.url, {}, "hf_secret"))


def test_the_token_goes_to_the_endpoints_origin_and_to_no_other_host(
    start_hub: Callable[..., HubServer], tmp_path: Path, time: Time
) -> None:
    at_home, away = Faults(), Faults()
    home = start_hub(tmp_path / "home", wrap=at_home)
    other = start_hub(tmp_path / "other", wrap=away)
    for server in (home, other):
        publish_fake_kernel(server.registry, REPO, extra_files={"large.bin": LARGE})
    commit = home.registry.refs(REPO).branches["v1"]
    entry = next(entry for entry in home.registry.files(REPO, commit) if entry.path == "large.bin")
    there = other.registry.refs(REPO).branches["v1"]
    # Another port is another origin already.
    at_home.add(fault.redirect(f"{other.url}/kernels/{REPO}/resolve/{there}/large.bin"), "large.bin")
    source = connect(home.url, time, token="hf_secret")
    source.refs(REPO)
    assert b"".join(source.chunks(REPO, commit, entry)) == LARGE
    assert [headers["authorization"] for _, _, headers in at_home.asked] == ["Bearer hf_secret"] * 2
    assert len(away.asked) == 1
    assert "hf_secret" not in str(away.asked)


@pytest.mark.parametrize("telemetry", [True, False])
@pytest.mark.parametrize("user_agent", [None, "", " ", "app/1\r\nx: y", {"app": " "}])
def test_every_request_has_valid_headers_whatever_is_said_of_the_user_agent(
    hub: HubServer, faults: Faults, user_agent: Any, telemetry: bool
) -> None:
    source = HubSource(hub.url, user_agent=user_agent, telemetry=telemetry, host_facts={"torch": "2.13.0"})
    source.refs(REPO)
    source.publisher("acme")
    agents = {headers["user-agent"] for _, _, headers in faults.asked}
    assert agents == {agent.strip() for agent in agents}
    assert ("torch/2.13.0" in agents.pop()) is telemetry
    assert not agents


def test_every_error_of_the_source_is_one_of_ours(
    source: HubSource, faults: Faults, commit: str, large: FileEntry
) -> None:
    spoilers = [fault.status(code) for code in (204, 301, 400, 401, 403, 404, 409, 410, 416, 451, 500, 511)]
    spoilers += [
        fault.cut(0),
        fault.cut(10),
        fault.web_page(),
        fault.document(None),
        fault.redirect("http://localhost:9/"),
    ]
    for spoil in spoilers:
        faults.clear()
        faults.add(spoil)
        for call in every_call(source, commit, large):
            try:
                call()
            except KernelHubError as error:
                assert error.message
