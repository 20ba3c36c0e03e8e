"""`kernel-hub publish`: builds into a registry folder or a Hub."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_hub.cli.following import binding_lines
from kernel_hub.errors import RepositoryNotFoundError
from kernel_hub.model.requirement import RepoId
from kernel_hub.server.http import RunningServer, make_app
from kernel_hub.sources.directory import DirectoryRegistry
from tests.cli.conftest import Run
from tests.support.fake_kernels import fake_build, write_fake_kernel

ROOT = Path(__file__).parents[2]
LABELS = ["torch-cpu", "torch-cuda"]


@pytest.fixture
def builds(tmp_path: Path) -> Path:
    """A folder with two builds below `build/`."""
    return write_fake_kernel(tmp_path / "axpy", LABELS)


def test_a_new_folder_becomes_a_registry_that_holds_the_builds(run: Run, builds: Path, tmp_path: Path) -> None:
    target = tmp_path / "registry"
    answer = run("publish", str(builds), "--to", str(target), "--repo", "acme/axpy", "--json").json
    assert (answer["status"], answer["branch"], answer["labels"]) == ("published", "v1", LABELS)
    assert DirectoryRegistry.open(target).refs(RepoId("acme", "axpy")).versions() == {1: answer["commit"]}
    assert answer["added"] == sorted(answer["added"])
    assert answer["card"] is True


def test_text_says_what_was_sent_and_a_second_time_that_nothing_changed(run: Run, builds: Path, tmp_path: Path) -> None:
    words = ("publish", str(builds), "--to", (tmp_path / "registry").as_uri(), "--repo", "acme/axpy")
    first, second = run(*words), run(*words)
    assert (first.code, first.err) == (second.code, second.err) == (0, "")
    assert first.out.startswith("acme/axpy@v1 (")
    assert first.out.splitlines()[0].endswith(": published")
    assert "  build: torch-cpu\n  build: torch-cuda\n  files: 7 sent (" in first.out
    assert second.out.splitlines()[0].endswith(": unchanged")
    assert "  files: 0 sent (0 B), 7 there already\n" in second.out


def test_the_next_step_is_printed_and_can_be_taken_as_it_stands(run: Run, builds: Path, tmp_path: Path) -> None:
    target = tmp_path / "other" / ".." / "a registry"
    printed = run("publish", str(builds), "--to", str(target), "--repo", "acme/axpy").out.splitlines()
    export, load = printed[-2:]
    assert printed[-3] == "to load from it:"
    assert ".." not in printed[0]
    done = subprocess.run(
        ["sh", "-c", f"{export}\n{load.replace('python', shlex.quote(sys.executable), 1)}"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<module ")


def test_a_kernel_whose_namespace_is_bound_there_needs_no_binding(
    run: Run, builds: Path, registry: DirectoryRegistry, tmp_path: Path
) -> None:
    printed = run("publish", str(builds), "--to", str(tmp_path / "registry"), "--repo", "acme/axpy").out
    assert "KERNEL_HUB_REGISTRIES" not in printed
    assert printed.splitlines()[-1].startswith("  python -c 'from kernel_hub import get_kernel")


def test_a_binding_that_needs_a_token_names_the_variable() -> None:
    lines = binding_lines(["acme", "acme"], "http://127.0.0.1:8000", token_env="ACME_TOKEN")
    text = lines[1].partition("=")[2].strip("'")
    assert json.loads(text) == {"acme": {"url": "http://127.0.0.1:8000", "token-env": "ACME_TOKEN"}}


def test_one_build_and_another_branch_can_be_published(run: Run, builds: Path, tmp_path: Path) -> None:
    folder = builds / "build" / "torch-cpu"
    words = ("--to", str(tmp_path / "registry"), "--repo", "acme/axpy", "--branch", "draft", "--json")
    answer = run("publish", str(folder), *words).json
    assert (answer["branch"], answer["labels"]) == ("draft", ["torch-cpu"])


def test_a_dry_run_changes_nothing(run: Run, builds: Path, tmp_path: Path) -> None:
    registry = DirectoryRegistry.create(tmp_path / "registry")
    words = ("publish", str(builds), "--repo", "acme/axpy", "--dry-run", "--json")
    answer = run(*words, "--to", str(tmp_path / "registry")).json
    assert (answer["status"], answer["commit"], len(answer["added"])) == ("planned", None, 7)
    with pytest.raises(RepositoryNotFoundError):
        registry.refs(RepoId("acme", "axpy"))
    result = run(*words, "--to", str(tmp_path / "absent"))
    assert (result.json["status"], len(result.json["added"])) == ("planned", 7)
    assert not (tmp_path / "absent").exists()


def test_the_recipe_may_say_where_a_kernel_is_published(run: Run, builds: Path, tmp_path: Path) -> None:
    package = builds / "torch-ext" / "axpy"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    recipe = builds / "build.toml"
    general = '[general]\nname = "axpy"\nversion = 1\nedition = 5\nlicense = "Apache-2.0"\nbackends = ["cpu"]\n'
    recipe.write_text(f"{general}\n[torch-noarch]\n", encoding="utf-8")
    words = ("publish", str(builds), "--to", str(tmp_path / "registry"), "--json")
    assert run(*words).error["type"] == "UsageError"
    hub = '[general.hub]\nrepo-id = "acme/renamed"\nbranch = "draft"\n'
    recipe.write_text(f"{general}\n{hub}\n[torch-noarch]\n", encoding="utf-8")
    answer = run(*words).json
    assert (answer["repo"], answer["branch"]) == ("acme/renamed", "draft")
    answer = run(*words, "--repo", "acme/axpy", "--branch", "v1").json
    assert (answer["repo"], answer["branch"]) == ("acme/axpy", "v1")


def test_a_hub_is_published_to_and_loaded_from(
    run: Run, builds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    registry = DirectoryRegistry.create(tmp_path / "served")
    with RunningServer(make_app(registry)) as server:
        monkeypatch.setenv("KERNEL_HUB_REGISTRIES", f"acme={server.url}")
        answer = run("publish", str(builds), "--to", server.url, "--repo", "acme/axpy", "--json").json
        assert answer["target"] == server.url
        assert run("versions", "acme/axpy", "--json").json["versions"] == [{"version": 1, "commit": answer["commit"]}]
        assert run("download", "acme/axpy", "--backend", "cpu", "--json").json["label"] == "torch-cpu"


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["--repo", "axpy"], "InvalidDocumentError", 2),
        ([], "UsageError", 2),
        (["--repo", "acme/axpy", "--branch", "main"], "PublishRefusedError", 8),
        (["--repo", "acme/axpy", "--branch", "../x"], "InvalidDocumentError", 2),
        (["--repo", "acme/axpy", "--token-env", "NOT_SET_ANYWHERE"], "UsageError", 2),
        (["--repo", "acme/axpy", "--to", "ftp://127.0.0.1"], "InvalidDocumentError", 2),
        (["--repo", "acme/axpy", "--to", "http://127.0.0.1:9"], "OfflineError", 5),
    ],
    ids=lambda value: " ".join(value) or "no repo" if isinstance(value, list) else None,
)
def test_what_cannot_be_published_is_an_error(
    run: Run, builds: Path, tmp_path: Path, words: list[str], kind: str, code: int
) -> None:
    before = ("publish", str(builds), "--to", str(tmp_path / "registry"))
    plain, as_json = run(*before, *words), run(*before, *words, "--json")
    assert plain.code == as_json.code == as_json.error["exit_code"] == code
    assert as_json.error["type"] == kind
    assert (plain.out, as_json.err) == ("", "")


def test_a_target_is_needed(run: Run, builds: Path) -> None:
    assert run("publish", str(builds), "--json").error["type"] == "UsageError"


def test_a_build_that_is_not_what_its_digest_says_is_refused(run: Run, builds: Path, tmp_path: Path) -> None:
    (builds / "build" / "torch-cpu" / "__init__.py").write_text("changed", encoding="utf-8")
    result = run("publish", str(builds), "--to", str(tmp_path / "registry"), "--repo", "acme/axpy", "--json")
    assert (result.code, result.error["type"]) == (8, "PublishRefusedError")


def test_sources_that_were_not_committed_are_published_on_request_only(run: Run, tmp_path: Path) -> None:
    files = fake_build("torch-cpu")
    dirty = (
        b',\n  "provenance": {"kernel-builder": {"version": "0.1.0", "commit": "' + b"a" * 40 + b'", "dirty": true}}\n}'
    )
    files["metadata.json"] = files["metadata.json"].rstrip(b"}").rstrip() + dirty
    folder = write_fake_kernel(tmp_path / "axpy", {"torch-cpu": files})
    words = ("publish", str(folder), "--to", str(tmp_path / "registry"), "--repo", "acme/axpy", "--json")
    refused = run(*words)
    assert (refused.code, refused.error["type"]) == (8, "PublishRefusedError")
    assert "--allow-dirty" in refused.error["hint"]
    assert run(*words, "--allow-dirty").json["notes"]


def test_a_folder_that_cannot_be_made_is_an_error(run: Run, builds: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("publish", str(builds), "--to", str(tmp_path / "file" / "r"), "--repo", "acme/axpy", "--json")
    assert (result.code, result.error["type"]) == (5, "SourceUnavailableError")


def test_builds_are_proposed_to_a_hub(run: Run, builds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE")
    registry = DirectoryRegistry.create(tmp_path / "served")
    registry.create_repo(RepoId("acme", "axpy"))
    head = registry.create_branch(RepoId("acme", "axpy"), "v1")
    with RunningServer(make_app(registry)) as server:
        words = ("publish", str(builds), "--to", server.url, "--repo", "acme/axpy", "--create-pr")
        answer = run(*words, "--json").json
        pages = f"{server.url}/kernels/acme/axpy/discussions"
        assert (answer["status"], answer["proposal"]) == ("proposed", {"number": 1, "url": f"{pages}/1"})
        assert f"  proposal 2: {pages}/2 (revision refs/pr/2)\n" in run(*words).out
    assert registry.refs(RepoId("acme", "axpy")).branches["v1"] == head
    assert registry.commit_of(RepoId("acme", "axpy"), "refs/pr/1") == answer["commit"]


def test_builds_are_signed_on_their_way(run: Run, builds: Path, tmp_path: Path) -> None:
    words = ("publish", str(builds), "--to", str(tmp_path / "registry"), "--repo", "acme/axpy", "--json")
    assert run("new-key", str(tmp_path / "key"), "--name", "ci").code == 0
    answer = run(*words, "--sign", str(tmp_path / "key")).json
    assert {f"attestations/{label}.json" for label in LABELS} <= set(answer["added"])
    absent = run(*words, "--sign", str(tmp_path / "absent"))
    assert (absent.code, "absent" in absent.error["message"]) == (2, True)


@pytest.mark.parametrize("words", [["--dry-run"], ["--create-pr"], ["--branch", "v7"]], ids=" ".join)
def test_what_is_not_published_leaves_no_registry(run: Run, builds: Path, tmp_path: Path, words: list[str]) -> None:
    target = tmp_path / "registry"
    result = run("publish", str(builds), "--to", str(target), "--repo", "acme/axpy", *words, "--json")
    assert result.code == (0 if words == ["--dry-run"] else 8)
    assert not target.exists()
    assert result.code or result.json["notes"] == [
        "the repository is not there, or not for this user to see: publishing would make it"
    ]
