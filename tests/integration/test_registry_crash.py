"""A registry folder and its writers in several processes: killed at any point, racing, sweeping; and readers that only read."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kernel_hub.errors import BlobMismatchError, SourceUnavailableError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.child import PROJECT, run_python

REPO = RepoId("acme", "axpy")
# Each commit replaces one file and adds one, and is reported once it is made.
WRITER = """
import sys
from kernel_hub.errors import ConflictError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition
from kernel_hub.sources.directory import DirectoryRegistry

folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
registry, repo = DirectoryRegistry.open(folder), RepoId("acme", "axpy")
made = conflicts = 0
while made < count:
    additions = [
        Addition("last", f"{name} {made}".encode() * 500),
        Addition(f"{name}/{made}", f"{name} {made}".encode()),
    ]
    parent = registry.commit_of(repo, "main")
    try:
        commit = registry.commit(repo, "main", parent=parent, additions=additions, deletions=(), message="write")
    except ConflictError:
        conflicts += 1
        continue
    made += 1
    print(commit, flush=True)
print(f"conflicts {conflicts}", flush=True)
"""


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    made = DirectoryRegistry.create(tmp_path / "registry")
    made.create_repo(REPO)
    return made


def check_whole(registry: DirectoryRegistry) -> int:
    """Read every byte of every commit that `main` leads to; how many commits."""
    commits = 0
    for commit in registry.history(REPO, registry.commit_of(REPO, "main")):
        commits += 1
        for file in commit.files:
            content = b"".join(registry.stored_chunks(file.blob))
            assert hashlib.sha256(content).hexdigest() == file.blob.digest
    return commits


def start_writer(registry: DirectoryRegistry, name: str, count: int) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, registry.name, name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends a process in another way")
@pytest.mark.parametrize("after_commits", [1, 2, 5, 9])
def test_killed_writer_leaves_a_whole_registry(registry: DirectoryRegistry, after_commits: int) -> None:
    with start_writer(registry, "killed", 10_000) as writer:
        assert writer.stdout is not None
        reported = [writer.stdout.readline().strip() for _ in range(after_commits)]
        writer.send_signal(signal.SIGKILL)
        reported += [line.strip() for line in writer.stdout]
    again = DirectoryRegistry.open(registry.name)
    history = [commit.id for commit in again.history(REPO, again.commit_of(REPO, "main"))]
    assert set(reported) <= set(history), "a commit that was reported is lost"
    assert len(history) - 1 - len(reported) <= 1
    check_whole(again)
    again.gc(grace_s=0)
    assert list(again.scratch.iterdir()) == []
    assert check_whole(again) == len(history)
    again.commit(
        REPO,
        "main",
        parent=history[0],
        additions=[Addition("after", b"the lock is free")],
        deletions=(),
        message="after",
    )


def test_racing_processes_lose_no_commit(registry: DirectoryRegistry) -> None:
    writers = [start_writer(registry, f"writer{number}", 8) for number in range(3)]
    for writer in writers:
        output, _ = writer.communicate(timeout=120)
        assert writer.returncode == 0, output
    assert check_whole(registry) == 1 + 3 * 8
    head = registry.commit_of(REPO, "main")
    names = [entry.path for entry in registry.files(REPO, head)]
    assert names == sorted(["last", *(f"writer{writer}/{n}" for writer in range(3) for n in range(8))])


def test_sweeping_takes_nothing_from_a_commit_that_was_made(registry: DirectoryRegistry) -> None:
    """Without any grace the sweeper removes blobs between their upload and their commit: then no commit is made."""
    done = threading.Event()

    def sweep() -> None:
        own = DirectoryRegistry.open(registry.name)
        # The pause lets the writer have the lock now and then.
        while not done.wait(0.005):
            own.gc(grace_s=0)

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    made = 0
    try:
        for number in range(25):
            parent = registry.commit_of(REPO, "main")
            additions = [Addition(f"f{n}", f"{number} {n}".encode()) for n in range(3)]
            try:
                registry.commit(REPO, "main", parent=parent, additions=additions, deletions=(), message="write")
                made += 1
            except (BlobMismatchError, SourceUnavailableError):
                pass
    finally:
        done.set()
        sweeper.join()
    assert check_whole(registry) == made + 1


def test_reading_writes_nothing(registry: DirectoryRegistry) -> None:
    parent = registry.commit_of(REPO, "main")
    registry.commit(REPO, "main", parent=parent, additions=[Addition("a", b"1" * 5000)], deletions=(), message="write")

    def state() -> dict[str, tuple[int, int, int]]:
        root = Path(registry.name)
        found = {path: path.stat() for path in (root, *root.rglob("*"))}
        return {str(path): (at.st_mtime_ns, at.st_ctime_ns, at.st_size) for path, at in found.items()}

    before = state()
    code = (
        "import sys; from kernel_hub.sources.directory import DirectoryRegistry\n"
        "registry = DirectoryRegistry.open(sys.argv[1])\n"
        "for repo in registry.repos():\n"
        "    for commit in registry.history(repo, registry.commit_of(repo, 'main')):\n"
        "        for entry in registry.files(repo, commit.id):\n"
        "            registry.read(repo, commit.id, entry.path, limit_bytes=1 << 20)\n"
        "            list(registry.chunks(repo, commit.id, entry))\n"
        "    registry.refs(repo), registry.publisher(repo.namespace), registry.pulls(repo)\n"
        "print('read')\n"
    )
    assert run_python(code, registry.name) == "read\n"
    assert state() == before


def test_reader_sees_old_or_new_and_nothing_between(registry: DirectoryRegistry) -> None:
    """Two files always change together; a reader that resolves once never sees one without the other."""
    stop = threading.Event()
    torn: list[str] = []

    def read() -> None:
        own = DirectoryRegistry.open(registry.name)
        while not stop.is_set():
            commit = own.commit_of(REPO, "main")
            contents = {own.read(REPO, commit, entry.path, limit_bytes=99) for entry in own.files(REPO, commit)}
            if len(contents) > 1:
                torn.append(commit)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(40):
            parent = registry.commit_of(REPO, "main")
            additions = [Addition(name, b"%d" % number) for name in ("a", "b")]
            registry.commit(REPO, "main", parent=parent, additions=additions, deletions=(), message="both")
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert torn == []
