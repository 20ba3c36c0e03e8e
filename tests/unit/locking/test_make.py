"""Making a lock: which commits, which builds, which digests, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.errors import (
    KernelCycleError,
    RedirectError,
    RepositoryNotFoundError,
    TargetNotServedError,
    VersionNotFoundError,
)
from kernel_hub.locking.difference import changes
from kernel_hub.locking.make import Made, Upgrade
from kernel_hub.model.digest import Digest, build_digest
from kernel_hub.model.lock import LockedKernel
from kernel_hub.model.lock_text import format_lock, parse_lock
from kernel_hub.model.metadata import AtFixedRevision, AtVersion, KernelDependency
from kernel_hub.model.requirement import RepoId
from kernel_hub.settings import Settings
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.locks import bound_settings, lock_of, registry_in

CUDA = "torch-stable-abi211-cu128-x86_64-linux"
CPU = "torch-stable-abi211-cpu-x86_64-linux"
ARM = "torch213-cxx11-cpu-aarch64-linux"


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    return registry_in(tmp_path / "registry")


@pytest.fixture
def settings(tmp_path: Path, registry: DirectoryRegistry) -> Settings:
    return bound_settings(tmp_path / "home", tmp_path / "registry", "acme", "zoo")


def publish(
    registry: DirectoryRegistry,
    repo: str,
    labels: tuple[str, ...] = (CPU,),
    *,
    version: int = 1,
    branch: str | None = None,
    depends: tuple[KernelDependency, ...] = (),
    archs: tuple[str, ...] = (),
    text: str = "",
    with_digest: bool = True,
    python_depends: tuple[str, ...] = (),
) -> str:
    name = repo.partition("/")[2]
    files = {"text.py": text.encode()} if text else {}
    builds = {
        label: fake_build(
            label,
            name=name,
            version=version,
            kernel_depends=depends,
            archs=archs if "cu128" in label else (),
            files=files | ({"_k.abi3.so": label.encode()} if label != "torch-cpu" else {}),
            with_digest=with_digest,
            python_depends=python_depends,
        )
        for label in labels
    }
    return publish_fake_kernel(registry, repo, version=version, builds=builds, branch=branch)


def entries(made: Made) -> dict[str, LockedKernel]:
    return {str(kernel.repo): kernel for kernel in made.lock.kernels}


def labels(kernel: LockedKernel) -> list[str]:
    return [build.label for build in kernel.builds]


def test_every_build_is_locked_with_size_archs_and_digest(registry: DirectoryRegistry, settings: Settings) -> None:
    commit = publish(registry, "acme/axpy", (CUDA, CPU), archs=("8.0", "9.0a"), python_depends=("einops",))
    made = lock_of(settings, "acme/axpy@v1")
    (kernel,) = made.lock.kernels
    assert (kernel.commit, kernel.version, kernel.registry, kernel.python_depends) == (commit, 1, "acme", ("einops",))
    assert {build.label: build.archs for build in kernel.builds} == {CUDA: ("8.0", "9.0a"), CPU: ()}
    files = registry.files(RepoId.parse("acme/axpy"), commit, f"build/{CUDA}")
    assert kernel.builds[1].size_bytes == sum(entry.size_bytes for entry in files)
    assert made.notes == ()


@pytest.mark.parametrize("with_digest", [True, False])
def test_the_digest_is_over_the_bytes_of_metadata_and_of_every_file(
    registry: DirectoryRegistry, settings: Settings, with_digest: bool
) -> None:
    files = fake_build("torch-cpu", with_digest=with_digest, files={"_k.abi3.so": b"native", "x.pyc": b"bytecode"})
    publish_fake_kernel(registry, "acme/axpy", builds={"torch-cpu": files})
    (kernel,) = lock_of(settings, "acme/axpy@v1").lock.kernels
    covered = [(path, Digest.of(content)) for path, content in files.items() if path not in ("metadata.json", "x.pyc")]
    assert kernel.builds[0].digest == build_digest(files["metadata.json"], covered)


def test_native_code_is_never_downloaded(
    registry: DirectoryRegistry, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(registry, "acme/axpy", (CUDA, CPU), with_digest=False)
    publish(registry, "acme/other", (CUDA,), with_digest=True)
    asked: list[str] = []
    chunks = DirectoryRegistry.chunks

    def watched(self: DirectoryRegistry, repo: RepoId, commit: str, entry: object, **more: int) -> object:
        asked.append(entry.path)  # type: ignore[attr-defined]
        return chunks(self, repo, commit, entry, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(DirectoryRegistry, "chunks", watched)
    lock_of(settings, "acme/axpy@v1", "acme/other@v1")
    assert asked
    assert not [path for path in asked if path.endswith(".so")]
    # Files of the same content are read once for all builds; those that a manifest covers not at all.
    inits = [path for path in asked if path.endswith("__init__.py")]
    assert len(inits) == 1


def test_dependencies_of_all_builds_are_locked(registry: DirectoryRegistry, settings: Settings) -> None:
    core = publish(registry, "acme/core", version=2)
    publish(registry, "zoo/base", branch="main")
    publish(registry, "acme/mid", depends=(AtVersion(RepoId("acme", "core"), 2),))
    builds = {
        CUDA: fake_build(CUDA, name="top", kernel_depends=(AtVersion(RepoId("acme", "mid"), 1),)),
        CPU: fake_build(CPU, name="top", kernel_depends=(AtFixedRevision(RepoId("zoo", "base"), "main"),)),
    }
    publish_fake_kernel(registry, "acme/top", builds=builds)
    found = entries(lock_of(settings, "acme/top@v1"))
    assert sorted(found) == ["acme/core", "acme/mid", "acme/top", "zoo/base"]
    assert [str(item) for item in found["acme/top"].depends] == ["acme/mid@v1", "zoo/base@main"]
    assert found["acme/core"].commit == core
    limited = entries(lock_of(settings, "acme/top@v1", targets=["linux-x86_64-cpu"]))
    assert sorted(limited) == ["acme/top", "zoo/base"]


def test_a_circle_is_refused_by_name(registry: DirectoryRegistry, settings: Settings) -> None:
    publish(registry, "acme/aa", depends=(AtVersion(RepoId("acme", "bb"), 1),))
    publish(registry, "acme/bb", depends=(AtVersion(RepoId("acme", "cc"), 1),))
    publish(registry, "acme/cc", depends=(AtVersion(RepoId("acme", "bb"), 1),))
    with pytest.raises(KernelCycleError, match="acme/bb@v1 -> acme/cc@v1 -> acme/bb@v1") as caught:
        lock_of(settings, "acme/aa@v1")
    assert caught.value.kernels == ("acme/bb@v1", "acme/cc@v1", "acme/bb@v1")


def test_a_kernel_may_be_locked_at_two_versions(registry: DirectoryRegistry, settings: Settings) -> None:
    publish(registry, "acme/core", version=1)
    publish(registry, "acme/core", version=2)
    publish(registry, "acme/top", depends=(AtVersion(RepoId("acme", "core"), 1),))
    made = lock_of(settings, "acme/top@v1", "acme/core@>=1")
    assert [(str(kernel.repo), kernel.version) for kernel in made.lock.kernels] == [
        ("acme/core", 1),
        ("acme/core", 2),
        ("acme/top", 1),
    ]


def test_targets_limit_the_builds_by_label_and_architecture(registry: DirectoryRegistry, settings: Settings) -> None:
    publish(registry, "acme/axpy", (CUDA, CPU, ARM, "torch-cpu"), archs=("9.0a",))
    for targets, expected in [
        (["linux-x86_64-cpu"], ["torch-cpu", CPU]),
        (["linux-aarch64"], ["torch-cpu", ARM]),
        (["linux-x86_64-cu128-torch2.13-9.0"], [CUDA]),
        (["linux-x86_64-cu128-torch2.13", "linux-aarch64-torch2.13"], ["torch-cpu", CUDA, ARM]),
    ]:
        (kernel,) = lock_of(settings, "acme/axpy@v1", targets=targets).lock.kernels
        assert sorted(labels(kernel)) == sorted(expected), targets
    with pytest.raises(TargetNotServedError, match=r"for linux-x86_64-cu128-torch2\.13-8\.0"):
        lock_of(settings, "acme/axpy@v1", targets=["linux-x86_64-cu128-torch2.13-8.0"])


def test_every_target_must_be_served_and_the_nearest_version_that_does_is_named(
    registry: DirectoryRegistry, settings: Settings
) -> None:
    for version, label in [(1, CPU), (2, ARM), (3, CPU), (4, ARM), (5, CPU)]:
        publish(registry, "acme/axpy", (label,), version=version)
    with pytest.raises(TargetNotServedError) as caught:
        lock_of(settings, "acme/axpy@v5", targets=["linux-aarch64", "linux-x86_64"])
    assert caught.value.target == "linux-aarch64"
    with pytest.raises(TargetNotServedError) as caught:
        lock_of(settings, "acme/axpy@v3", targets=["linux-aarch64"])
    assert "version 4 has builds for it" in caught.value.hint()


def test_a_range_takes_its_newest_version_that_serves_every_target(
    registry: DirectoryRegistry, settings: Settings
) -> None:
    for version, label in [(1, CPU), (2, ARM), (3, CPU)]:
        publish(registry, "acme/axpy", (label,), version=version)
    assert lock_of(settings, "acme/axpy@>=1,<4").lock.kernels[0].version == 3
    assert lock_of(settings, "acme/axpy@>=1,<4", targets=["linux-aarch64"]).lock.kernels[0].version == 2


def test_what_cannot_be_loaded_is_left_out_and_noted(registry: DirectoryRegistry, settings: Settings) -> None:
    good = fake_build(CPU)
    builds = {
        CPU: good,
        "garbage": {"x": b""},
        "torch-cuda": {"__init__.py": b""},
        "torch-rocm": good | {"metadata.json": b"{}"},
        "torch-xpu": fake_build("torch-xpu", version=2),
    }
    publish_fake_kernel(registry, "acme/axpy", builds=builds)
    made = lock_of(settings, "acme/axpy@v1")
    assert labels(made.lock.kernels[0]) == [CPU]
    reasons = {note.split(" build ")[1].split(" is left out: ")[0]: note for note in made.notes}
    assert sorted(reasons) == ["garbage", "torch-cuda", "torch-rocm", "torch-xpu"]
    assert reasons["torch-cuda"].endswith("has no metadata.json")
    assert reasons["torch-rocm"].endswith("name: is missing")
    assert reasons["torch-xpu"].endswith("states version 2, not 1")


def test_a_kernel_without_any_usable_build_is_refused_with_the_reasons(
    registry: DirectoryRegistry, settings: Settings
) -> None:
    publish_fake_kernel(registry, "acme/axpy", builds={"torch-cuda": {"__init__.py": b""}})
    with pytest.raises(TargetNotServedError, match=r"(?s)that can be locked.*torch-cuda: has no metadata\.json"):
        lock_of(settings, "acme/axpy@v1")


def test_what_does_not_exist_is_said(registry: DirectoryRegistry, settings: Settings) -> None:
    publish(registry, "acme/axpy")
    with pytest.raises(RepositoryNotFoundError, match="acme/nothing"):
        lock_of(settings, "acme/nothing@v1")
    with pytest.raises(VersionNotFoundError):
        lock_of(settings, "acme/axpy@v2")


def test_a_kernel_that_moved_is_locked_by_its_new_name_only(registry: DirectoryRegistry, settings: Settings) -> None:
    publish(registry, "acme/axpy")
    kept = lock_of(settings, "acme/axpy@v1").lock
    publish(registry, "zoo/axpy-ng")
    moved = b'kind = "redirect"\ndestination = "zoo/axpy-ng"\n'
    publish_fake_kernel(registry, "acme/axpy", builds={}, extra_files={"kernel-status.toml": moved})
    with pytest.raises(RedirectError, match="acme/axpy@v1 moved to zoo/axpy-ng@v1") as caught:
        lock_of(settings, "acme/axpy@v1")
    assert "kernel-hub add zoo/axpy-ng@v1" in caught.value.hint()
    assert lock_of(settings, "acme/axpy@v1", "zoo/axpy-ng@v1", previous=kept).lock.kernels[0] == kept.kernels[0]


def test_a_lock_that_fits_is_kept_though_the_branch_moved(registry: DirectoryRegistry, settings: Settings) -> None:
    first = publish(registry, "acme/axpy")
    lock = lock_of(settings, "acme/axpy@v1").lock
    second = publish(registry, "acme/axpy", text="more")
    assert second != first
    assert lock_of(settings, "acme/axpy@v1", previous=lock).lock == lock
    publish(registry, "zoo/other")
    more = lock_of(settings, "acme/axpy@v1", "zoo/other@v1", previous=lock)
    assert entries(more)["acme/axpy"] == lock.kernels[0]
    assert entries(lock_of(settings, "acme/axpy@v1"))["acme/axpy"].commit == second


def test_upgrading_looks_up_what_is_named_or_everything(registry: DirectoryRegistry, settings: Settings) -> None:
    for repo in ("acme/aa", "acme/bb"):
        publish(registry, repo)
    lock = lock_of(settings, "acme/aa@v1", "acme/bb@v1").lock
    for repo in ("acme/aa", "acme/bb"):
        publish(registry, repo, text="more")
    one = lock_of(
        settings, "acme/aa@v1", "acme/bb@v1", previous=lock, upgrade=Upgrade(repos=frozenset([RepoId("acme", "aa")]))
    ).lock
    assert [kernel in lock.kernels for kernel in one.kernels] == [False, True]
    every = lock_of(settings, "acme/aa@v1", "acme/bb@v1", previous=lock, upgrade=Upgrade(everything=True)).lock
    assert [kernel in lock.kernels for kernel in every.kernels] == [False, False]


def test_a_wider_range_keeps_the_version_and_a_narrower_one_moves_it(
    registry: DirectoryRegistry, settings: Settings
) -> None:
    for version in (1, 2):
        publish(registry, "acme/axpy", version=version)
    lock = lock_of(settings, "acme/axpy@<3").lock
    publish(registry, "acme/axpy", version=3)
    assert lock_of(settings, "acme/axpy@<4", previous=lock).lock.kernels[0].version == 2
    assert lock_of(settings, "acme/axpy@<2", previous=lock).lock.kernels[0].version == 1
    assert lock_of(settings, "acme/axpy@v3", previous=lock).lock.kernels[0].version == 3


def test_a_target_that_the_kept_commit_lacks_moves_it(registry: DirectoryRegistry, settings: Settings) -> None:
    publish(registry, "acme/axpy", (CPU,))
    lock = lock_of(settings, "acme/axpy@v1").lock
    second = publish(registry, "acme/axpy", (ARM,))
    moved = lock_of(settings, "acme/axpy@v1", previous=lock, targets=["linux-aarch64"]).lock
    assert moved.kernels[0].commit == second


def test_an_unrelated_dependency_is_added_without_asking_for_the_others(
    registry: DirectoryRegistry, settings: Settings, tmp_path: Path
) -> None:
    publish(registry, "acme/axpy")
    lock = lock_of(settings, "acme/axpy@v1").lock
    other = registry_in(tmp_path / "other")
    publish(other, "zoo/new")
    elsewhere = bound_settings(tmp_path / "elsewhere", tmp_path / "other", "acme", "zoo")
    more = lock_of(elsewhere, "acme/axpy@v1", "zoo/new@v1", previous=lock).lock
    assert more.kernels[0] == lock.kernels[0]


def test_differences_are_told_by_entry(registry: DirectoryRegistry, settings: Settings) -> None:
    for repo in ("acme/aa", "acme/bb", "acme/cc"):
        publish(registry, repo, (CPU, ARM))
    before = lock_of(settings, "acme/aa@v1", "acme/bb@v1", "acme/cc@v1").lock
    publish(registry, "acme/dd")
    publish(registry, "acme/aa", text="more")
    after = lock_of(settings, "acme/aa@v1", "acme/cc@v1", "acme/dd@v1").lock
    limited = [
        replace(kernel, builds=kernel.builds[:1]) if kernel.repo.name == "cc" else kernel for kernel in after.kernels
    ]
    after = replace(after, kernels=tuple(limited))
    assert [(str(change.repo), change.kind.value) for change in changes(before, after)] == [
        ("acme/aa", "moved"),
        ("acme/bb", "removed"),
        ("acme/cc", "builds"),
        ("acme/dd", "added"),
    ]
    assert changes(before, before) == ()
    row = changes(before, after)[2].row
    assert row[2].endswith("2 builds") and row[3].endswith("1 build")


def test_a_lock_is_the_same_bytes_wherever_it_is_made(registry: DirectoryRegistry, tmp_path: Path) -> None:
    publish(registry, "acme/core", (CUDA, CPU, ARM), archs=("8.0",))
    publish(registry, "acme/top", (ARM, CPU), depends=(AtVersion(RepoId("acme", "core"), 1),))
    texts = set()
    for number, order in enumerate([("acme/top@v1", "acme/core@>=1"), ("acme/core@>=1", "acme/top@v1")]):
        settings = bound_settings(tmp_path / f"home{number}", tmp_path / "registry", CUDA_VISIBLE_DEVICES=str(number))
        texts.add(format_lock(lock_of(settings, *order, targets=["linux-x86_64", "linux-aarch64"]).lock))
    (text,) = texts
    assert format_lock(parse_lock(text, name="x")) == text
