"""Several processes and one cache: racing, killed midway, with locks that lock nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_hub.cache import Cache
from kernel_hub.model.commit import StoredBlob
from kernel_hub.model.requirement import RepoId
from tests.support import faults as fault
from tests.support.child import PROJECT
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer
from tests.support.loading import finish_loading, load, start_loading

REPO = RepoId("acme", "axpy")
FILES = {f"part{number}.py": b"# %d\n" % number * 50 for number in range(12)} | {"weights.bin": os.urandom(3 << 20)}
BUILD = {"torch-cpu": fake_build("torch-cpu", files=FILES)}
KILLS = 50

# A fetch without the rest of the loader. One process imports everything and forks a child for every line it reads; a child
# dies by its own hand at the given event: a file opened for writing, a name made, changed or removed, a socket connected.
FETCH = """
import json, os, signal, sys
from pathlib import Path
from kernel_hub.cache import Cache
from kernel_hub.cache.worklock import WorkLock
from kernel_hub.fetch import fetch, read_metadata
from kernel_hub.index import Index
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.selection import Accepted
from kernel_hub.model.source import Pin
from kernel_hub.select import variants_of
from kernel_hub.sources.hub import HubSource
from kernel_hub.sources.hub_http import transport
from kernel_hub.sources.wrappers import CachedSource
import concurrent.futures.thread

url = sys.argv[1]
REPO = RepoId("acme", "axpy")
NAMES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.utime", "socket.connect"}
transport()


class Unlocked(Cache):
    def lock(self, repo, name, work):
        # As on a file system where everybody gets every lock: each process has one of its own.
        return WorkLock(self.root / ".locks" / str(os.getpid()), work)


def work(home, locks, dies_at):
    seen = 0

    def count(event, arguments):
        nonlocal seen
        if event in NAMES or (event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)):
            seen += 1
            if seen == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    cache = (Cache if locks else Unlocked)(home / "hub")
    source = CachedSource(HubSource(url), cache, Index(home / "index"), key="hub", name=url)
    commit = source.refs(REPO).branches["v1"]
    (variant,) = variants_of(source.files(REPO, commit, "build"))
    pin = Pin(REPO, commit, ref="v1")
    read_metadata(source, cache, pin, [variant.name])
    artifact = fetch(source, cache, pin, Accepted(variant, ()))
    for entry in variant.files:
        inside = entry.path.removeprefix(f"build/{variant.name}/")
        assert (artifact.root / inside).stat().st_size == entry.size_bytes, entry
    return seen


for line in sys.stdin:
    order = json.loads(line)
    answers = []
    for dies_at in order["children"]:
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.write(writes, str(work(Path(order["home"]), order["locks"], dies_at)).encode())
                code = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writes)
        answers.append((child, reads))
    results = []
    for child, reads in answers:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        results.append([status, int(os.read(reads, 20) or 0)])
        os.close(reads)
    print(json.dumps(results), flush=True)
"""


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def hub(start_hub: Callable[..., HubServer], faults: Faults) -> HubServer:
    server = start_hub(wrap=faults)
    publish_fake_kernel(server.registry, builds=BUILD)
    server.registry.set_publisher("acme", True)
    return server


class Nursery:
    """A process that runs fetches in children of its own."""

    def __init__(self, hub: HubServer, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", FETCH, hub.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=hub.child_environment(folder, PYTHONPATH=str(PROJECT)),
        )

    def run(self, home: Path, *dies_at: int, locks: bool = True) -> list[tuple[int, int]]:
        """Run a child for each of `dies_at`, all at once; exit status and number of events of each. 0 never dies."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"home": str(home), "locks": locks, "children": dies_at}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self._process.communicate()[1]
        return [(status, events) for status, events in json.loads(line)]

    def stop(self) -> str:
        """End it; what its children complained about."""
        return self._process.communicate()[1]


@pytest.fixture
def nursery(hub: HubServer, tmp_path: Path) -> Iterator[Nursery]:
    nursery = Nursery(hub, tmp_path / "nursery")
    yield nursery
    assert nursery.stop() == ""


def check(home: Path, hub: HubServer) -> None:
    """The cache holds the whole build, every byte right, and nothing half-done under a blob's name."""
    cache = Cache(home / "hub")
    commit = hub.registry.refs(REPO).branches["v1"]
    for path, content in BUILD["torch-cpu"].items():
        assert cache.path(REPO, commit, f"build/torch-cpu/{path}").read_bytes() == content, path
    whole = {entry.blob.id: entry for entry in hub.registry.files(REPO, commit)}
    for blob in cache.blobs(REPO).iterdir():
        if not blob.name.endswith(".incomplete"):
            assert blob.stat().st_size == whole[blob.name].size_bytes


def test_six_processes_on_a_cold_cache_fetch_every_file_once(
    hub: HubServer, nursery: Nursery, faults: Faults, tmp_path: Path
) -> None:
    assert {status for status, _ in nursery.run(tmp_path / "home", *[0] * 6)} == {0}
    check(tmp_path / "home", hub)
    files = faults.paths("/resolve/")
    assert len(files) == len(set(files)) == len(BUILD["torch-cpu"])
    assert len(faults.paths("/refs")) == 1
    assert len(faults.paths("/tree/")) == 1


def test_six_processes_whose_locks_lock_nothing_all_end_with_the_right_bytes(
    hub: HubServer, nursery: Nursery, tmp_path: Path
) -> None:
    assert {status for status, _ in nursery.run(tmp_path / "home", *[0] * 6, locks=False)} == {0}
    check(tmp_path / "home", hub)


