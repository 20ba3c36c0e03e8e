"""Large files by Xet: the Hub offers them, the real `hf_xet` brings them, and everything that fails ends in plain HTTP."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_hub.cache import Cache
from kernel_hub.cache.download import store_all
from kernel_hub.model.source import FileEntry, Pin
from kernel_hub.sources.hub import HubSource, Limits
from kernel_hub.sources.hub_xet import XET_FROM_BYTES, get_from_store
from tests.support import faults as fault
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer
from tests.support.loading import load
from tests.support.scripted import REPO
from tests.support.xet_store import STORE_TOKEN, XetStore, running_store

LARGE = b"large" * (XET_FROM_BYTES // 5 + 1)
SMALL = bytes(2 << 20)
BUILD = fake_build("torch-cpu", files={"large.bin": LARGE, "small.bin": SMALL})
TOKEN = "hf_secret0123456789"


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def store() -> Iterator[XetStore]:
    with running_store() as running:
        yield running


@pytest.fixture
def hub(start_hub: Callable[..., HubServer], faults: Faults) -> HubServer:
    server = start_hub(wrap=faults)
    publish_fake_kernel(server.registry, builds={"torch-cpu": BUILD})
    server.registry.set_publisher("acme", True)
    return server


class Fetched:
    """The build's files after one fetch, and what was told on the way."""

    def __init__(self, hub: HubServer, root: Path, *, stall_s: float = 10.0) -> None:
        source = HubSource(hub.url, token=TOKEN, limits=Limits(stall_s=stall_s), xet=get_from_store)
        self.pin = Pin(REPO, source.refs(REPO).branches["v1"])
        self.entries = source.files(REPO, self.pin.commit, "build")
        self.told: list[tuple[int, int]] = []
        self._cache = Cache(root)
        store_all(source, self._cache, self.pin, self.entries, progress=self._note)

    def _note(self, path: str, done_bytes: int, all_bytes: int) -> None:
        self.told.append((done_bytes, all_bytes))

    def content(self, name: str) -> bytes:
        (entry,) = [entry for entry in self.entries if entry.path.endswith(f"/{name}")]
        return (self._cache.blobs(REPO) / entry.blob.id).read_bytes()

    def leftovers(self) -> list[str]:
        blobs = {entry.blob.id for entry in self.entries}
        return [path.name for path in self._cache.blobs(REPO).iterdir() if path.name not in blobs]


def test_a_large_file_that_the_hub_offers_by_xet_comes_from_the_store(
    hub: HubServer, faults: Faults, store: XetStore, tmp_path: Path
) -> None:
    store.offer(faults, LARGE)
    fetched = Fetched(hub, tmp_path / "cache")
    assert fetched.content("large.bin") == LARGE
    assert [path for _, path, _ in store.asked if path.startswith("/xorbs/")]
    assert faults.paths("large.bin") == []
    assert fetched.leftovers() == []
    done_bytes, all_bytes = fetched.told[-1]
    assert done_bytes == all_bytes == sum(map(len, BUILD.values()))


def test_a_small_file_is_not_worth_it(hub: HubServer, faults: Faults, store: XetStore, tmp_path: Path) -> None:
    store.offer(faults, SMALL)
    assert Fetched(hub, tmp_path / "cache").content("small.bin") == SMALL
    assert store.asked == []
    assert faults.paths("/xet-read-token/") == []


def test_the_store_never_gets_the_token_of_the_hub(
    hub: HubServer, faults: Faults, store: XetStore, tmp_path: Path
) -> None:
    store.offer(faults, LARGE)
    Fetched(hub, tmp_path / "cache")
    assert TOKEN in str([headers for _, path, headers in faults.asked if "/xet-read-token/" in path])
    assert TOKEN not in str(store.asked)
    assert STORE_TOKEN in str(store.asked)


