"""What the server does with what is sent to it: commits, uploads, and those that are not as they should be."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kernel_hub.model.commit import StoredBlob
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import LfsBlob
from kernel_hub.server.exchange import Site
from tests.support.hub import HubServer
from tests.support.raw_http import RawAnswer, ask, ask_json, ndjson

REPO = RepoId("acme", "axpy")
COMMIT = "/api/kernels/acme/axpy/commit/main"
BATCH = "/kernels/acme/axpy.git/info/lfs/objects/batch"
HEADER = ("header", {"summary": "change", "description": ""})
CONTENT = b"elf" * 1000
DIGEST = StoredBlob.of(CONTENT).digest


@pytest.fixture
def hub(hub_server: HubServer) -> HubServer:
    hub_server.registry.create_repo(REPO)
    return hub_server


def file(path: str, content: bytes = b"1") -> tuple[str, dict[str, str]]:
    return "file", {"path": path, "content": base64.b64encode(content).decode(), "encoding": "base64"}


def head(hub: HubServer) -> str:
    return hub.registry.commit_of(REPO, "main")


def paths(hub: HubServer) -> list[str]:
    return [entry.path for entry in hub.registry.files(REPO, head(hub))]


def send(hub: HubServer, *lines: tuple[str, Any], query: str = "") -> RawAnswer:
    return ask(hub.url, f"{COMMIT}{query}", method="POST", body=ndjson(*lines))


def scratch(hub: HubServer) -> list[str]:
    return [path.name for path in hub.registry.scratch.iterdir()]


def upload_place(hub: HubServer, *, oid: str = DIGEST, size: int = len(CONTENT)) -> str:
    body = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": oid, "size": size}]}
    answer = ask_json(hub.url, BATCH, body)
    parts = urlsplit(answer.document["objects"][0]["actions"]["upload"]["href"])
    assert parts.netloc == urlsplit(hub.url).netloc
    return f"{parts.path}?{parts.query}"


def test_commit_writes_deletes_and_answers_with_its_address(hub: HubServer) -> None:
    send(hub, HEADER, file("old/a"), file("old/b/c"), file("keep"))
    answer = send(
        hub, HEADER, file("new", b"content"), ("deletedFolder", {"path": "old/"}), ("deletedFile", {"path": "keep"})
    )
    assert answer.document["commitOid"] == head(hub)
    assert answer.document["commitUrl"] == f"{hub.url}/kernels/acme/axpy/commit/{head(hub)}"
    assert paths(hub) == ["new"]


def test_lines_may_be_empty_and_the_last_may_lack_its_end(hub: HubServer) -> None:
    body = b"\n" + ndjson(HEADER) + b"\r\n\n" + ndjson(file("a")).rstrip(b"\n")
    assert ask(hub.url, COMMIT, method="POST", body=body).status == 200
    assert paths(hub) == ["a"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json\n",
        b"<html>\n",
        b"\xff\xfe\n",
        ndjson(file("a")),
        ndjson(HEADER, HEADER, file("a")),
        ndjson(HEADER, file("a"), file("a", b"2")),
        ndjson(HEADER, file("a"), file("a/b")),
        ndjson(HEADER, file("good"), ("file", {"path": "a", "content": "%%%"})),
        ndjson(HEADER, file("good"), ("file", {"path": "a"})),
        ndjson(HEADER, file("good"), ("copyFile", {"path": "a"})),
        ndjson(HEADER, file("good"), file("../../escape")),
        ndjson(HEADER, file("good"), file("/etc/passwd")),
        ndjson(HEADER, file("good"), file("a\\b")),
        ndjson(HEADER, file("good"), file(".git/hooks/post-checkout")),
        ndjson(HEADER, file("good"), file("a\0b")),
        ndjson(HEADER, file("good"), ("deletedFile", {"path": "../main"})),
        ndjson(HEADER, file("good"), ("lfsFile", {"path": "k.so", "oid": DIGEST, "size": 3000})),
        ndjson(HEADER, file("good")) + b'{"key": "file", "value"',
        ndjson(("header", {"summary": "\ud800", "description": ""}), file("good")),
        ndjson(("header", {"summary": ["a"]}), file("good")),
    ],
)
def test_bad_commit_is_refused_and_changes_nothing(hub: HubServer, body: bytes) -> None:
    before = head(hub)
    answer = ask(hub.url, COMMIT, method="POST", body=body)
    assert answer.status == 400
    assert answer.document["error"]
    assert head(hub) == before
    assert scratch(hub) == []


def test_deletion_of_what_is_not_there_is_refused(hub: HubServer) -> None:
    before = head(hub)
    for line in (("deletedFile", {"path": "absent"}), ("deletedFolder", {"path": "absent"})):
        answer = send(hub, HEADER, file("a"), line)
        assert (answer.status, answer.headers["x-error-code"]) == (404, "EntryNotFound")
    assert head(hub) == before


def test_commit_on_an_old_head_is_refused(hub: HubServer) -> None:
    stale = head(hub)
    send(hub, HEADER, file("a"))
    made = head(hub)
    answer = send(hub, ("header", {"summary": "late", "parentCommit": stale}), file("b"))
    assert answer.status == 412
    assert head(hub) == made


def test_commit_on_an_absent_branch_or_repository_is_refused(hub: HubServer) -> None:
    for path, code in (
        ("/api/kernels/acme/axpy/commit/absent", "RevisionNotFound"),
        ("/api/kernels/acme/axpy/commit/..%2fmain", "RevisionNotFound"),
        (f"/api/kernels/acme/axpy/commit/{head(hub)}", "RevisionNotFound"),
        ("/api/kernels/acme/absent/commit/main", "RepoNotFound"),
    ):
        answer = ask(hub.url, path, method="POST", body=ndjson(HEADER, file("a")))
        assert (answer.status, answer.headers["x-error-code"]) == (404, code)


def test_one_of_many_commits_on_one_head_wins(hub: HubServer) -> None:
    header = ("header", {"summary": "race", "parentCommit": head(hub)})
    statuses: list[int] = []
    barrier = threading.Barrier(8)

    def write(number: int) -> None:
        barrier.wait()
        statuses.append(send(hub, header, file("a", b"%d" % number)).status)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [412] * 7
    assert len(list(hub.registry.history(REPO, head(hub)))) == 2


def test_proposal_is_kept_beside_the_branch(hub: HubServer) -> None:
    before = head(hub)
    answer = send(hub, HEADER, file("a"), query="?create_pr=1")
    assert answer.document["pullRequestUrl"] == f"{hub.url}/kernels/acme/axpy/discussions/1"
    assert head(hub) == before
    refs = ask(hub.url, "/api/kernels/acme/axpy/refs?include_prs=1").document
    assert [row["ref"] for row in refs["pullRequests"]] == ["refs/pr/1"]
    assert ask(hub.url, "/kernels/acme/axpy/resolve/refs%2Fpr%2F1/a").content == b"1"


def test_page_in_a_browser_cannot_write(hub: HubServer) -> None:
    before = head(hub)
    for origin in ("https://evil.example", "null", hub.url):
        body = ndjson(HEADER, file("a"))
        answer = ask(
            hub.url, COMMIT, method="POST", body=body, headers={"Origin": origin, "Content-Type": "text/plain"}
        )
        assert answer.status == 403
    assert head(hub) == before


def test_host_that_is_none_is_refused(hub: HubServer) -> None:
    for host in ('evil"><script>', "a b", "", "host:port"):
        assert ask(hub.url, BATCH, method="POST", body=b"{}", headers={"Host": host}).status == 400


@pytest.mark.parametrize("in_chunks", [False, True])
def test_body_beyond_its_limit_is_refused(start_hub: Callable[..., HubServer], in_chunks: bool) -> None:
    hub = start_hub(site=Site(max_commit_bytes=10_000, max_small_body_bytes=1000))
    hub.registry.create_repo(REPO)

    def whole(body: bytes) -> bytes | Iterator[bytes]:
        return iter([body[:700], body[700:]]) if in_chunks else body

    for path, body in ((COMMIT, ndjson(HEADER, file("a", b"x" * 9000))), ("/api/repos/create", b" " * 2000)):
        assert ask(hub.url, path, method="POST", body=whole(body)).status == 413
    assert paths(hub) == []
    assert scratch(hub) == []


def test_file_beyond_the_inline_limit_is_sent_elsewhere(start_hub: Callable[..., HubServer]) -> None:
    hub = start_hub(site=Site(inline_limit_bytes=1000))
    hub.registry.create_repo(REPO)
    body = ndjson(HEADER, file("a", b"x" * (2 << 20)))
    answer = ask(hub.url, COMMIT, method="POST", body=body)
    assert answer.status == 413
    assert "LFS" in answer.document["error"]


def test_preupload_says_how_each_file_is_to_be_sent(start_hub: Callable[..., HubServer]) -> None:
    hub = start_hub(site=Site(inline_limit_bytes=100, native_by_lfs=True))
    hub.registry.create_repo(REPO)
    send(hub, HEADER, file("a"), file("k.so"))
    rows = ask_json(
        hub.url,
        "/api/kernels/acme/axpy/preupload/main",
        {"files": [{"path": path, "size": size} for path, size in (("a", 100), ("b", 101), ("k.so", 1), ("e.so", 0))]},
    ).document["files"]
    assert [row["uploadMode"] for row in rows] == ["regular", "lfs", "lfs", "regular"]
    blob = StoredBlob.of(b"1")
    assert [row.get("oid") for row in rows] == [blob.git_id, None, blob.digest, None]


def test_large_file_goes_through_batch_put_and_verify(hub: HubServer) -> None:
    place = upload_place(hub)
    assert ask(hub.url, place, method="PUT", body=CONTENT).status == 200
    verify = BATCH.replace("batch", "verify")
    assert ask_json(hub.url, verify, {"oid": DIGEST, "size": 3000}).status == 200
    assert ask_json(hub.url, verify, {"oid": DIGEST, "size": 1}).status == 404
    assert send(hub, HEADER, ("lfsFile", {"path": "weights", "algo": "sha256", "oid": DIGEST})).status == 200
    assert hub.registry.files(REPO, head(hub))[0].blob == LfsBlob(DIGEST)
    again = ask_json(hub.url, BATCH, {"operation": "upload", "objects": [{"oid": DIGEST, "size": 3000}]})
    assert "actions" not in again.document["objects"][0]


def test_large_file_can_be_had_by_batch_if_the_repository_holds_it(hub: HubServer) -> None:
    hub.registry.store(b"of another repository")
    other = StoredBlob.of(b"of another repository").digest
    ask(hub.url, upload_place(hub), method="PUT", body=CONTENT)
    send(hub, HEADER, ("lfsFile", {"path": "weights", "oid": DIGEST}))
    body = {"operation": "download", "objects": [{"oid": DIGEST, "size": 3000}, {"oid": other, "size": 21}]}
    held, foreign = ask_json(hub.url, BATCH, body).document["objects"]
    parts = urlsplit(held["actions"]["download"]["href"])
    assert ask(hub.url, f"{parts.path}?{parts.query}", headers={"Range": "bytes=0-2"}).content == b"elf"
    assert ask(hub.url, f"{parts.path}?{parts.query}", method="PUT", body=CONTENT).status == 403
    assert foreign["error"]["code"] == 404


@pytest.mark.parametrize("body", [CONTENT[:-1] + b"x", CONTENT[:-1], CONTENT + b"x", b""])
def test_upload_with_other_bytes_is_refused_and_not_kept(hub: HubServer, body: bytes) -> None:
    answer = ask(hub.url, upload_place(hub), method="PUT", body=body)
    assert answer.status in (400, 413)
    assert hub.registry.stored(DIGEST) is None
    assert hub.registry.stored(StoredBlob.of(body).digest) is None
    assert scratch(hub) == []


def test_upload_place_is_good_only_as_it_was_given(hub: HubServer) -> None:
    place = upload_place(hub)
    other = StoredBlob.of(b"evil").digest
    for changed in (
        place.replace(DIGEST, other),
        place.replace("size=3000", "size=4"),
        place.replace("expires=", "expires=9"),
        place.partition("?")[0],
        place.partition("&signature")[0],
        place[:-1],
        place + "é",
    ):
        answer = ask(hub.url, changed.replace("é", "%C3%A9"), method="PUT", body=b"evil")
        assert answer.status == 403, changed
    assert hub.registry.stored(other) is None


def test_upload_place_grows_old(start_hub: Callable[..., HubServer]) -> None:
    hub = start_hub(site=Site(upload_lifetime_s=-1))
    hub.registry.create_repo(REPO)
    assert ask(hub.url, upload_place(hub), method="PUT", body=CONTENT).status == 403


@pytest.mark.parametrize(
    "body",
    [
        {"operation": "upload"},
        {"operation": "steal", "objects": []},
        {"operation": "upload", "objects": [{"oid": "../../registry.json", "size": 1}]},
        {"operation": "upload", "objects": [{"oid": DIGEST, "size": -1}]},
        {"operation": "upload", "objects": [{"oid": DIGEST}]},
        {"objects": []},
        [],
    ],
)
def test_bad_batch_is_refused(hub: HubServer, body: Any) -> None:
    assert ask_json(hub.url, BATCH, body).status == 400


def test_too_large_file_is_refused_in_the_batch(start_hub: Callable[..., HubServer]) -> None:
    hub = start_hub(site=Site(max_file_bytes=10))
    hub.registry.create_repo(REPO)
    answer = ask_json(hub.url, BATCH, {"operation": "upload", "objects": [{"oid": DIGEST, "size": 11}]})
    assert answer.document["objects"][0]["error"]["code"] == 422


def test_upload_that_breaks_off_leaves_nothing(hub: HubServer) -> None:
    place = upload_place(hub)
    body = ndjson(HEADER, file("a"))
    before = len(hub.log.records)
    for method, path in (("PUT", place), ("POST", COMMIT)):
        with socket.create_connection(("127.0.0.1", int(hub.url.rpartition(":")[2]))) as connection:
            head_lines = f"{method} {path} HTTP/1.1\r\nHost: hub\r\nContent-Length: 3000\r\n\r\n"
            connection.sendall(head_lines.encode() + body)
    hub.log.wait_for(before + 2)
    assert scratch(hub) == []
    assert hub.registry.stored(DIGEST) is None
    assert paths(hub) == []


def test_repository_is_created_once_and_deleted_once(hub: HubServer) -> None:
    body = {"type": "kernel", "organization": "acme", "name": "gemm", "visibility": "private"}
    assert ask_json(hub.url, "/api/repos/create", body).document["url"] == f"{hub.url}/kernels/acme/gemm"
    again = ask_json(hub.url, "/api/repos/create", body)
    assert (again.status, again.document["url"]) == (409, f"{hub.url}/kernels/acme/gemm")
    assert hub.registry.visibility(RepoId("acme", "gemm")).private
    assert ask_json(hub.url, "/api/repos/delete", body, method="DELETE").status == 200
    gone = ask_json(hub.url, "/api/repos/delete", body, method="DELETE")
    assert (gone.status, gone.headers["x-error-code"]) == (404, "RepoNotFound")


def test_repository_without_organization_is_the_users(hub: HubServer) -> None:
    answer = ask_json(hub.url, "/api/repos/create", {"type": "model", "name": "gemm"})
    assert answer.document["url"] == f"{hub.url}/local/gemm"


@pytest.mark.parametrize(
    "body",
    [
        {"type": "dataset", "name": "x"},
        {"name": "../x", "organization": "acme", "type": "kernel"},
        {"name": "x", "organization": "../..", "type": "kernel"},
        {"name": "x", "type": "kernel", "visibility": "secret"},
        {"type": "kernel"},
        {"name": 5},
        "text",
    ],
)
def test_bad_repository_is_not_created(hub: HubServer, body: Any) -> None:
    assert ask_json(hub.url, "/api/repos/create", body).status == 400
    assert hub.registry.repos() == (REPO,)


def test_branches_and_tags_come_and_go(hub: HubServer) -> None:
    place = "/api/kernels/acme/axpy"
    assert ask_json(hub.url, f"{place}/branch/feature%2Fx", {}).status == 200
    assert ask_json(hub.url, f"{place}/branch/feature%2Fx", {}).status == 409
    assert ask_json(hub.url, f"{place}/branch/y", {"startingPoint": "absent"}).headers["x-error-code"] == (
        "RevisionNotFound"
    )
    assert ask_json(hub.url, f"{place}/branch/..%2Fx", {}).status == 400
    assert ask_json(hub.url, f"{place}/tag/main", {"tag": "1.0", "message": "first"}).status == 200
    assert ask_json(hub.url, f"{place}/tag/main", {"tag": "1.0"}).status == 409
    assert hub.registry.refs(REPO).tags == {"1.0": head(hub)}
    assert list(hub.registry.refs(REPO).branches) == ["feature/x", "main"]
    assert ask(hub.url, f"{place}/branch/feature%2Fx", method="DELETE").status == 200
    assert ask(hub.url, f"{place}/branch/feature%2Fx", method="DELETE").status == 404
    assert ask(hub.url, f"{place}/branch/main", method="DELETE").status == 400
    assert ask(hub.url, f"{place}/tag/1.0", method="DELETE").status == 200
    assert ask(hub.url, f"{place}/tag/1.0", method="DELETE").status == 404


@pytest.mark.parametrize(
    ("content", "status"),
    [("# Title", 200), ("---\nlicense: mit\n---\n# T", 200), ("", 200), ("---\nlicense: mit\n", 400)],
)
def test_card_whose_front_matter_does_not_end_is_refused(hub: HubServer, content: str, status: int) -> None:
    answer = ask_json(hub.url, "/api/validate-yaml", {"content": content, "repoType": "kernel"})
    assert answer.status == status
    assert bool(answer.document["errors"]) == (status == 400)


def test_damaged_registry_is_no_reason_to_name_its_folder(hub: HubServer) -> None:
    commits = Path(hub.registry.name) / "repos" / "acme" / "axpy" / "commits"
    before = head(hub)
    moved = commits.rename(commits.with_name("elsewhere"))
    answer = send(hub, HEADER, file("a"))
    moved.rename(commits)
    assert answer.status in (404, 503)
    assert hub.registry.name not in answer.content.decode()
    assert head(hub) == before
