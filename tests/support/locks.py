"""Locks for tests: registries in folders, bound as a project would bind them, and what makes a lock from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_hub.locking.make import KEEP, Connect, Made, Upgrade, make_lock
from kernel_hub.model.lock import Declaration, Lock
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.model.target import Target
from kernel_hub.settings import Settings, load_settings
from kernel_hub.sources.configured import Connection, connect
from kernel_hub.sources.directory import DirectoryRegistry


def registry_in(folder: Path) -> DirectoryRegistry:
    """A registry folder whose commits all carry one time, so that equal content has equal ids."""
    return DirectoryRegistry.create(folder, clock_s=lambda: 1_700_000_000)


def bound_settings(home: Path, registry: Path, *namespaces: str, **environ: str) -> Settings:
    """Settings in which namespaces (default: acme) are bound to a registry folder."""
    bindings = " ".join(f"{namespace}={registry.as_uri()}" for namespace in namespaces or ("acme",))
    environment = {"HF_HOME": str(home / "hf"), "HOME": str(home), "KERNEL_HUB_REGISTRIES": bindings}
    return load_settings(environment | environ, home)


def connector(settings: Settings) -> Connect:
    """What connects repositories under some settings, with references looked up anew."""

    def connected(repo: RepoId) -> Connection:
        return connect(settings, repo.namespace, host_facts={}, refresh=True)

    return connected


def declare(*texts: str, targets: Sequence[str] = ()) -> list[Declaration]:
    """Declarations from requirement texts, all with the same targets."""
    machines = tuple(Target.parse(text) for text in targets)
    return [Declaration(Requirement.parse(text), machines) for text in texts]


def lock_of(
    settings: Settings,
    *texts: str,
    targets: Sequence[str] = (),
    previous: Lock | None = None,
    upgrade: Upgrade = KEEP,
) -> Made:
    """Make a lock."""
    return make_lock(
        declare(*texts),
        connector(settings),
        targets=[Target.parse(text) for text in targets],
        previous=previous,
        upgrade=upgrade,
    )
