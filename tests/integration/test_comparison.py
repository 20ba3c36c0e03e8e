"""What the README says of both clients, seen side by side: the same kernel, the same Hub, a process of its own for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.child import run_python
from tests.support.fake_kernels import publish_fake_kernel
from tests.support.hub import HubServer, running_hub

LOAD = {
    "kernel_hub": "from kernel_hub import get_kernel",
    "kernels": "from kernels import get_kernel",
}
TRY = """
import logging, sys
logging.disable()
{load}
try:
    kernel = get_kernel("acme/axpy", version=1, trust_remote_code=True)
    print("loaded", kernel.axpy(2, [1], [1]))
except Exception as error:
    print("failed", type(error).__name__)
"""


Outcome = Callable[..., str]


def load(hub: HubServer, home: Path, client: str, **environ: str) -> str:
    code = TRY.format(load=LOAD[client])
    return run_python(code, environ=hub.child_environment(home, **environ)).strip()


@pytest.fixture
def outcome(hub_server: HubServer, tmp_path: Path) -> Outcome:
    publish_fake_kernel(hub_server.registry, builds=["torch-cpu", "torch-cuda"])
    return lambda client, **environ: load(hub_server, tmp_path / client, client, **environ)


def cached(home: Path, name: str) -> Path:
    return next(path for path in home.rglob(name) if path.parent.name == "torch-cpu")


@pytest.mark.parametrize(("client", "expected"), [("kernel_hub", "loaded [3]"), ("kernels", "failed")])
def test_offline_by_version_after_online_by_version(outcome: Outcome, client: str, expected: str) -> None:
    assert outcome(client) == "loaded [3]"
    assert outcome(client, HF_HUB_OFFLINE="1").startswith(expected)


@pytest.mark.parametrize(("client", "expected"), [("kernel_hub", "loaded [3]"), ("kernels", "failed")])
def test_warm_cache_when_the_hub_is_down(tmp_path: Path, client: str, expected: str) -> None:
    with running_hub(tmp_path / "registry") as hub:
        publish_fake_kernel(hub.registry, builds=["torch-cpu", "torch-cuda"])
        assert load(hub, tmp_path / client, client) == "loaded [3]"
    assert load(hub, tmp_path / client, client, KERNEL_HUB_FRESHNESS="0").startswith(expected)


@pytest.mark.parametrize(("client", "expected"), [("kernel_hub", "loaded [3]"), ("kernels", "loaded [4]")])
def test_one_changed_byte_in_the_cache(outcome: Outcome, tmp_path: Path, client: str, expected: str) -> None:
    assert outcome(client) == "loaded [3]"
    changed = cached(tmp_path / client, "_math.py").resolve()
    changed.write_bytes(changed.read_bytes().replace(b"a * left + right", b"a * left - -2   "))
    assert outcome(client) == expected


@pytest.mark.parametrize(("client", "expected"), [("kernel_hub", "loaded [3]"), ("kernels", "failed")])
def test_telemetry_off(outcome: Outcome, client: str, expected: str) -> None:
    assert outcome(client, HF_HUB_DISABLE_TELEMETRY="1").startswith(expected)


@pytest.mark.parametrize(("client", "requests"), [("kernel_hub", 0), ("kernels", 2)])
def test_requests_of_a_warm_load_by_version(
    outcome: Outcome, hub_server: HubServer, client: str, requests: int
) -> None:
    assert outcome(client) == "loaded [3]"
    hub_server.log.clear()
    assert outcome(client) == "loaded [3]"
    assert len(hub_server.log.records) == requests, hub_server.log.lines
