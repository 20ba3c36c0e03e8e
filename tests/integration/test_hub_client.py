"""The real huggingface_hub client, and Hugging Face's own loader, against our server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi
from huggingface_hub.errors import (
    BadRequestError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from kernel_hub.model.commit import StoredBlob
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.visibility import Visibility
from kernel_hub.server.exchange import Site
from tests.support import faults as fault
from tests.support.child import run_python
from tests.support.fake_kernels import publish_fake_kernel, write_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer
from tests.support.hub_layout import HubLayout

REPO = RepoId("acme", "axpy")
NAME, KIND = "acme/axpy", "kernel"
NATIVE = bytes(range(256)) * 64
UPLOAD = """
import sys
from huggingface_hub import HfApi
api = HfApi(token="hf_any")
api.create_repo("acme/axpy", repo_type="kernel", exist_ok=True)
api.create_branch("acme/axpy", branch="v1", repo_type="kernel", exist_ok=True)
done = api.upload_folder(repo_id="acme/axpy", folder_path=sys.argv[1], repo_type="kernel", revision="v1")
print(done.oid)
"""
PEER = """
import kernels
kernel = kernels.get_kernel("acme/axpy", version=1, trust_remote_code={trust})
print(kernel.axpy(2, [1, 2], [10, 20]), kernel.origin())
"""
PEER_CLI = "import sys; from kernels.cli import main; sys.argv[0] = 'kernels'; main()"


@pytest.fixture
def api(hub_server: HubServer) -> HfApi:
    return HfApi(endpoint=hub_server.url, token="hf_any")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = write_fake_kernel(tmp_path / "kernel", ["torch-cpu", "torch-cuda"])
    (made / "build" / "torch-cpu" / "_native.so").write_bytes(NATIVE)
    return made


def published(hub: HubServer) -> dict[str, bytes]:
    commit = hub.registry.commit_of(REPO, "v1")
    listed = hub.registry.files(REPO, commit)
    return {entry.path: hub.registry.read(REPO, commit, entry.path, limit_bytes=1 << 30) for entry in listed}


def on_disk(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def test_repository_lives_through_the_client(api: HfApi, hub_server: HubServer) -> None:
    url = api.create_repo(NAME, repo_type=KIND, private=True)
    assert (url.repo_id, url.repo_type, url.endpoint) == (NAME, KIND, hub_server.url)
    assert api.create_repo(NAME, repo_type=KIND, exist_ok=True) == url
    with pytest.raises(HfHubHTTPError, match="is there already"):
        api.create_repo(NAME, repo_type=KIND)
    found = api.kernel_info(NAME)
    assert (found.id, found.author, found.private, found.gated) == (NAME, "acme", True, False)
    assert found.sha == hub_server.registry.commit_of(REPO, "main")
    assert api.whoami()["name"] == "local"
    api.delete_repo(NAME, repo_type=KIND)
    api.delete_repo(NAME, repo_type=KIND, missing_ok=True)
    with pytest.raises(RepositoryNotFoundError):
        api.kernel_info(NAME)


def test_branches_and_tags_live_through_the_client(api: HfApi) -> None:
    api.create_repo(NAME, repo_type=KIND)
    api.create_branch(NAME, branch="v1", repo_type=KIND)
    api.create_branch(NAME, branch="v1", repo_type=KIND, exist_ok=True)
    api.create_tag(NAME, tag="1.0", revision="v1", repo_type=KIND, tag_message="first")
    api.create_tag(NAME, tag="1.0", repo_type=KIND, exist_ok=True)
    refs = api.list_repo_refs(NAME, repo_type=KIND, include_pull_requests=True)
    assert [ref.ref for ref in (*refs.branches, *refs.tags)] == ["refs/heads/main", "refs/heads/v1", "refs/tags/1.0"]
    assert refs.pull_requests == []
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_branch(NAME, branch="v1", repo_type=KIND)
    api.delete_branch(NAME, branch="v1", repo_type=KIND)
    api.delete_tag(NAME, tag="1.0", repo_type=KIND)
    with pytest.raises(RevisionNotFoundError):
        api.delete_tag(NAME, tag="1.0", repo_type=KIND)
    assert [ref.name for ref in api.list_repo_refs(NAME, repo_type=KIND).branches] == ["main"]


def test_folder_is_uploaded_by_a_client_as_it_comes(hub_server: HubServer, folder: Path, tmp_path: Path) -> None:
    """hf_xet is installed and on; files are small enough to go into the commit."""
    commit = run_python(UPLOAD, folder, environ=hub_server.child_environment(tmp_path)).strip()
    assert commit == hub_server.registry.commit_of(REPO, "v1")
    assert published(hub_server) == on_disk(folder)
    assert not hub_server.log.matching(path="xet")


def test_folder_is_uploaded_by_large_file_storage(
    start_hub: Callable[..., HubServer], folder: Path, tmp_path: Path
) -> None:
    hub = start_hub(site=Site(native_by_lfs=True))
    environment = hub.child_environment(tmp_path, HF_HUB_DISABLE_XET="1", PYTHONWARNINGS="default")
    run_python(UPLOAD, folder, environ=environment)
    assert published(hub) == on_disk(folder)
    assert [record.status for record in hub.log.matching(method="PUT")] == [200]
    assert hub.log.matching(method="POST", path="/objects/verify")
    hub.log.clear()
    run_python(UPLOAD, folder, environ=environment)
    assert not hub.log.matching(method="PUT")
    assert len(list(hub.registry.history(REPO, hub.registry.commit_of(REPO, "v1")))) == 2


def test_xet_client_learns_the_way_out_where_large_file_storage_is_needed(
    start_hub: Callable[..., HubServer], folder: Path, tmp_path: Path
) -> None:
    hub = start_hub(site=Site(native_by_lfs=True))
    code = UPLOAD + "\nraise SystemExit('not reached')"
    with pytest.raises(AssertionError, match="xet-write-token"):
        run_python(code, folder, environ=hub.child_environment(tmp_path))
    assert hub.registry.refs(REPO).branches["v1"] == hub.registry.refs(REPO).branches["main"]


def test_folder_uploaded_again_changes_nothing(api: HfApi, hub_server: HubServer, folder: Path) -> None:
    api.create_repo(NAME, repo_type=KIND)
    first = api.upload_folder(repo_id=NAME, folder_path=folder, repo_type=KIND)
    assert api.upload_folder(repo_id=NAME, folder_path=folder, repo_type=KIND).oid == first.oid
    assert [commit.title for commit in api.list_repo_commits(NAME, repo_type=KIND)] == [
        "Upload folder using huggingface_hub",
        "Create the repository",
    ]


def test_upload_of_part_of_a_folder_deletes_what_it_names(api: HfApi, folder: Path) -> None:
    api.create_repo(NAME, repo_type=KIND)
    api.upload_folder(repo_id=NAME, folder_path=folder, repo_type=KIND)
    (folder / "build" / "torch-cpu" / "_native.so").unlink()
    api.upload_folder(
        repo_id=NAME,
        folder_path=folder / "build" / "torch-cpu",
        path_in_repo="build/torch-cpu",
        repo_type=KIND,
        delete_patterns="*",
    )
    paths = api.list_repo_files(NAME, repo_type=KIND)
    assert "build/torch-cpu/_native.so" not in paths
    assert "build/torch-cuda/__init__.py" in paths


def test_operations_of_a_commit(api: HfApi, hub_server: HubServer) -> None:
    api.create_repo(NAME, repo_type=KIND)
    start = hub_server.registry.commit_of(REPO, "main")
    adds = [
        CommitOperationAdd("a/one.py", b"1"),
        CommitOperationAdd("a/two.py", b"2"),
        CommitOperationAdd("k.so", NATIVE),
        CommitOperationAdd("README.md", b"---\nlicense: mit\n---\n# Card"),
    ]
    made = api.create_commit(NAME, adds, commit_message="add", repo_type=KIND, parent_commit=start)
    assert made.commit_url == f"{hub_server.url}/kernels/{NAME}/commit/{made.oid}"
    api.create_commit(
        NAME,
        [CommitOperationDelete("a/"), CommitOperationCopy("k.so", "lib/k.so"), CommitOperationDelete("README.md")],
        commit_message="delete",
        commit_description="and why",
        repo_type=KIND,
    )
    assert api.list_repo_files(NAME, repo_type=KIND) == ["k.so", "lib/k.so"]
    assert api.list_repo_commits(NAME, repo_type=KIND)[0].message == "and why"
    late = [CommitOperationAdd("late", b"")]
    with pytest.raises(HfHubHTTPError, match="412"):
        api.create_commit(NAME, late, commit_message="late", repo_type=KIND, parent_commit=start)
    with pytest.raises(EntryNotFoundError):
        api.create_commit(NAME, [CommitOperationDelete("absent")], commit_message="no", repo_type=KIND)
    with pytest.raises(BadRequestError):
        api.create_commit(NAME, [CommitOperationAdd("con", b"")], commit_message="no", repo_type=KIND)


def test_card_with_broken_front_matter_is_refused(api: HfApi) -> None:
    api.create_repo(NAME, repo_type=KIND)
    card = [CommitOperationAdd("README.md", b"---\nlicense: mit\n")]
    with pytest.raises(ValueError, match="does not end"):
        api.create_commit(NAME, card, commit_message="card", repo_type=KIND)


def test_proposal_is_made_beside_the_branch(api: HfApi, hub_server: HubServer) -> None:
    api.create_repo(NAME, repo_type=KIND)
    before = hub_server.registry.refs(REPO)
    proposal = api.create_commit(
        NAME, [CommitOperationAdd("a", b"1")], commit_message="propose", repo_type=KIND, create_pr=True
    )
    assert proposal.pr_num == 1
    assert hub_server.registry.refs(REPO) == before
    refs = api.list_repo_refs(NAME, repo_type=KIND, include_pull_requests=True)
    assert [ref.target_commit for ref in refs.pull_requests or []] == [proposal.oid]
    assert api.list_repo_files(NAME, repo_type=KIND, revision="refs/pr/1") == ["a"]


def test_listing_of_more_than_a_page(start_hub: Callable[..., HubServer]) -> None:
    hub = start_hub(site=Site(page_rows=10))
    files = {f"docs/{n:03}.txt": b"%d" % n for n in range(45)}
    publish_fake_kernel(hub.registry, REPO, extra_files=files)
    api = HfApi(endpoint=hub.url, token="hf_any")
    assert [path for path in api.list_repo_files(NAME, repo_type=KIND, revision="v1") if path in files] == list(files)
    assert len(hub.log.matching(path="/tree/")) == 6
    rows = list(api.list_repo_tree(NAME, "docs", repo_type=KIND, revision="v1", expand=True))
    assert {row.last_commit.title for row in rows if row.last_commit} == {"Publish version 1"}
    found = api.get_paths_info(NAME, ["docs", "docs/007.txt", "absent"], repo_type=KIND, revision="v1")
    assert [row.path for row in found] == ["docs", "docs/007.txt"]


def test_snapshot_is_what_was_published(api: HfApi, hub_server: HubServer, tmp_path: Path) -> None:
    publish_fake_kernel(hub_server.registry, REPO, extra_files={"k.so": NATIVE, "empty": b""})
    snapshot = Path(api.snapshot_download(NAME, repo_type=KIND, revision="v1", cache_dir=tmp_path / "cache"))
    assert on_disk(snapshot) == published(hub_server)
    assert snapshot.name == hub_server.registry.commit_of(REPO, "v1")
    hub_server.log.clear()
    api.hf_hub_download(NAME, "k.so", repo_type=KIND, revision=snapshot.name, cache_dir=tmp_path / "cache")
    assert hub_server.log.lines == []


def test_model_client_sees_the_same_repository(api: HfApi, hub_server: HubServer, tmp_path: Path) -> None:
    publish_fake_kernel(hub_server.registry, REPO)
    found = api.model_info(NAME, revision="v1")
    assert [file.rfilename for file in found.siblings or []] == sorted(published(hub_server))
    path = api.hf_hub_download(NAME, "build/torch-cpu/metadata.json", revision="v1", cache_dir=tmp_path / "cache")
    assert json.loads(Path(path).read_bytes())["name"] == "axpy"


def test_cut_download_is_resumed_where_it_ended(start_hub: Callable[..., HubServer], tmp_path: Path) -> None:
    faults = Faults()
    hub = start_hub(wrap=faults)
    content = bytes(range(256)) * (12 << 12)
    publish_fake_kernel(hub.registry, REPO, extra_files={"k.so": content})
    faults.add(fault.cut(11 << 20), "k.so", method="GET", times=1)
    api = HfApi(endpoint=hub.url, token="hf_any")
    path = api.hf_hub_download(NAME, "k.so", repo_type=KIND, revision="v1", cache_dir=tmp_path / "cache")
    assert Path(path).read_bytes() == content
    assert [record.status for record in hub.log.matching(method="GET", path="k.so")] == [200, 206]


def test_token_does_not_follow_a_file_to_another_origin(start_hub: Callable[..., HubServer], tmp_path: Path) -> None:
    back = start_hub()
    front = start_hub(wrap=HubLayout(back.url.replace("127.0.0.1", "localhost")).around)
    publish_fake_kernel(front.registry, REPO, extra_files={"k.so": NATIVE})
    snapshot = HfApi(endpoint=front.url, token="hf_secret").snapshot_download(
        NAME, repo_type=KIND, revision="v1", cache_dir=tmp_path / "cache"
    )
    assert on_disk(Path(snapshot)) == published(front)
    assert {record.has_authorization for record in front.log.records} == {True}
    assert [(record.method, record.has_authorization) for record in back.log.records] == [("GET", False)]


def test_errors_become_the_exceptions_of_the_client(api: HfApi, hub_server: HubServer, tmp_path: Path) -> None:
    publish_fake_kernel(hub_server.registry, REPO)
    cache = tmp_path / "cache"
    with pytest.raises(RepositoryNotFoundError):
        api.list_repo_refs("acme/absent", repo_type=KIND)
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(NAME, revision="absent", repo_type=KIND)
    with pytest.raises(RevisionNotFoundError):
        api.upload_file(repo_id=NAME, path_or_fileobj=b"1", path_in_repo="a", repo_type=KIND, revision="absent")
    with pytest.raises(EntryNotFoundError):
        api.hf_hub_download(NAME, "absent", repo_type=KIND, revision="v1", cache_dir=cache)
    assert not api.file_exists(NAME, "absent", repo_type=KIND, revision="v1")
    assert api.file_exists(NAME, "build/torch-cpu/metadata.json", repo_type=KIND, revision="v1")
    assert api.revision_exists(NAME, "v1", repo_type=KIND)
    assert not api.revision_exists(NAME, "v2", repo_type=KIND)
    assert not api.repo_exists("acme/absent", repo_type=KIND)


def test_private_and_gated_become_the_exceptions_of_the_client(
    start_hub: Callable[..., HubServer], tmp_path: Path
) -> None:
    hub = start_hub(site=Site(token="hf_right"))
    for name, visibility in (("acme/private", Visibility(private=True)), ("acme/gated", Visibility(gated=True))):
        hub.registry.add_repo(RepoId.parse(name), visibility)
        publish_fake_kernel(hub.registry, name)
    stranger, holder, wrong = (HfApi(endpoint=hub.url, token=token) for token in (False, "hf_right", "hf_wrong"))
    place = {"filename": "build/torch-cpu/metadata.json", "repo_type": KIND, "revision": "v1"}
    with pytest.raises(RepositoryNotFoundError):
        stranger.list_repo_refs("acme/private", repo_type=KIND)
    with pytest.raises(GatedRepoError):
        stranger.hf_hub_download("acme/gated", **place, cache_dir=tmp_path / "a")
    with pytest.raises(HfHubHTTPError, match="Invalid credentials"):
        wrong.list_repo_refs("acme/gated", repo_type=KIND)
    with pytest.raises(HfHubHTTPError, match="401"):
        stranger.create_repo("acme/new", repo_type=KIND)
    for name in ("acme/private", "acme/gated"):
        assert Path(holder.hf_hub_download(name, **place, cache_dir=tmp_path / "b")).exists()
    holder.create_repo("acme/new", repo_type=KIND)


def test_large_files_are_uploaded_with_a_token(
    start_hub: Callable[..., HubServer], folder: Path, tmp_path: Path
) -> None:
    """The client sends no token with the bytes, so the place it is given must be enough."""
    hub = start_hub(site=Site(token="hf_any", native_by_lfs=True))
    environment = hub.child_environment(tmp_path, HF_HUB_DISABLE_XET="1", PYTHONWARNINGS="default")
    run_python(UPLOAD, folder, environ=environment)
    assert published(hub) == on_disk(folder)
    assert [record.has_authorization for record in hub.log.matching(method="PUT")] == [False]


def test_organization_is_as_trusted_as_the_registry_says(api: HfApi, hub_server: HubServer) -> None:
    publish_fake_kernel(hub_server.registry, REPO)
    hub_server.registry.set_publisher("acme", True)
    assert api.get_organization_overview("acme").trustedKernelPublisher is True  # type: ignore[attr-defined]
    with pytest.raises(HfHubHTTPError, match="404"):
        api.get_organization_overview("nobody")


@pytest.mark.parametrize("trusted", [True, None])
def test_peer_loads_a_kernel_from_our_server(hub_server: HubServer, tmp_path: Path, trusted: bool | None) -> None:
    publish_fake_kernel(hub_server.registry, REPO, builds=["torch-cpu", "torch-cuda", "torch-universal"])
    hub_server.registry.set_publisher("acme", trusted)
    environment = hub_server.child_environment(tmp_path, PYTHONWARNINGS="default")
    printed = run_python(PEER.format(trust=trusted is None), environ=environment)
    assert printed.split("\n")[0] == "[12, 24] axpy v1 torch-cpu"


def test_peers_commands_lock_and_download_from_our_server(hub_server: HubServer, tmp_path: Path) -> None:
    commits = {
        version: publish_fake_kernel(hub_server.registry, REPO, version=version, builds=["torch-cpu", "torch-cuda"])
        for version in (1, 2)
    }
    hub_server.registry.set_publisher("acme", True)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"acme/axpy" = 1\n', encoding="utf-8")
    environment = hub_server.child_environment(tmp_path, PYTHONWARNINGS="default")
    told = run_python(PEER_CLI, "versions", NAME, environ=environment)
    assert [line for line in told.splitlines() if line.startswith("Version")] == ["Version 1:", "Version 2:"]
    run_python(PEER_CLI, "lock", project, environ=environment)
    locked = json.loads((project / "kernels.lock").read_bytes())
    assert [entry["lock"]["commit"] for entry in locked] == [commits[1]]
    run_python(PEER_CLI, "download", project, environ=environment)
    (metadata,) = (tmp_path / "hf" / "hub").rglob(f"snapshots/{commits[1]}/build/torch-cpu/metadata.json")
    assert metadata.read_bytes() == hub_server.registry.read(
        REPO, commits[1], "build/torch-cpu/metadata.json", limit_bytes=1 << 20
    )


def test_peer_refuses_a_publisher_that_the_registry_does_not_trust(hub_server: HubServer, tmp_path: Path) -> None:
    publish_fake_kernel(hub_server.registry, REPO)
    hub_server.registry.set_publisher("acme", False)
    environment = hub_server.child_environment(tmp_path, PYTHONWARNINGS="default")
    with pytest.raises(AssertionError, match="is not from a trusted publisher"):
        run_python(PEER.format(trust=False), environ=environment)


def test_uploaded_kernel_has_the_identities_that_git_gives(api: HfApi, hub_server: HubServer, folder: Path) -> None:
    api.create_repo(NAME, repo_type=KIND)
    api.create_branch(NAME, branch="v1", repo_type=KIND)
    api.upload_folder(repo_id=NAME, folder_path=folder, repo_type=KIND, revision="v1")
    shown = {
        row.path: row.lfs.sha256 if row.lfs else row.blob_id
        for row in api.list_repo_tree(NAME, recursive=True, repo_type=KIND, revision="v1")
        if hasattr(row, "lfs")
    }
    for path, content in on_disk(folder).items():
        blob = StoredBlob.of(content)
        assert shown[path] == (blob.digest if path.endswith(".so") else blob.git_id)
