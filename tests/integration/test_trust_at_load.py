"""Who may run code here, as a caller of `get_kernel` meets it: over a Hub, with trust files, with and without network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.errors import (
    DigestMissingError,
    SignatureInvalidError,
    SignatureMissingError,
    TrustUnknownError,
    UntrustedPublisherError,
)
from kernel_hub.loader import Loader
from kernel_hub.model.host import Host
from kernel_hub.model.requirement import Requirement
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from kernel_hub.signatures import PrivateKey, sign_build
from kernel_hub.trust import Ed25519Signer
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.hub import HubServer

CPU = Host.from_json({"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "backend": "cpu", "devices": []})
REQUIREMENT = Requirement.parse("acme/axpy", version=1)
REQUEST = Request(REQUIREMENT)
KEY = PrivateKey(b"\1" * 32)
SIGNER = f'[[signer]]\nname = "ci"\ned25519 = "{Ed25519Signer("ci", KEY.public).key_text}"\n'
DEMAND = f'{SIGNER}\n[[require]]\npublisher = "acme"\nsigners = ["ci"]\n'


@pytest.fixture
def loader(hub_server: HubServer, tmp_path: Path) -> Callable[..., Loader]:
    def make(trust: str = "", **environ: str) -> Loader:
        (tmp_path / "kernel_hub").mkdir(exist_ok=True)
        (tmp_path / "kernel_hub" / "trust.toml").write_text(trust)
        base = {"HF_ENDPOINT": hub_server.url, "HF_HOME": str(tmp_path / "hf"), "XDG_CONFIG_HOME": str(tmp_path)}
        return Loader(load_settings(base | environ, tmp_path), CPU)

    return make


def publish(hub: HubServer, *, signed_by: PrivateKey | None = None, signed_for: str = "acme/axpy") -> str:
    # A file of its own keeps this module's kernel apart from those that other tests of this process load.
    build = fake_build("torch-cpu", files={"trust.txt": b""})
    extra = {}
    if signed_by is not None:
        attestation = sign_build(build["metadata.json"], "torch-cpu", signed_by, repository=signed_for)
        extra["attestations/torch-cpu.json"] = attestation
    return publish_fake_kernel(hub.registry, builds={"torch-cpu": build}, extra_files=extra)


class TestAllowances:
    def test_an_untrusted_publisher_is_refused_with_the_line_to_add(
        self, hub_server: HubServer, loader: Callable[..., Loader]
    ) -> None:
        publish(hub_server)
        hub_server.registry.set_publisher("acme", False)
        with pytest.raises(UntrustedPublisherError, match="not a trusted publisher") as caught:
            loader().load(REQUEST)
        assert "kernel-hub trust add acme/axpy" in caught.value.hint()

    @pytest.mark.parametrize("scope", ['publisher = "acme"', 'repository = "acme/axpy"'])
    def test_an_entry_allows_it_and_says_so(
        self, hub_server: HubServer, loader: Callable[..., Loader], scope: str
    ) -> None:
        publish(hub_server)
        entry = f'[[allow]]\n{scope}\nadded_by = "alice"\nadded_on = 2026-12-02\nreason = "read it"\n'
        plan = loader(entry).plan(REQUEST)
        assert "by alice on 2026-12-02, read it" in str(plan)
        assert loader(entry).load(REQUEST).module.axpy(1, [1], [1]) == [2]

    def test_an_entry_for_a_commit_allows_that_commit_only(
        self, hub_server: HubServer, loader: Callable[..., Loader]
    ) -> None:
        first = publish(hub_server)
        hub_server.registry.set_publisher("acme", False)
        entry = f'[[allow]]\nrepository = "acme/axpy"\ncommit = "{first}"\n'
        assert loader(entry).download(REQUEST)
        second = publish_fake_kernel(hub_server.registry, extra_files={"notes.txt": b"new"})
        assert first != second
        with pytest.raises(UntrustedPublisherError, match=f"allowed only at commit {first[:12]}"):
            loader(entry, KERNEL_HUB_FRESHNESS="0").download(REQUEST)
        assert loader(entry).download(Request(Requirement.parse("acme/axpy", revision=first)))

    def test_a_project_file_beside_pyproject_is_read_too(
        self, hub_server: HubServer, loader: Callable[..., Loader], tmp_path: Path
    ) -> None:
        publish(hub_server)
        (tmp_path / "pyproject.toml").write_text("")
        (tmp_path / "kernel-hub-trust.toml").write_text('[[allow]]\npublisher = "acme"\n')
        assert loader().download(REQUEST)

    def test_a_name_from_data_needs_a_list(self, hub_server: HubServer, loader: Callable[..., Loader]) -> None:
        publish(hub_server)
        hub_server.registry.set_publisher("acme", True)
        assert loader().download(REQUEST)
        for trust in (False, True):
            with pytest.raises(UntrustedPublisherError, match="named by data"):
                loader().download(Request(REQUIREMENT, trust_remote_code=trust, named_by="data"))
        assert loader().download(Request(REQUIREMENT, trust_remote_code=["acme/axpy"], named_by="data"))
        assert loader('[[allow]]\npublisher = "acme"\n').download(Request(REQUIREMENT, named_by="data"))


class TestWithoutNetwork:
    def test_a_decision_is_remembered_with_its_date(self, hub_server: HubServer, loader: Callable[..., Loader]) -> None:
        publish(hub_server)
        hub_server.registry.set_publisher("acme", True)
        loader().download(REQUEST)
        offline = loader(HF_HUB_OFFLINE="1", HF_ENDPOINT=hub_server.url)
        assert offline.download(REQUEST)
        assert "trusted publisher" in str(offline.plan(REQUEST))

    def test_a_publisher_that_was_never_asked_about_is_not_called_untrusted(
        self, hub_server: HubServer, loader: Callable[..., Loader]
    ) -> None:
        publish(hub_server)
        loader().download(Request(REQUIREMENT, trust_remote_code=True))
        with pytest.raises(TrustUnknownError, match="could not check"):
            loader(HF_HUB_OFFLINE="1").download(REQUEST)

    def test_an_entry_needs_nobody_to_be_asked(self, hub_server: HubServer, loader: Callable[..., Loader]) -> None:
        publish(hub_server)
        entry = '[[allow]]\npublisher = "acme"\n'
        loader(entry).download(REQUEST)
        assert loader(entry, HF_HUB_OFFLINE="1").download(REQUEST)
        assert not hub_server.log.matching(path="/api/organizations")


class TestSignatures:
    def test_a_demanded_signature_is_fetched_verified_and_recorded(
        self, hub_server: HubServer, loader: Callable[..., Loader]
    ) -> None:
        publish(hub_server, signed_by=KEY)
        kernel = loader(DEMAND).load(Request(REQUIREMENT, trust_remote_code=True))
        assert "it is signed by ci" in kernel.notes
        assert loader(DEMAND, HF_HUB_OFFLINE="1").download(Request(REQUIREMENT, trust_remote_code=True)).signed_by == (
            "ci",
        )

    def test_a_signature_may_be_what_allows(self, hub_server: HubServer, loader: Callable[..., Loader]) -> None:
        publish(hub_server, signed_by=KEY)
        hub_server.registry.set_publisher("acme", False)
        allow = f'{SIGNER}\n[[allow]]\nrepository = "acme/axpy"\nsigners = ["ci"]\n'
        assert loader(allow).download(REQUEST).signed_by == ("ci",)

    def test_an_unsigned_build_is_refused_whoever_published_it(
        self, hub_server: HubServer, loader: Callable[..., Loader]
    ) -> None:
        publish(hub_server)
        hub_server.registry.set_publisher("acme", True)
        for request in (REQUEST, Request(REQUIREMENT, trust_remote_code=True)):
            with pytest.raises(SignatureMissingError, match=r"'ci'.*trust\.toml"):
                loader(DEMAND).load(request)

    def test_a_signature_for_another_repository_or_by_another_key_is_refused(
        self, hub_server: HubServer, loader: Callable[..., Loader]
    ) -> None:
        publish(hub_server, signed_by=KEY, signed_for="acme/other")
        with pytest.raises(SignatureInvalidError, match="about acme/other"):
            loader(DEMAND).load(Request(REQUIREMENT, trust_remote_code=True))
        publish(hub_server, signed_by=PrivateKey(b"\2" * 32))
        with pytest.raises(SignatureMissingError):
            loader(DEMAND, KERNEL_HUB_FRESHNESS="0").load(Request(REQUIREMENT, trust_remote_code=True))

    def test_without_a_demand_nothing_is_asked_for(self, hub_server: HubServer, loader: Callable[..., Loader]) -> None:
        publish(hub_server, signed_by=KEY)
        loader().download(Request(REQUIREMENT, trust_remote_code=True))
        assert not [line for line in hub_server.log.lines if "attestations" in line]


def test_a_required_digest_is_required_at_load(hub_server: HubServer, loader: Callable[..., Loader]) -> None:
    import json

    build = fake_build("torch-cpu")
    document = json.loads(build["metadata.json"])
    del document["digest"]
    publish_fake_kernel(
        hub_server.registry, builds={"torch-cpu": build | {"metadata.json": json.dumps(document).encode()}}
    )
    request = Request(REQUIREMENT, trust_remote_code=True)
    assert not loader().download(request).has_manifest
    with pytest.raises(DigestMissingError):
        loader('digest = "required"\n').download(request)
