from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.errors import (
    AccessDeniedError,
    ConflictError,
    EntryNotFoundError,
    InvalidDocumentError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    SourceUnavailableError,
)
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, LfsBlob
from kernel_hub.server.exchange import Site
from kernel_hub.sources.hub import HubSink
from tests.support import faults as fault
from tests.support.faults import Faults
from tests.support.hub import HubServer

REPO = RepoId("acme", "axpy")
NATIVE = os.urandom(2 << 20)


class Waits(list[float]):
    """Waits that take no time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.append(wait_s)
        self.now_s += wait_s


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def hub(start_hub: Callable[..., HubServer], faults: Faults) -> HubServer:
    return start_hub(wrap=faults, site=Site(token="hf_right", native_by_lfs=True))


@pytest.fixture
def sink(hub: HubServer, waits: Waits) -> HubSink:
    sink = HubSink(hub.url, token="hf_right", clock=waits.clock, sleep=waits.sleep)
    sink.create_repo(REPO)
    return sink


def test_large_native_files_arrive_although_the_server_takes_no_xet(
    sink: HubSink, hub: HubServer, tmp_path: Path
) -> None:
    file = tmp_path / "x.so"
    file.write_bytes(NATIVE)
    head = sink.create_branch(REPO, "v1")
    additions = [
        Addition("build/a/x.so", file),
        Addition("build/a/y.so", NATIVE[:999]),
        Addition("build/a/__init__.py", b""),
    ]
    commit = sink.commit(REPO, "v1", parent=head, additions=additions, deletions=[], message="Publish")
    found = {entry.path: entry for entry in hub.registry.files(REPO, commit)}
    assert isinstance(found["build/a/x.so"].blob, LfsBlob)
    assert hub.registry.read(REPO, commit, "build/a/x.so", limit_bytes=1 << 30) == NATIVE
    assert len(found) == 3


def test_an_existing_repository_and_branch_stay_as_they_are(sink: HubSink) -> None:
    head = sink.create_branch(REPO, "v1")
    made = sink.commit(REPO, "v1", parent=head, additions=[Addition("a", b"1")], deletions=[], message="Publish")
    sink.create_repo(REPO)
    assert sink.create_branch(REPO, "v1") == made


@pytest.mark.parametrize("code", [504, 429, 500])
@pytest.mark.parametrize("place", ["/preupload/", "/commit/", "/repos/create", "/branch/"])
def test_a_passing_failure_does_not_stop_a_publisher(
    sink: HubSink, faults: Faults, waits: Waits, place: str, code: int
) -> None:
    faults.add(fault.status(code, headers={"retry-after": "0"}), place, times=1)
    sink.create_repo(REPO)
    head = sink.create_branch(REPO, "v1")
    commit = sink.commit(REPO, "v1", parent=head, additions=[Addition("a", b"1")], deletions=[], message="Publish")
    assert sink.refs(REPO).branches["v1"] == commit != head


def test_a_commit_whose_answer_got_lost_is_not_made_twice(sink: HubSink, hub: HubServer, faults: Faults) -> None:
    head = sink.create_branch(REPO, "v1")
    faults.add(fault.status(504), "/commit/", times=1)
    commit = sink.commit(REPO, "v1", parent=head, additions=[Addition("a", b"1")], deletions=[], message="Publish")
    assert hub.registry.load(REPO, commit).parents == (head,)
    assert len(faults.paths("/commit/", method="POST")) == 1


def test_another_publishers_commit_is_a_conflict_and_stays(sink: HubSink) -> None:
    head = sink.create_branch(REPO, "v1")
    theirs = sink.commit(REPO, "v1", parent=head, additions=[Addition("a", b"1")], deletions=[], message="Theirs")
    with pytest.raises(ConflictError):
        sink.commit(REPO, "v1", parent=head, additions=[Addition("a", b"2")], deletions=[], message="Ours")
    assert sink.refs(REPO).branches["v1"] == theirs


def test_another_publishers_commit_of_the_same_files_is_ours_too(sink: HubSink) -> None:
    head = sink.create_branch(REPO, "v1")
    theirs = sink.commit(REPO, "v1", parent=head, additions=[Addition("a", b"1")], deletions=[], message="Theirs")
    assert sink.commit(REPO, "v1", parent=head, additions=[Addition("a", b"1")], deletions=[], message="Ours") == theirs


def test_no_change_is_no_commit(sink: HubSink) -> None:
    head = sink.create_branch(REPO, "v1")
    made = sink.commit(REPO, "v1", parent=head, additions=[Addition("a", b"1")], deletions=[], message="Publish")
    assert sink.commit(REPO, "v1", parent=made, additions=[Addition("a", b"1")], deletions=[], message="Again") == made


def test_what_is_missing_is_named(sink: HubSink) -> None:
    head = sink.create_branch(REPO, "v1")
    with pytest.raises(RevisionNotFoundError, match="v9"):
        sink.commit(REPO, "v9", parent=head, additions=[Addition("a", b"1")], deletions=[], message="Publish")
    with pytest.raises(EntryNotFoundError, match="absent"):
        sink.commit(REPO, "v1", parent=head, additions=[], deletions=["absent"], message="Publish")
    with pytest.raises(RepositoryNotFoundError):
        sink.create_branch(RepoId("acme", "absent"), "v1")


def test_a_token_that_may_not_write_is_refused_with_a_hint_and_not_told(hub: HubServer, sink: HubSink) -> None:
    with pytest.raises(AccessDeniedError) as caught:
        HubSink(hub.url, token="hf_wrong").create_repo(RepoId("acme", "other"))
    assert "HF_TOKEN" in caught.value.hint()
    assert "hf_wrong" not in str(caught.value)


@pytest.mark.parametrize("path", ["../x", "/x", "a\\b", ""])
def test_a_path_that_leads_elsewhere_is_not_sent(sink: HubSink, faults: Faults, path: str) -> None:
    faults.asked.clear()
    with pytest.raises(InvalidDocumentError):
        sink.commit(REPO, "v1", parent="a" * 40, additions=[Addition(path, b"1")], deletions=[], message="Publish")
    with pytest.raises(InvalidDocumentError):
        sink.commit(REPO, "v1", parent="a" * 40, additions=[], deletions=[path], message="Publish")
    assert faults.asked == []


def test_a_server_that_is_down_is_named(waits: Waits) -> None:
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:9"):
        HubSink("http://127.0.0.1:9", clock=waits.clock, sleep=waits.sleep).create_repo(REPO)


def test_hundreds_of_files_need_no_more_open_files_than_a_process_has(
    sink: HubSink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import resource

    additions = []
    for number in range(300):
        (tmp_path / f"{number}.py").write_text(str(number))
        additions.append(Addition(f"build/a/{number}.py", tmp_path / f"{number}.py"))
    head = sink.create_branch(REPO, "v1")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        with caplog.at_level(logging.WARNING):
            commit = sink.commit(REPO, "v1", parent=head, additions=additions, deletions=[], message="Publish")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(sink.files(REPO, commit)) == 300


def test_a_proposal_whose_answer_is_lost_is_not_made_again(sink: HubSink, hub: HubServer, faults: Faults) -> None:
    head = sink.create_branch(REPO, "v1")
    words = {"parent": head, "additions": [Addition("a.py", b"1")], "deletions": (), "message": "m"}
    made = sink.propose(REPO, "v1", **words)  # type: ignore[arg-type]
    assert (made.number, made.url) == (1, f"{hub.url}/kernels/acme/axpy/discussions/1")
    faults.add(fault.status(500), "/commit/", times=1)
    with pytest.raises(SourceUnavailableError, match="is not known"):
        sink.propose(REPO, "v1", **words)  # type: ignore[arg-type]