@pytest.mark.parametrize("status", [401, 404, 503])
def test_a_store_that_refuses_leaves_the_file_to_plain_http(
    hub: HubServer, faults: Faults, store: XetStore, tmp_path: Path, status: int
) -> None:
    store.offer(faults, LARGE)
    store.status = status
    fetched = Fetched(hub, tmp_path / "cache", stall_s=0.5)
    assert fetched.content("large.bin") == LARGE
    assert len(faults.paths("large.bin")) == 1
    assert fetched.told[-1] == (sum(map(len, BUILD.values())),) * 2


def test_a_store_that_says_nothing_leaves_the_file_to_plain_http(
    hub: HubServer, faults: Faults, store: XetStore, tmp_path: Path
) -> None:
    store.offer(faults, LARGE)
    store.silent.set()
    assert Fetched(hub, tmp_path / "cache", stall_s=0.3).content("large.bin") == LARGE
    assert len(faults.paths("large.bin")) == 1


def test_other_bytes_from_the_store_are_not_kept(
    hub: HubServer, faults: Faults, store: XetStore, tmp_path: Path
) -> None:
    store.offer(faults, LARGE)
    (id,) = store.files
    store.files[id] = LARGE[:-1] + b"?"
    fetched = Fetched(hub, tmp_path / "cache")
    assert fetched.content("large.bin") == LARGE
    assert len(faults.paths("large.bin")) == 1
    assert fetched.leftovers() == []
    assert fetched.told[-1] == (sum(map(len, BUILD.values())),) * 2


@pytest.mark.parametrize("answer", [fault.status(404), fault.status(401), fault.document({}), fault.web_page()])
def test_a_hub_without_a_token_for_the_store_leaves_the_file_to_plain_http(
    hub: HubServer, faults: Faults, store: XetStore, tmp_path: Path, answer: fault.Spoiler
) -> None:
    faults.add(answer, "/xet-read-token/")
    store.offer(faults, LARGE)
    assert Fetched(hub, tmp_path / "cache").content("large.bin") == LARGE
    assert store.asked == []
    assert len(faults.paths("/xet-read-token/")) == 1


def test_without_hf_xet_files_come_over_plain_http(
    hub: HubServer, faults: Faults, store: XetStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.offer(faults, LARGE)
    monkeypatch.setitem(sys.modules, "hf_xet", None)
    source = HubSource(hub.url)
    commit = source.refs(REPO).branches["v1"]
    (entry,) = [entry for entry in source.files(REPO, commit) if entry.path.endswith("large.bin")]
    assert not source.download(REPO, commit, entry, tmp_path / "place", lambda length_bytes: None)
    assert faults.paths("/xet-read-token/") == []


@pytest.mark.parametrize("id", ["../../../../etc/passwd", "0" * 63, "?" + "0" * 63, ""])
def test_what_is_no_id_of_the_store_is_never_asked_for(hub: HubServer, faults: Faults, tmp_path: Path, id: str) -> None:
    source = HubSource(hub.url, xet=get_from_store)
    commit = source.refs(REPO).branches["v1"]
    (entry,) = [entry for entry in source.files(REPO, commit) if entry.path.endswith("large.bin")]
    named = FileEntry(entry.path, entry.size_bytes, entry.blob, id)
    assert not source.download(REPO, commit, named, tmp_path / "place", lambda length_bytes: None)
    assert faults.paths("/xet-read-token/") == []


@pytest.mark.parametrize(("setting", "asks"), [({}, True), ({"HF_HUB_DISABLE_XET": "1"}, False)])
def test_a_process_loads_by_xet_unless_that_is_turned_off(
    hub: HubServer, faults: Faults, store: XetStore, tmp_path: Path, setting: dict[str, str], asks: bool
) -> None:
    store.offer(faults, LARGE)
    # Without telemetry the store is told nothing either.
    environ = hub.child_environment(tmp_path / "home", DO_NOT_TRACK="1")
    told = load(environ | setting)
    assert told.values == [[3]]
    assert told.warnings == []
    assert bool(store.asked) is asks
    assert bool(faults.paths("large.bin")) is not asks
    assert [method for method, _, _ in store.asked if method == "POST"] == []
