"""Attack: a kernel of a publisher whom nobody vouches for, named by a programmer's mistake or by somebody else's data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError, TrustUnknownError, UntrustedPublisherError
from kernel_hub.loader import Loader
from kernel_hub.model.host import Host
from kernel_hub.model.requirement import Requirement
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from tests.support.fake_kernels import publish_fake_kernel
from tests.support.hub import HubServer

ENFORCED_BY = "kernel_hub.trust.rules.TrustRules.decide"
CPU = Host.from_json({"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "backend": "cpu", "devices": []})
REQUIREMENT = Requirement.parse("acme/axpy", version=1)


@pytest.fixture
def loader(hub_server: HubServer, tmp_path: Path) -> Callable[..., Loader]:
    publish_fake_kernel(hub_server.registry)

    def make(**environ: str) -> Loader:
        base = {"HF_ENDPOINT": hub_server.url, "HF_HOME": str(tmp_path / "hf"), "XDG_CONFIG_HOME": str(tmp_path)}
        return Loader(load_settings(base | environ, tmp_path), CPU)

    return make


def files_asked_for(hub: HubServer) -> list[str]:
    return [line for line in hub.log.lines if "/resolve/" in line]


def test_nothing_of_it_is_fetched(hub_server: HubServer, loader: Callable[..., Loader]) -> None:
    hub_server.registry.set_publisher("acme", False)
    with pytest.raises(UntrustedPublisherError):
        loader().load(Request(REQUIREMENT))
    assert files_asked_for(hub_server) == []


def test_a_good_name_is_not_enough_when_data_chose_it(hub_server: HubServer, loader: Callable[..., Loader]) -> None:
    hub_server.registry.set_publisher("acme", True)
    for trust in (False, True):
        with pytest.raises(UntrustedPublisherError, match="named by data"):
            loader().load(Request(REQUIREMENT, trust_remote_code=trust, named_by="data"))
    assert files_asked_for(hub_server) == []


def test_a_hub_that_does_not_answer_allows_nothing(loader: Callable[..., Loader]) -> None:
    loader().download(Request(REQUIREMENT, trust_remote_code=True))
    with pytest.raises(TrustUnknownError):
        loader(HF_HUB_OFFLINE="1").load(Request(REQUIREMENT))


@pytest.mark.parametrize("allowed", ["acme", "acme/", "acme/*", "acme/ax", "acme/axpy2", "ACME/axpy", "*", ""])
def test_only_the_whole_name_in_a_list_allows_it(
    hub_server: HubServer, loader: Callable[..., Loader], allowed: str
) -> None:
    hub_server.registry.set_publisher("acme", False)
    with pytest.raises(UntrustedPublisherError):
        loader().load(Request(REQUIREMENT, trust_remote_code=[allowed]))


@pytest.mark.parametrize("text", ["acme/axpy", "acme/axpy-evil", "True", ""])
def test_a_text_is_no_list(hub_server: HubServer, loader: Callable[..., Loader], text: str) -> None:
    with pytest.raises(InvalidDocumentError, match="trust_remote_code"):
        loader().load(Request(REQUIREMENT, trust_remote_code=text))
    assert files_asked_for(hub_server) == []
