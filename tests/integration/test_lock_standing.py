"""What became of locked commits, asked of a folder and of a Hub: current, behind, rewritten, withdrawn, unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.locking.check import Concern, audit_lock
from kernel_hub.locking.make import make_lock
from kernel_hub.locking.standing import Ask, State, standing_of
from kernel_hub.locking.workspace import asker, connector
from kernel_hub.model.digest import Digest
from kernel_hub.model.lock import Declaration, Lock, LockedKernel
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.server.exchange import Site
from kernel_hub.settings import Settings, load_settings
from kernel_hub.sources.directory import DirectoryRegistry
from kernel_hub.sources.hub_json import commits_of
from tests.support.fake_kernels import fake_build, publish_fake_kernel

AXPY = RepoId("acme", "axpy")


class Place:
    """A registry, and the settings of somebody who reads from it."""

    def __init__(self, registry: DirectoryRegistry, settings: Settings) -> None:
        self.registry = registry
        self.settings = settings

    @property
    def ask(self) -> Ask:
        return asker(self.settings)

    def publish(self, text: str = "", **options: object) -> str:
        builds = {"torch-cpu": fake_build(files={"text.py": text.encode()})}
        return publish_fake_kernel(self.registry, AXPY, builds=builds, **options)  # type: ignore[arg-type]

    def lock(self, text: str = "acme/axpy@v1") -> Lock:
        return make_lock([Declaration(Requirement.parse(text))], connector(self.settings)).lock

    def kernel(self, text: str = "acme/axpy@v1") -> LockedKernel:
        return self.lock(text).kernels[0]


@pytest.fixture(params=["folder", "hub"])
def place(request: pytest.FixtureRequest, tmp_path: Path, start_hub: Callable[..., object]) -> Place:
    environ = {"HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path)}
    if request.param == "folder":
        registry = DirectoryRegistry.create(tmp_path / "registry")
        environ["KERNEL_HUB_REGISTRIES"] = f"acme={(tmp_path / 'registry').as_uri()}"
    else:
        # Pages of two rows, so that a history has several.
        hub = start_hub(tmp_path / "registry", site=Site(page_rows=2))
        registry = hub.registry  # type: ignore[attr-defined]
        environ["HF_ENDPOINT"] = hub.url  # type: ignore[attr-defined]
    return Place(registry, load_settings(environ, tmp_path))


def test_the_head_of_its_branch_is_current(place: Place) -> None:
    place.publish()
    standing = standing_of(place.kernel(), place.ask)
    assert (standing.state, standing.newest, standing.is_outdated) == (State.CURRENT, 1, False)


def test_a_commit_in_the_history_of_its_branch_is_behind(place: Place) -> None:
    place.publish()
    kernel = place.kernel()
    for number in range(5):
        head = place.publish(f"{number}")
    standing = standing_of(kernel, place.ask)
    assert (standing.state, standing.head, standing.is_outdated) == (State.BEHIND, head, True)
    assert standing.reason.startswith("5 commits behind v1")


def test_a_newer_version_makes_it_outdated(place: Place) -> None:
    place.publish()
    kernel = place.kernel()
    place.publish(version=2, branch="v2")
    standing = standing_of(kernel, place.ask)
    assert (standing.state, standing.newest, standing.is_outdated) == (State.CURRENT, 2, True)


def test_a_branch_that_leaves_its_commit_behind_was_rewritten(place: Place) -> None:
    place.publish()
    lock = place.lock()
    place.registry.add_branch(AXPY, "other")
    replaced = place.publish("other", branch="other")
    place.registry.move_branch(AXPY, "v1", replaced, expected=lock.kernels[0].commit)
    standing = standing_of(lock.kernels[0], place.ask)
    assert standing.state is State.REWRITTEN and replaced[:12] in standing.reason
    grave = [remark for remark in audit_lock(lock, place.ask, connector(place.settings)) if remark.is_grave]
    assert [remark.concern for remark in grave] == [Concern.REWRITTEN]


def test_a_branch_commit_or_repository_that_is_gone_is_withdrawn(place: Place) -> None:
    place.publish()
    kernel = place.kernel()
    place.publish(version=2, branch="v2")
    place.registry.delete_branch(AXPY, "v1")
    assert standing_of(kernel, place.ask).state is State.WITHDRAWN
    place.registry.gc(grace_s=0.0)
    assert standing_of(kernel, place.ask).state is State.WITHDRAWN
    place.registry.delete_repo(AXPY)
    assert standing_of(kernel, place.ask).state is State.WITHDRAWN


def test_a_kernel_locked_by_its_commit_needs_no_branch(place: Place) -> None:
    commit = place.publish()
    kernel = place.kernel(f"acme/axpy@{commit}")
    place.publish("more")
    assert standing_of(kernel, place.ask).state is State.CURRENT


def test_a_kernel_locked_from_a_branch_is_judged_by_it(place: Place) -> None:
    place.publish(branch="main")
    kernel = place.kernel("acme/axpy@main")
    assert standing_of(kernel, place.ask).state is State.CURRENT
    place.publish("more", branch="main")
    standing = standing_of(kernel, place.ask)
    assert standing.state is State.BEHIND and "behind main" in standing.reason


def test_a_kernel_that_moved_is_pointed_out(place: Place) -> None:
    place.publish()
    lock = place.lock()
    moved = b'kind = "redirect"\ndestination = "zoo/axpy-ng"\n'
    publish_fake_kernel(place.registry, AXPY, builds={}, extra_files={"kernel-status.toml": moved})
    remarks = audit_lock(lock, place.ask, connector(place.settings))
    (remark,) = [item for item in remarks if item.concern is Concern.MOVED]
    assert remark.text == "it is published as zoo/axpy-ng now" and not remark.is_grave


def test_a_build_that_changed_under_its_commit_is_grave(place: Place) -> None:
    place.publish()
    lock = place.lock()
    build = replace(lock.kernels[0].builds[0], digest=Digest.of(b"other"))
    absent = replace(build, label="torch-cuda")
    edited = replace(lock, kernels=(replace(lock.kernels[0], builds=(build, absent)),))
    remarks = audit_lock(edited, place.ask, connector(place.settings))
    assert {(remark.label, remark.concern) for remark in remarks} == {
        ("torch-cpu", Concern.CHANGED),
        ("torch-cuda", Concern.CHANGED),
    }


def test_what_cannot_be_asked_is_unknown(place: Place) -> None:
    place.publish()
    kernel = place.kernel()
    assert standing_of(kernel, lambda repo: None).state is State.UNKNOWN
    unreachable = asker(load_settings({"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1"}, Path.cwd()))
    standing = standing_of(kernel, unreachable)
    assert (standing.state, standing.is_outdated) == (State.UNKNOWN, False)


@pytest.mark.parametrize("content", [b"{}", b"[1]", b'[{"id": 1}]', b'[{"id": "v1"}]', b"<html>"])
def test_a_history_that_is_none_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidDocumentError):
        commits_of(content, "https://hub.test/commits")