def test_five_of_six_processes_die_midway_and_the_sixth_ends_with_the_right_bytes(
    hub: HubServer, nursery: Nursery, tmp_path: Path
) -> None:
    results = nursery.run(tmp_path / "home", 3, 9, 17, 29, 41, 0)
    assert results[-1][0] == 0
    assert -signal.SIGKILL in {status for status, _ in results}
    check(tmp_path / "home", hub)


def test_six_processes_load_the_kernel(hub: HubServer, tmp_path: Path) -> None:
    environ = hub.child_environment(tmp_path / "home")
    children = [start_loading(environ, [{"version": 1}]) for _ in range(6)]
    assert [finish_loading(child).values for child in children] == [[[3]]] * 6


def test_a_lock_left_by_a_dead_process_does_not_hold_anybody_up(hub: HubServer, tmp_path: Path) -> None:
    environ = hub.child_environment(tmp_path / "home")
    commit = hub.registry.refs(REPO).branches["v1"]
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    lock = tmp_path / "home" / "hf" / "hub" / ".locks" / "kernels--acme--axpy" / f"{commit}.torch-cpu.kernel_hub.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"host": socket.gethostname(), "pid": int(dead.stdout), "key": "k", "work": "w"}))
    told = load(environ)
    assert told.values == [[3]]
    assert not [warning for warning in told.warnings if "waiting" in warning]
    assert not lock.exists()


@pytest.mark.parametrize("locks", [True, False])
def test_killed_at_any_point_the_next_process_ends_with_the_right_bytes(
    hub: HubServer, nursery: Nursery, tmp_path: Path, locks: bool
) -> None:
    ((status, events),) = nursery.run(tmp_path / "whole", 0)
    assert status == 0
    chance = random.Random(20261202)
    points = chance.sample(range(1, events), min(KILLS // 2, events - 1))
    killed = 0
    for number, point in enumerate(points):
        home = tmp_path / f"home{number}"
        # What the first leaves is what the second finds, and may leave half-changed in turn.
        for dies_at in (point, chance.randrange(1, 12)):
            ((status, _),) = nursery.run(home, dies_at, locks=locks)
            assert status in (0, -signal.SIGKILL)
            killed += status == -signal.SIGKILL
        ((status, _),) = nursery.run(home, 0, locks=locks)
        assert status == 0
        check(home, hub)
    assert killed >= len(points)


def test_a_half_fetched_build_offline_is_incomplete_and_online_is_repaired(hub: HubServer, tmp_path: Path) -> None:
    environ = hub.child_environment(tmp_path / "home")
    assert load(environ).values == [[3]]
    cache = Cache(tmp_path / "home" / "hf" / "hub")
    commit = hub.registry.refs(REPO).branches["v1"]
    for path, damage in (
        ("weights.bin", lambda place: place.write_bytes(place.read_bytes()[:100])),
        ("_math.py", lambda place: place.unlink()),
        ("metadata.json", lambda place: place.write_bytes(place.read_bytes()[:20])),
    ):
        place = cache.path(REPO, commit, f"build/torch-cpu/{path}")
        damage(place.resolve())
        (result,) = load(environ | {"HF_HUB_OFFLINE": "1"}, no_sockets=True).results
        assert result["error"] == "IncompleteArtifactError"
        assert path in result["text"]
        assert "torch-cpu" in result["text"]
        assert "kernel-hub download" in result["text"]
        assert load(environ).values == [[3]]
    check_refs = cache.repo_folder(REPO) / "refs" / "v1"
    check_refs.write_text("")
    assert load(environ).values == [[3]]
    assert load(environ | {"HF_HUB_OFFLINE": "1"}, no_sockets=True).values == [[3]]


def test_a_changed_byte_is_repaired_online_once_and_refused_offline(
    hub: HubServer, faults: Faults, tmp_path: Path
) -> None:
    environ = hub.child_environment(tmp_path / "home")
    assert load(environ).values == [[3]]
    cache = Cache(tmp_path / "home" / "hf" / "hub")
    commit = hub.registry.refs(REPO).branches["v1"]
    place = cache.path(REPO, commit, "build/torch-cpu/_math.py").resolve()
    right = place.read_bytes()
    place.write_bytes(right.replace(b"a * left + right", b"a * left - right"))
    (result,) = load(environ | {"HF_HUB_OFFLINE": "1"}, no_sockets=True).results
    assert result["error"] == "DigestMismatchError"
    faults.asked.clear()
    assert load(environ).values == [[3]]
    assert len(faults.paths("/resolve/")) == 1
    assert place.read_bytes() == right


def test_a_large_file_is_taken_up_where_a_killed_process_left_it(
    hub: HubServer, faults: Faults, tmp_path: Path
) -> None:
    environ = hub.child_environment(tmp_path / "home")
    faults.add(fault.stall(2 << 20), "weights.bin", times=1)
    child = start_loading(environ, [{"version": 1}])
    blobs = Cache(tmp_path / "home" / "hf" / "hub").blobs(REPO)
    growing = f"{StoredBlob.of(FILES['weights.bin']).digest}.*.incomplete"
    # The server holds the rest back for ever, so the file stands still once it has come so far.
    while not [path for path in blobs.glob(growing) if path.stat().st_size >= 1 << 20]:
        assert child.poll() is None
    child.kill()
    child.communicate()
    assert load(environ).values == [[3]]
    *_, (_, _, headers) = [asked for asked in faults.asked if "weights.bin" in asked[1]]
    assert int(headers["range"].removeprefix("bytes=").removesuffix("-")) >= 1 << 20
    check(tmp_path / "home" / "hf", hub)
    assert not list(blobs.glob("*.incomplete"))
