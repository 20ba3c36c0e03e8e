"""Every command that asks a Hub asks the one that `HF_ENDPOINT` names, with the token, and no other host at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.server.exchange import Site
from tests.cli.conftest import Run
from tests.support.fake_kernels import fake_build, publish_fake_kernel, write_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer

TOKEN = "hf_secret0123456789"
COMMANDS = {
    "explain": "explain acme/axpy",
    "has": "has acme/axpy",
    "versions": "versions acme/axpy",
    "info": "info acme/axpy",
    "download": "download acme/axpy --backend cpu",
    "check": "check acme/axpy@v1",
    "lock": "lock --target linux-x86_64-cpu-torch2.13",
    "add": "add acme/more@v1 --target linux-x86_64-cpu-torch2.13",
    "publish": "publish {folder} --to {url} --repo acme/new",
    "yank": "yank acme/axpy --version 1 --to {url} --reason wrong",
}


@pytest.fixture
def asked() -> Faults:
    return Faults()


@pytest.fixture
def hub(start_hub: Callable[..., HubServer], asked: Faults, home: Path, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    server = start_hub(wrap=asked, site=Site(token=TOKEN))
    for name in ("axpy", "more"):
        builds = {"torch-cpu": fake_build("torch-cpu", name=name)}
        publish_fake_kernel(server.registry, f"acme/{name}", builds=builds)
    server.registry.set_publisher("acme", True)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.delenv("HF_HUB_OFFLINE")
    return server


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_asks_the_endpoint_with_its_token_and_nobody_else(
    hub: HubServer, asked: Faults, run: Run, tmp_path: Path, name: str
) -> None:
    # Any other host of this machine refuses, and any host beyond it fails the test.
    (tmp_path / "pyproject.toml").write_text('[tool.kernel-hub.dependencies]\n"acme/axpy" = "1"\n', encoding="utf-8")
    folder = write_fake_kernel(tmp_path / "axpy", ["torch-cpu"])
    result = run(*COMMANDS[name].format(folder=folder, url=hub.url).split())
    assert result.code == 0, result.err
    assert asked.asked
    assert {headers.get("authorization") for _, _, headers in asked.asked} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("name", ["outdated", "audit", "sync", "tree"])
def test_a_command_about_a_lock_asks_the_endpoint_with_its_token_and_nobody_else(
    hub: HubServer, asked: Faults, run: Run, tmp_path: Path, name: str
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.kernel-hub.dependencies]\n"acme/axpy" = "1"\n', encoding="utf-8")
    assert run("lock", "--target", "linux-x86_64-cpu-torch2.13").code == 0
    asked.asked.clear()
    words = [name, "--target", "linux-x86_64-cpu-torch2.13"] if name == "sync" else [name]
    result = run(*words)
    assert result.code == 0, result.err
    assert {headers.get("authorization") for _, _, headers in asked.asked} <= {f"Bearer {TOKEN}"}
    assert TOKEN not in json.dumps([result.out, result.err])
