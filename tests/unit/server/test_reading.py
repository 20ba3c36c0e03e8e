"""What the server answers to those who read: files, ranges, listings, and to those who may not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kernel_hub.model.commit import StoredBlob
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition
from kernel_hub.model.visibility import Visibility
from kernel_hub.server.exchange import Site
from tests.support.fake_kernels import publish_fake_kernel
from tests.support.hub import HubServer
from tests.support.raw_http import ask

REPO = RepoId("acme", "axpy")
FILE = "/kernels/acme/axpy/resolve/v1/notes.txt"
CONTENT = b"0123456789"


@pytest.fixture
def hub(hub_server: HubServer) -> HubServer:
    publish_fake_kernel(hub_server.registry, REPO, extra_files={"notes.txt": CONTENT, "k.so": CONTENT, "empty": b""})
    return hub_server


def test_file_is_served_with_commit_and_identity(hub: HubServer) -> None:
    answer = ask(hub.url, FILE)
    assert (answer.status, answer.content) == (200, CONTENT)
    assert answer.headers["x-repo-commit"] == hub.registry.commit_of(REPO, "v1")
    assert answer.headers["etag"] == f'"{StoredBlob.of(CONTENT).git_id}"'
    assert "x-linked-etag" not in answer.headers


def test_large_file_is_served_with_its_own_identity(hub: HubServer) -> None:
    answer = ask(hub.url, "/kernels/acme/axpy/resolve/v1/k.so", method="HEAD")
    digest = StoredBlob.of(CONTENT).digest
    assert (answer.status, answer.content) == (200, b"")
    assert answer.headers["x-linked-etag"] == f'"{digest}"'
    assert answer.headers["x-linked-size"] == answer.headers["content-length"] == "10"


@pytest.mark.parametrize(
    ("asked", "status", "content", "span"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, CONTENT, "bytes 0-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=9-9", 206, b"9", "bytes 9-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=5-2", 200, CONTENT, None),
        ("bytes=0-1,4-5", 200, CONTENT, None),
        ("bytes=-", 200, CONTENT, None),
        ("bytes=a-b", 200, CONTENT, None),
        ("lines=0-1", 200, CONTENT, None),
        ("bytes=" + "9" * 30 + "-", 200, CONTENT, None),
    ],
)
def test_range_is_served(hub: HubServer, asked: str, status: int, content: bytes | None, span: str | None) -> None:
    answer = ask(hub.url, FILE, headers={"Range": asked})
    assert answer.status == status
    assert answer.headers.get("content-range") == span
    if content is not None:
        assert answer.content == content
        assert answer.headers["content-length"] == str(len(content))


def test_range_of_an_empty_file_lies_outside(hub: HubServer) -> None:
    answer = ask(hub.url, "/kernels/acme/axpy/resolve/v1/empty", headers={"Range": "bytes=0-"})
    assert (answer.status, answer.headers["content-range"]) == (416, "bytes */0")


def test_range_is_for_the_file_that_was_begun(hub: HubServer) -> None:
    etag = ask(hub.url, FILE, method="HEAD").headers["etag"]
    assert ask(hub.url, FILE, headers={"Range": "bytes=4-", "If-Range": etag}).status == 206
    assert ask(hub.url, FILE, headers={"Range": "bytes=4-", "If-Range": '"other"'}).content == CONTENT


def test_known_file_is_not_sent_again(hub: HubServer) -> None:
    etag = ask(hub.url, FILE, method="HEAD").headers["etag"]
    for known in (etag, f'"other", W/{etag}'):
        answer = ask(hub.url, FILE, headers={"If-None-Match": known})
        assert (answer.status, answer.content) == (304, b"")
    assert ask(hub.url, FILE, headers={"If-None-Match": '"other"'}).status == 200


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/kernels/acme/absent", 404, "RepoNotFound"),
        ("/api/kernels/acme/absent/refs", 404, "RepoNotFound"),
        ("/api/kernels/acme/axpy/revision/absent", 404, "RevisionNotFound"),
        ("/api/kernels/acme/axpy/tree/absent", 404, "RevisionNotFound"),
        ("/api/kernels/acme/axpy/tree/v1/absent", 404, "EntryNotFound"),
        ("/kernels/acme/absent/resolve/v1/a", 404, "RepoNotFound"),
        ("/kernels/acme/axpy/resolve/absent/a", 404, "RevisionNotFound"),
        ("/kernels/acme/axpy/resolve/v1/absent", 404, "EntryNotFound"),
        ("/api/organizations/nobody/overview", 404, None),
        ("/api/kernels/acme/axpy/tree/v1?cursor=garbage", 400, None),
        ("/api/kernels?limit=-1", 400, None),
        ("/api/kernels?" + "&".join(f"a{n}=1" for n in range(300)), 400, None),
    ],
)
def test_refusal_has_the_code_of_the_hub(hub: HubServer, path: str, status: int, code: str | None) -> None:
    answer = ask(hub.url, path)
    assert (answer.status, answer.headers.get("x-error-code")) == (status, code)
    assert answer.headers["x-error-message"]
    assert answer.document["error"]


def test_missing_file_names_the_commit_that_lacks_it(hub: HubServer) -> None:
    answer = ask(hub.url, "/kernels/acme/axpy/resolve/v1/absent", method="HEAD")
    assert answer.headers["x-repo-commit"] == hub.registry.commit_of(REPO, "v1")


@pytest.mark.parametrize(
    "path",
    [
        "/kernels/acme/axpy/resolve/v1/../../../../../registry.json",
        "/kernels/acme/axpy/resolve/v1/..%2f..%2f..%2f..%2fregistry.json",
        "/kernels/acme/axpy/resolve/v1/%2e%2e/%2e%2e/registry.json",
        "/kernels/acme/axpy/resolve/v1/..%5c..%5cregistry.json",
        "/kernels/acme/axpy/resolve/v1//etc/passwd",
        "/kernels/acme/axpy/resolve/v1/%2fetc%2fpasswd",
        "/kernels/acme/axpy/resolve/v1/notes.txt%00.py",
        "/kernels/acme/axpy/resolve/..%2fheads%2fv1/notes.txt",
        "/kernels/acme/axpy/resolve/%2e%2e/notes.txt",
        "/kernels/acme/axpy/resolve/./notes.txt",
        "/kernels/../axpy/resolve/v1/notes.txt",
        "/kernels/acme/../resolve/v1/notes.txt",
        "/kernels/acme/..%2f..%2frepos%2facme%2faxpy/resolve/v1/notes.txt",
        "/api/kernels/..%2f..%2f..%2fscratch/axpy/refs",
        "/api/kernels/acme/%2e%2e/refs",
        "/api/kernels/acme/axpy/tree/v1/..",
        "/api/kernels/acme/axpy/tree/v1/%2e%2e%2f",
        "/api/kernels/acme/axpy/commits/..",
        "/lfs-objects/..%2f..%2fregistry.json",
    ],
)
def test_path_that_leads_elsewhere_is_refused(hub: HubServer, path: str) -> None:
    answer = ask(hub.url, path)
    assert 400 <= answer.status < 500
    assert b"kernel_hub registry" not in answer.content
    assert CONTENT not in answer.content


def test_message_of_an_error_fits_into_a_header(hub: HubServer) -> None:
    answer = ask(hub.url, "/kernels/acme/axpy/resolve/v1/caf%C3%A9%20x")
    assert answer.status == 404
    assert answer.headers["x-error-message"].isascii()
    assert "café x" in answer.document["error"]


def test_pages_of_a_listing_belong_to_one_commit(start_hub: Callable[..., HubServer]) -> None:
    hub = start_hub(site=Site(page_rows=3))
    publish_fake_kernel(hub.registry, REPO, extra_files={f"f{n}": b"%d" % n for n in range(7)})
    first = ask(hub.url, "/api/kernels/acme/axpy/tree/v1?recursive=true")
    hub.registry.commit(
        REPO,
        "v1",
        parent=hub.registry.commit_of(REPO, "v1"),
        additions=[Addition("added", b"later")],
        deletions=["f0"],
        message="meanwhile",
    )
    rows, pages = first.document, 1
    answer = first
    while "link" in answer.headers:
        following = urlsplit(answer.headers["link"].partition(">")[0].removeprefix("<"))
        assert following.netloc == urlsplit(hub.url).netloc
        answer = ask(hub.url, f"{following.path}?{following.query}")
        rows, pages = rows + answer.document, pages + 1
    assert [row["path"] for row in rows if row["type"] == "file"] == [
        "build/torch-cpu/__init__.py",
        "build/torch-cpu/_math.py",
        "build/torch-cpu/metadata.json",
        *(f"f{n}" for n in range(7)),
    ]
    assert pages == 4


def test_expanded_listing_names_the_last_change(hub: HubServer) -> None:
    rows = ask(hub.url, "/api/kernels/acme/axpy/tree/v1?expand=true").document
    assert {row["lastCommit"]["title"] for row in rows} == {"Publish version 1"}


def test_paths_are_looked_up_in_forms_and_json(hub: HubServer) -> None:
    form = ask(
        hub.url,
        "/api/kernels/acme/axpy/paths-info/v1",
        method="POST",
        body=b"paths=build&paths=notes.txt&paths=absent&expand=False",
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    document = ask(
        hub.url,
        "/api/kernels/acme/axpy/paths-info/v1",
        method="POST",
        body=b'{"paths": ["build", "notes.txt", "absent"]}',
        headers={"Content-Type": "application/json"},
    )
    assert form.document == document.document
    assert [row["path"] for row in form.document] == ["build", "notes.txt"]


def test_search_finds_by_name_and_author_in_pages(start_hub: Callable[..., HubServer]) -> None:
    hub = start_hub(site=Site(page_rows=2))
    for name in ("acme/axpy", "acme/gemm", "acme/gemv", "other/gemm"):
        hub.registry.create_repo(RepoId.parse(name))
    hub.registry.add_repo(RepoId("acme", "gem-secret"), Visibility(private=True))
    assert [row["id"] for row in ask(hub.url, "/api/kernels?search=GEM&author=acme").document] == [
        "acme/gemm",
        "acme/gemv",
    ]
    first = ask(hub.url, "/api/kernels?limit=50")
    assert [row["id"] for row in first.document] == ["acme/axpy", "acme/gemm"]
    following = urlsplit(first.headers["link"].partition(">")[0].removeprefix("<"))
    second = ask(hub.url, f"{following.path}?{following.query}")
    assert [row["id"] for row in second.document] == ["acme/gemv", "other/gemm"]
    assert "link" not in second.headers


def test_namespace_is_as_trusted_as_the_registry_says(hub: HubServer) -> None:
    overview = "/api/organizations/acme/overview"
    assert "trustedKernelPublisher" not in ask(hub.url, overview).document
    for trusted in (True, False):
        hub.registry.set_publisher("acme", trusted)
        assert ask(hub.url, overview).document["trustedKernelPublisher"] is trusted
        assert ask(hub.url, "/api/kernels/acme/axpy/revision/v1").document["trustedKernelPublisher"] is trusted


def test_xet_is_refused_with_the_way_out(hub: HubServer) -> None:
    answer = ask(hub.url, "/api/kernels/acme/axpy/xet-write-token/v1")
    assert answer.status == 404
    assert "HF_HUB_DISABLE_XET=1" in answer.headers["x-error-message"]


def test_damaged_file_is_not_served_as_if_it_were_good(hub: HubServer) -> None:
    digest = StoredBlob.of(CONTENT).digest
    blob = Path(hub.registry.name) / "blobs" / digest[:2] / digest[2:]
    blob.write_bytes(b"")
    assert ask(hub.url, FILE).status == 500
    blob.unlink()
    answer = ask(hub.url, FILE)
    assert answer.status == 503
    assert hub.registry.name not in answer.content.decode()


def test_what_the_server_keeps_is_asked_of_the_folder_each_time(hub: HubServer) -> None:
    hub.registry.create_branch(REPO, "v2")
    names = [row["name"] for row in ask(hub.url, "/api/kernels/acme/axpy/refs").document["branches"]]
    assert names == ["main", "v1", "v2"]


class TestWithToken:
    """A registry that needs a token for writing, and for what is private or gated."""

    TOKEN: dict[str, str] = {"Authorization": "Bearer secret"}  # noqa: RUF012 - read only

    @pytest.fixture
    def guarded(self, start_hub: Callable[..., HubServer]) -> HubServer:
        hub = start_hub(site=Site(token="secret"))
        publish_fake_kernel(hub.registry, REPO)
        for name, visibility in (("private", Visibility(private=True)), ("gated", Visibility(gated=True))):
            hub.registry.add_repo(RepoId("acme", name), visibility)
            publish_fake_kernel(hub.registry, RepoId("acme", name))
        return hub

    @pytest.mark.parametrize(
        ("path", "status", "code"),
        [
            ("/api/kernels/acme/axpy/refs", 200, None),
            ("/kernels/acme/axpy/resolve/v1/build/torch-cpu/__init__.py", 200, None),
            ("/api/kernels/acme/private/refs", 401, "RepoNotFound"),
            ("/kernels/acme/private/resolve/v1/build/torch-cpu/__init__.py", 401, "RepoNotFound"),
            ("/api/kernels/acme/absent/refs", 401, "RepoNotFound"),
            ("/api/kernels/acme/gated/refs", 200, None),
            ("/kernels/acme/gated/resolve/v1/build/torch-cpu/__init__.py", 401, "GatedRepo"),
            ("/api/whoami-v2", 401, None),
        ],
    )
    def test_stranger_sees_what_is_public(self, guarded: HubServer, path: str, status: int, code: str | None) -> None:
        answer = ask(guarded.url, path)
        assert (answer.status, answer.headers.get("x-error-code")) == (status, code)

    @pytest.mark.parametrize("name", ["axpy", "private", "gated"])
    def test_holder_of_the_token_sees_everything(self, guarded: HubServer, name: str) -> None:
        path = f"/kernels/acme/{name}/resolve/v1/build/torch-cpu/__init__.py"
        assert ask(guarded.url, path, headers=self.TOKEN).status == 200
        assert ask(guarded.url, "/api/kernels/acme/absent/refs", headers=self.TOKEN).status == 404
        assert ask(guarded.url, "/api/whoami-v2", headers=self.TOKEN).document["name"] == "local"

    @pytest.mark.parametrize("header", ["Bearer wrong", "secret", "Basic secret", "Bearer sécret", ""])
    def test_wrong_token_is_no_stranger(self, guarded: HubServer, header: str) -> None:
        answer = ask(
            guarded.url, "/api/kernels/acme/axpy/refs", headers={"Authorization": header.encode().decode("latin-1")}
        )
        assert answer.status == 401
        assert answer.headers["x-error-message"] == "Invalid credentials in Authorization header"

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("POST", "/api/repos/create"),
            ("DELETE", "/api/repos/delete"),
            ("POST", "/api/kernels/acme/axpy/branch/x"),
            ("DELETE", "/api/kernels/acme/axpy/branch/v1"),
            ("POST", "/api/kernels/acme/axpy/tag/v1"),
            ("DELETE", "/api/kernels/acme/axpy/tag/v1"),
            ("POST", "/api/kernels/acme/axpy/preupload/v1"),
            ("POST", "/api/kernels/acme/axpy/commit/v1"),
            ("POST", "/kernels/acme/axpy.git/info/lfs/objects/verify"),
        ],
    )
    def test_stranger_writes_nothing(self, guarded: HubServer, method: str, path: str) -> None:
        before = guarded.registry.refs(REPO)
        assert ask(guarded.url, path, method=method, body=b"{}").status == 401
        assert guarded.registry.refs(REPO) == before

    def test_stranger_is_given_no_place_to_upload(self, guarded: HubServer) -> None:
        body = b'{"operation": "upload", "objects": [{"oid": "%s", "size": 1}]}' % (b"ab" * 32)
        answer = ask(guarded.url, "/kernels/acme/axpy.git/info/lfs/objects/batch", method="POST", body=body)
        assert answer.status == 401

    def test_private_site_needs_the_token_for_everything(self, start_hub: Callable[..., HubServer]) -> None:
        hub = start_hub(site=Site(token="secret", private=True))
        publish_fake_kernel(hub.registry, REPO)
        for path in ("/api/kernels", "/api/kernels/acme/axpy/refs", "/api/organizations/acme/overview"):
            assert ask(hub.url, path).status == 401
            assert ask(hub.url, path, headers=self.TOKEN).status == 200


def test_token_is_not_shown() -> None:
    assert "hush" not in repr(Site(token="hush"))
