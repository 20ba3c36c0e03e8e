from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kernel_hub.cache.worklock import Patience, WorkLock, is_dead

HURRIED = Patience(stale_s=0.05, give_up_s=0.05)


def never() -> bool:
    return False


def note(**changes: object) -> str:
    return json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "key": "k", "work": "w"} | changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "a.lock"


def test_the_lock_is_there_while_it_is_held_and_gone_after(path: Path) -> None:
    with WorkLock(path, "fetching").held(never):
        assert json.loads(path.read_bytes())["work"] == "fetching"
    assert not path.exists()


def test_the_lock_is_gone_after_a_failure(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), WorkLock(path, "fetching").held(never):
        raise ZeroDivisionError
    assert not path.exists()


def test_only_one_of_many_threads_works_at_a_time(path: Path) -> None:
    inside, most, guard = 0, 0, threading.Lock()
    meeting = threading.Barrier(6)

    def work() -> None:
        nonlocal inside, most
        meeting.wait()
        with WorkLock(path, "fetching").held(never):
            with guard:
                inside += 1
                most = max(most, inside)
            with guard:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_waiter_goes_on_when_the_work_is_done(path: Path) -> None:
    answers = iter([False, False, True])
    path.parent.mkdir()
    path.write_text(note())
    with WorkLock(path, "fetching").held(lambda: next(answers)):
        assert path.read_text() == note()
    assert path.read_text() == note()


def test_a_dead_owners_lock_is_taken_over_at_once(path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    path.parent.mkdir()
    path.write_text(note(pid=int(child.stdout)))
    with WorkLock(path, "fetching", patience=Patience(stale_s=1e9, give_up_s=1e9)).held(never):
        assert json.loads(path.read_bytes())["pid"] == os.getpid()
    assert not path.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_a_dead_owner_whom_its_parent_forgot_is_dead(path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(child.pid)
    assert not is_dead(os.getpid())
    child.communicate()


def test_where_files_cannot_have_two_names_the_lock_is_made_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*names: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no hard links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with WorkLock(path, "fetching").held(never):
        assert json.loads(path.read_bytes())["work"] == "fetching"
        with WorkLock(path, "fetching", patience=HURRIED).held(never):
            pass
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("text", ["", "not json", "[]", note(host="elsewhere")])
def test_a_lock_without_a_sign_of_life_is_taken_over(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with WorkLock(path, "fetching", patience=Patience(stale_s=0.02, give_up_s=1e9)).held(never):
        assert json.loads(path.read_bytes())["work"] == "fetching"


def test_a_lock_that_shows_life_is_not_taken_over_but_does_not_hang_either(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(note())
    seen = 0

    def live_on() -> bool:
        nonlocal seen
        seen += 1
        os.utime(path, ns=(seen, seen))
        return False

    with WorkLock(path, "fetching", patience=Patience(stale_s=1e9, give_up_s=0.05)).held(live_on):
        assert path.read_text() == note()
    assert path.read_text() == note()


def test_a_waiter_says_once_whom_and_what_it_waits_for(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_text(note(pid=os.getpid()))
    rounds = 0

    def told() -> bool:
        nonlocal rounds
        rounds += bool(caplog.records)
        return rounds > 2

    with WorkLock(path, "fetching", patience=Patience(stale_s=1e9, give_up_s=1e9)).held(told):
        (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"process {os.getpid()} on" in record.message
    assert str(path) in record.message


def test_an_owner_whose_lock_was_taken_over_leaves_the_new_one(path: Path) -> None:
    with WorkLock(path, "fetching").held(never):
        path.write_text(note(pid=1))
    assert path.read_text() == note(pid=1)


def test_where_no_lock_can_be_made_the_work_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with WorkLock(tmp_path / "file" / "a.lock", "fetching").held(never) as lock:
        assert lock is None


def test_a_beat_is_seen_by_those_who_wait(path: Path) -> None:
    lock = WorkLock(path, "fetching")
    with lock.held(never):
        os.utime(path, ns=(0, 0))
        lock.beat()
        assert path.stat().st_mtime_ns > 0
