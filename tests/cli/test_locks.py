"""`kernel-hub lock`, `sync`, `add`, `remove`, `tree`, `outdated`, `audit`, `export` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kernels._rust import KernelLocks

from kernel_hub.model.metadata import AtVersion
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.fake_kernels import fake_build, publish_fake_kernel

CPU = "torch-stable-abi211-cpu-x86_64-linux"
CUDA = "torch-stable-abi211-cu128-x86_64-linux"
HOST = {"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "cxx11_abi": True, "backend": "cpu", "devices": []}
AXPY = RepoId("acme", "axpy")


@pytest.fixture
def project(tmp_path: Path, registry: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that declares a kernel with a dependency; the working folder is inside it."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[tool.kernel-hub.dependencies]\n"acme/axpy" = "1" # ours\n')
    (folder / "host.json").write_text(json.dumps(HOST))
    publish_fake_kernel(registry, "acme/core", builds={label: fake_build(label, name="core") for label in (CPU, CUDA)})
    publish(registry)
    monkeypatch.chdir(folder / "src")
    return folder


def publish(registry: DirectoryRegistry, *, version: int = 1, text: str = "") -> str:
    needs = (AtVersion(RepoId("acme", "core"), 1),)
    builds = {
        label: fake_build(label, version=version, kernel_depends=needs, files={"text.py": text.encode()})
        for label in (CPU, CUDA)
    }
    return publish_fake_kernel(registry, "acme/axpy", version=version, builds=builds)


def test_locking_writes_once_and_then_only_what_changed(run, project: Path, registry) -> None:  # type: ignore[no-untyped-def]
    first = run("lock", "--json")
    assert (first.code, first.json["changed"], first.json["written"], first.json["kernels"]) == (0, True, True, 2)
    path = project / "kernel-hub.lock"
    text, state = path.read_bytes(), path.stat()
    assert run("lock").out == f"{path} is up to date: 2 kernels\n"
    assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) == (text, state.st_mtime_ns, state.st_ino)
    publish(registry, text="more")
    assert run("lock", "--json").json["changed"] is False
    dry = run("lock", "--upgrade", "--dry-run")
    assert "acme/axpy  moved" in dry.out and "would be locked" in dry.out
    assert path.read_bytes() == text
    assert [change["change"] for change in run("lock", "--upgrade", "acme/axpy", "--json").json["changes"]] == ["moved"]
    assert path.read_bytes() != text


def test_targets_are_kept_until_they_are_changed(run, project: Path) -> None:  # type: ignore[no-untyped-def]
    def locked() -> list[str]:
        return [build["label"] for build in run("tree", "--json").json[0]["builds"]]

    assert run("lock", "--target", str(project / "host.json")).code == 0
    assert 'targets = ["linux-x86_64-cpu-torch2.13"]' in (project / "kernel-hub.lock").read_text()
    assert locked() == [CPU]
    assert run("lock").code == 0 and locked() == [CPU]
    assert run("lock", "--target", "linux-x86_64-cu129").code == 0 and locked() == [CUDA]
    assert run("lock", "--all-targets").code == 0 and locked() == [CPU, CUDA]
    refused = run("lock", "--target", "darwin-aarch64", "--json")
    assert (refused.code, refused.error["type"]) == (4, "TargetNotServedError")
    assert locked() == [CPU, CUDA]


def test_checking_tells_every_disagreement(run, project: Path, registry) -> None:  # type: ignore[no-untyped-def]
    missing = run("lock", "--check", "--json")
    assert (missing.code, missing.error["type"]) == (3, "NotLockedError")
    run("lock")
    assert run("lock", "--check").code == 0
    (project / "pyproject.toml").write_text('[tool.kernel-hub.dependencies]\n"acme/axpy" = ">=1"\n"acme/core" = "1"\n')
    differing = run("lock", "--check", "--json")
    assert (differing.code, differing.error["type"]) == (3, "LockOutdatedError")
    assert "acme/axpy is declared as >=1, but locked for v1" in differing.error["message"]
    assert "acme/core is declared, but not locked" in differing.error["message"]


def test_checking_finds_what_was_withdrawn(run, project: Path, registry: DirectoryRegistry) -> None:  # type: ignore[no-untyped-def]
    run("lock")
    registry.delete_repo(RepoId("acme", "core"))
    checked = run("lock", "--check", "--json")
    assert checked.code == 3
    assert "acme/core@v1" in checked.error["message"] and "withdrawn" in checked.error["message"]


def test_checking_works_without_network_and_says_what_it_did_not_ask(run, project: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    run("lock")
    monkeypatch.delenv("KERNEL_HUB_REGISTRIES")
    checked = run("lock", "--check")
    assert checked.code == 0
    assert "whether acme/axpy@v1" in checked.err and "not known: the network may not be used" in checked.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lock", "--check", "--upgrade"), "--check takes none"),
        (("lock", "--all-targets", "--target", "linux-x86_64"), "exclude each other"),
        (("lock", "--upgrade", "acme/other"), "neither declared nor locked"),
        (("sync", "--all-builds", "--target", "linux-x86_64"), "takes neither"),
        (("remove", "acme/other"), "is not declared"),
    ],
)
def test_a_command_line_that_contradicts_itself_is_refused(run, project: Path, words, message: str) -> None:  # type: ignore[no-untyped-def]
    run("lock")
    refused = run(*words, "--json")
    assert (refused.code, message in refused.error["message"]) == (2, True), refused


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[: len(text) // 2], "kernel-hub.lock"),
        (lambda text: text.replace("format = 1", "format = 2"), "newer than this release reads"),
        (lambda text: text.replace("version = 1", "<<<<<<< ours\nversion = 1"), "merge conflict"),
        (lambda text: text.replace("build-count = 2", "build-count = 3"), "build-count"),
    ],
)
def test_a_damaged_lock_is_refused_by_every_command_and_left_as_it_is(run, project: Path, damage, message: str) -> None:  # type: ignore[no-untyped-def]
    run("lock")
    path = project / "kernel-hub.lock"
    path.write_text(damage(path.read_text()))
    text = path.read_bytes()
    before = (project / "pyproject.toml").read_bytes()
    for words in (
        *(("lock",), ("lock", "--check"), ("lock", "--upgrade"), ("sync",), ("tree",), ("export",), ("audit",)),
        *(("outdated",), ("add", "acme/core"), ("remove", "acme/axpy")),
    ):
        refused = run(*words, "--json")
        assert (refused.code, refused.error["type"]) == (2, "InvalidDocumentError"), words
        assert message in refused.error["message"]
    assert path.read_bytes() == text
    assert (project / "pyproject.toml").read_bytes() == before


def test_syncing_brings_what_a_machine_loads_with_its_dependencies(run, project: Path, home: Path) -> None:  # type: ignore[no-untyped-def]
    run("lock")
    synced = run("sync", "--host", str(project / "host.json"), "--json").json["builds"]
    assert [(item["kernel"], item["label"]) for item in synced] == [("acme/axpy", CPU), ("acme/core", CPU)]
    for item in synced:
        assert (Path(item["folder"]) / "metadata.json").is_file()
    every = run("sync", "--all-builds", "--json").json["builds"]
    assert len(every) == 4
    some = run("sync", "--target", "linux-x86_64-cu128-torch2.13", "--json").json["builds"]
    assert [item["label"] for item in some] == [CUDA, CUDA]


def test_syncing_for_a_machine_that_is_not_locked_for_says_how_to(run, project: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    run("lock", "--target", "linux-x86_64-cu128")
    refused = run("sync", "--host", str(project / "host.json"), "--json")
    assert (refused.code, refused.error["type"]) == (4, "NoCompatibleVariantError")
    assert "lock for this machine too" in refused.error["hint"] and CPU in refused.error["hint"]


def test_adding_takes_the_newest_version_and_keeps_comments(run, project: Path, registry: DirectoryRegistry) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, "acme/moe", version=3)
    added = run("add", "acme/moe", "--json").json
    assert [change["kernel"] for change in added["changes"]] == ["acme/axpy", "acme/core", "acme/moe"]
    text = (project / "pyproject.toml").read_text()
    assert text == '[tool.kernel-hub.dependencies]\n"acme/axpy" = "1" # ours\n"acme/moe" = "3"\n'
    assert run("lock", "--check").code == 0
    assert run("remove", "acme/moe").code == 0
    assert (project / "pyproject.toml").read_text() == '[tool.kernel-hub.dependencies]\n"acme/axpy" = "1" # ours\n'
    assert run("lock", "--check").code == 0


def test_adding_what_cannot_be_locked_writes_nothing(run, project: Path) -> None:  # type: ignore[no-untyped-def]
    before = (project / "pyproject.toml").read_bytes()
    assert run("add", "acme/nothing@v1").code == 3
    assert run("add", "acme/axpy@v7").code == 3
    assert (project / "pyproject.toml").read_bytes() == before
    assert not (project / "kernel-hub.lock").exists()


def test_a_newer_version_and_a_moved_branch_are_outdated(run, project: Path, registry: DirectoryRegistry) -> None:  # type: ignore[no-untyped-def]
    run("lock")
    assert run("outdated").out == "nothing is outdated\n"
    head = publish(registry, text="more")
    publish(registry, version=2)
    found = run("outdated", "--json").json["kernels"]
    assert (found[0]["state"], found[0]["head"], found[0]["newest_version"]) == ("behind", head, 2)
    assert found[0]["reason"].startswith("1 commit behind v1")
    assert f"v1 {head[:12]}" in run("outdated").out


def test_an_audit_finds_a_rewritten_branch_and_dirty_unsigned_builds(
    run, project: Path, registry: DirectoryRegistry
) -> None:  # type: ignore[no-untyped-def]
    run("lock")
    quiet = run("audit", "--json")
    assert quiet.code == 0
    assert {remark["concern"] for remark in quiet.json["remarks"]} == {"unsigned"}
    locked = registry.refs(AXPY).branches["v1"]
    registry.add_branch(AXPY, "other")
    builds = {CPU: fake_build(CPU, with_digest=False)}
    replaced = publish_fake_kernel(registry, AXPY, builds=builds, branch="other")
    registry.move_branch(AXPY, "v1", replaced, expected=locked)
    loud = run("audit", "--json")
    assert loud.code == 3
    (remark,) = [item for item in loud.json["remarks"] if item["concern"] == "rewritten"]
    assert (remark["kernel"], remark["commit"]) == ("acme/axpy", locked)


def test_an_export_is_read_by_the_ecosystem(run, project: Path, registry: DirectoryRegistry) -> None:  # type: ignore[no-untyped-def]
    run("lock")
    exported = run("export").out.rstrip("\n")
    locks = KernelLocks.from_json(exported)
    assert {dependency.repo_id: lock.commit for dependency, lock in locks.items()} == {
        "acme/axpy": registry.refs(AXPY).branches["v1"],
        "acme/core": registry.refs(RepoId("acme", "core")).branches["v1"],
    }
    assert locks.to_json() == exported
    written = run("export", "--format", "kernels-old", "--output", "kernels.lock")
    assert written.code == 0
    old = json.loads(Path("kernels.lock").read_text())
    assert {item["repo_id"]: sorted(item["variants"]) for item in old} == {
        "acme/axpy": [CPU, CUDA],
        "acme/core": [CPU, CUDA],
    }


def test_outside_of_a_project_the_project_is_asked_for(run, tmp_path: Path, home: Path) -> None:  # type: ignore[no-untyped-def]
    refused = run("lock", "--json")
    assert refused.code == 2
    assert "--project" in refused.error["hint"]
