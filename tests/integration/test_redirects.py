"""Kernels that moved: where they are found, what is asked of trust on the way, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError, RedirectError, TrustUnknownError, UntrustedPublisherError
from kernel_hub.loader import Loader
from kernel_hub.model.host import Host
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.model.status import FILE_NAME, Redirect, UnknownStatus, parse_status
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support import faults as fault
from tests.support.fake_kernels import publish_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer

CPU = Host.from_json({"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "backend": "cpu", "devices": []})
VECTOR = Path(__file__).parents[1] / "vectors" / "repo-format" / FILE_NAME


def moved(destination: str, revision: str | None = None) -> dict[str, bytes]:
    lines = ['kind = "redirect"', f"destination = {json.dumps(destination)}"]
    if revision is not None:
        lines.append(f"revision = {json.dumps(revision)}")
    return {FILE_NAME: "\n".join(lines).encode()}


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    return DirectoryRegistry.create(tmp_path / "registry")


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    folder = (tmp_path / "registry").as_uri()
    environ = {"HF_HOME": str(tmp_path / "hf"), "KERNEL_HUB_REGISTRIES": f"acme={folder} other={folder}"}
    return Loader(load_settings(environ, tmp_path), CPU)


@pytest.fixture
def on_hub(hub_server: HubServer, tmp_path: Path) -> Callable[..., Loader]:
    def on_hub(**environ: str) -> Loader:
        settings = {"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub_server.url, "XDG_CONFIG_HOME": str(tmp_path)}
        return Loader(load_settings(settings | environ, tmp_path), CPU)

    return on_hub


def ask(text: str = "acme/axpy@v1", **options: object) -> Request:
    return Request(Requirement.parse(text), **options)  # type: ignore[arg-type]


def test_the_ecosystems_file_is_read() -> None:
    assert parse_status(VECTOR.read_bytes()) == Redirect(RepoId("acme", "axpy-ng"), "v2")


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("kind = 1", "kind"),
        ('destination = "a/b"', "kind"),
        ('kind = "redirect"', "destination"),
        ('kind = "redirect"\ndestination = "axpy"', "axpy"),
        ('kind = "redirect"\ndestination = "a/b"\nrevision = 2', "revision"),
        ('kind = "redirect"\ndestination = "a/b"\nrevision = "../x"', "revision"),
        ("kind = ", "TOML"),
        ("#" * (1 << 17), "longer"),
    ],
)
def test_a_malformed_status_names_what_is_wrong(text: str, location: str) -> None:
    with pytest.raises(InvalidDocumentError, match=location):
        parse_status(text.encode())


def test_a_moved_kernel_is_found_where_it_went_and_says_so(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, "acme/axpy", extra_files=moved("other/axpy-ng", "v2"))
    publish_fake_kernel(registry, "other/axpy-ng", version=2)
    kernel = loader.load(ask())
    assert kernel.module.origin() == "axpy-ng v2 torch-cpu"
    assert any("acme/axpy@v1" in note and "moved to other/axpy-ng@v2" in note for note in kernel.notes)
    assert "moved to" in str(loader.plan(ask()))


def test_without_a_revision_the_version_that_was_asked_for_is_kept(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, "acme/axpy", builds={}, extra_files=moved("other/axpy"))
    for version in (1, 2):
        publish_fake_kernel(registry, "other/axpy", version=version)
    assert loader.load(ask()).version == 1


def test_a_commit_is_exact_and_not_followed(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    commit = publish_fake_kernel(registry, "acme/axpy", extra_files=moved("other/axpy"))
    assert loader.load(ask(f"acme/axpy@{commit}")).module.origin() == "axpy v1 torch-cpu"


def test_three_moves_are_followed_and_a_fourth_is_not(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    for number in range(4):
        publish_fake_kernel(registry, f"acme/k{number}", extra_files=moved(f"acme/k{number + 1}"))
    publish_fake_kernel(registry, "acme/k4")
    assert loader.load(ask("acme/k1@v1")).module.origin() == "k4 v1 torch-cpu"
    with pytest.raises(RedirectError, match=r"more than 3 times: acme/k0@v1 -> .* -> acme/k4@v1"):
        loader.load(ask("acme/k0@v1"))


def test_a_circle_is_named(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, "acme/axpy", extra_files=moved("other/axpy"))
    publish_fake_kernel(registry, "other/axpy", extra_files=moved("acme/axpy"))
    with pytest.raises(RedirectError, match="in a circle: acme/axpy@v1 -> other/axpy@v1 -> acme/axpy@v1"):
        loader.load(ask())
    assert "circle" in loader.availability(ask()).reason


def test_an_unknown_status_is_a_note_and_not_an_end(registry, loader: Loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, extra_files={FILE_NAME: b'kind = "retired"\n'})
    assert parse_status(b'kind = "retired"') == UnknownStatus("retired")
    assert any("retired" in note for note in loader.load(ask()).notes)


def test_a_destination_that_is_not_trusted_is_refused_before_a_byte_of_it_is_read(
    hub_server: HubServer, on_hub
) -> None:  # type: ignore[no-untyped-def]
    hub_server.registry.set_publisher("acme", trusted=True)
    publish_fake_kernel(hub_server.registry, "acme/axpy", extra_files=moved("mallory/axpy"))
    publish_fake_kernel(hub_server.registry, "mallory/axpy")
    with pytest.raises(UntrustedPublisherError, match="mallory") as caught:
        on_hub().load(ask())
    assert "mallory/axpy" in caught.value.hint()
    assert [line for line in hub_server.log.lines if "mallory/axpy" in line] == []


def test_trust_in_the_old_name_is_no_trust_in_the_new_one(hub_server: HubServer, on_hub) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(hub_server.registry, "acme/axpy", extra_files=moved("mallory/axpy"))
    publish_fake_kernel(hub_server.registry, "mallory/axpy")
    with pytest.raises(UntrustedPublisherError, match="mallory"):
        on_hub().load(ask(trust_remote_code=["acme/axpy"]))
    assert on_hub().load(ask(trust_remote_code=["acme/axpy", "mallory/axpy"])).version == 1


def test_a_destination_that_is_allowed_at_its_commit_loads(hub_server: HubServer, on_hub, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(hub_server.registry, "acme/axpy", extra_files=moved("mallory/axpy"))
    commit = publish_fake_kernel(hub_server.registry, "mallory/axpy")
    rules = tmp_path / "kernel_hub" / "trust.toml"
    rules.parent.mkdir()
    allowed = {"repository": "mallory/axpy", "commit": commit, "reason": "read it"}
    rules.write_text("[[allow]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in allowed.items()))
    assert on_hub().load(ask(trust_remote_code=["acme/axpy"])).version == 1


def test_a_publisher_that_cannot_be_looked_up_is_not_called_untrusted(start_hub, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    faults = Faults()
    faults.add(fault.status(503), "organizations/mallory")
    hub = start_hub(wrap=faults)
    publish_fake_kernel(hub.registry, "acme/axpy", extra_files=moved("mallory/axpy"))
    loader = Loader(load_settings({"HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.url}, tmp_path), CPU)
    with pytest.raises(TrustUnknownError, match="could not check"):
        loader.plan(ask(trust_remote_code=["acme/axpy"]))


def test_a_move_is_remembered_for_offline_use(hub_server: HubServer, on_hub) -> None:  # type: ignore[no-untyped-def]
    for publisher in ("acme", "other"):
        hub_server.registry.set_publisher(publisher, trusted=True)
    publish_fake_kernel(hub_server.registry, "acme/axpy", extra_files=moved("other/axpy"))
    publish_fake_kernel(hub_server.registry, "other/axpy")
    assert on_hub().load(ask()).version == 1
    hub_server.log.clear()
    assert on_hub(HF_HUB_OFFLINE="1").load(ask()).version == 1
    assert hub_server.log.lines == []
