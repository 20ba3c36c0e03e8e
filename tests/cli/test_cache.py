"""`kernel-hub cache`: what kernels take on this disk, whether it is intact, and what can go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_hub.sources.directory import DirectoryRegistry
from tests.cli.conftest import Run
from tests.support.fake_kernels import publish_fake_kernel


@pytest.fixture
def commit(run: Run, registry: DirectoryRegistry) -> str:
    """The commit of a kernel that was downloaded from the registry that `acme` is bound to."""
    commit = publish_fake_kernel(registry)
    assert run("download", "acme/axpy", "--version", "1", "--backend", "cpu").code == 0
    return commit


def blobs(run: Run) -> list[Path]:
    """The cached files of bound registries."""
    _, folder = run("cache", "path", "--json").json["caches"]
    return sorted(path for path in Path(folder).glob("kernels--*/blobs/*") if path.is_file())


def test_an_empty_cache_lists_nothing(run: Run) -> None:
    assert run("cache", "list").out == "0 builds, 0 B\n"
    assert run("cache", "list", "--json").json == {"builds": [], "size_bytes": 0}
    assert run("cache", "verify").out == "every file is what its name says\n"
    assert run("cache", "prune").out == "0 B freed\n"


def test_a_cached_build_is_listed_with_its_size_and_cache(run: Run, commit: str) -> None:
    answer = run("cache", "list", "--json").json
    (build,) = answer["builds"]
    assert (build["repo"], build["commit"], build["missing"]) == ("acme/axpy", commit, [])
    assert build["size_bytes"] == answer["size_bytes"] == sum(path.stat().st_size for path in blobs(run))
    assert build["cache"] in run("cache", "path").out.splitlines()
    text = run("cache", "list").out
    assert build["label"] in text
    assert text.splitlines()[-1].startswith("1 build, ")
    assert run("cache", "list", "acme/other", "--json").json["builds"] == []


def test_a_damaged_file_is_named_and_exits_with_6_until_it_is_fetched_again(run: Run, commit: str) -> None:
    victim = next(path for path in blobs(run) if path.stat().st_size)
    content = victim.read_bytes()
    victim.chmod(0o644)
    victim.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    result = run("cache", "verify")
    assert result.code == 6
    assert f"damaged: {victim} (of acme/axpy)\n1 file damaged\n" == result.out
    assert "kernel-hub download" in result.err
    (damaged,) = run("cache", "verify", "acme/axpy", "--json").json["damaged"]
    assert (damaged["expected"], damaged["found"] != victim.name) == (victim.name, True)
    victim.unlink()
    assert run("download", "acme/axpy", "--version", "1", "--backend", "cpu").code == 0
    assert (victim.read_bytes(), run("cache", "verify").code) == (content, 0)


def test_a_file_that_no_commit_leads_to_is_pruned_but_not_in_a_dry_run(run: Run, commit: str) -> None:
    lost = blobs(run)[0].with_name("a" * 40)
    lost.write_bytes(b"lost")
    os.utime(lost, (0, 0))
    planned = run("cache", "prune", "--dry-run", "--json").json
    assert planned == {"removed": [str(lost)], "freed_bytes": 4, "dry_run": True}
    assert lost.exists()
    assert run("cache", "prune").out == f"removed: {lost}\n4 B freed\n"
    assert not lost.exists()
    assert len(run("cache", "list", "--json").json["builds"]) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["prune", "acme/axpy"],
        ["path", "acme/axpy"],
        ["list", "--dry-run"],
        ["verify", "--unused-for", "1"],
        ["prune", "--unused-for", "-1"],
    ],
    ids=" ".join,
)
def test_what_does_not_belong_to_the_action_is_a_usage_error(run: Run, words: list[str]) -> None:
    assert run("cache", *words, "--json").error["type"] == "UsageError"
