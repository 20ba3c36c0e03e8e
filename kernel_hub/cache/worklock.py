"""Locks that save work and that nothing else depends on.

A lock is a file that only one process can create; it says who made it, and its owner touches it while the work goes on. A
waiter takes it over when the owner is dead, or when the file has not changed for a while; where every creation succeeds
(some network file systems), or none does (a read-only folder), everybody works, and the result is the same.

Leaves out mutual exclusion: what is done under such a lock must be safe without it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kernel_hub.model.value import dataclass
from kernel_hub.writable import is_writable

_LOG = logging.getLogger("kernel_hub")
_STALE_S = 30.0
_BEAT_S = 2.0
_TOLD_S = 2.0
_GIVE_UP_S = 1800.0
_FIRST_WAIT_S = 0.01
_LONGEST_WAIT_S = 0.25
# Who waited long may wait a little longer, and a short work is noticed soon.
_SHARE_OF_WAIT = 1 / 16
_MAX_NOTE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Patience:
    """When a waiter stops waiting.

    Attributes:
        stale_s: After so long without a sign of life, the lock is taken over.
        give_up_s: After so long the work is done without the lock, whoever holds it.
    """

    stale_s: float = _STALE_S
    give_up_s: float = _GIVE_UP_S


_PATIENCE = Patience()


class WorkLock:
    """A lock file.

    Args:
        path: The file; its folder is made if need be.
        work: What is done under it, for those who wait.
        patience: See `Patience`.
    """

    def __init__(self, path: Path, work: str, *, patience: Patience = _PATIENCE) -> None:
        self._path = path
        self._work = work
        self._patience = patience
        self._note = json.dumps(
            {"host": platform.node(), "pid": os.getpid(), "key": secrets.token_hex(8), "work": work}
        ).encode()
        self._beaten_s = 0.0

    @contextlib.contextmanager
    def held(self, is_done: Callable[[], bool]) -> Iterator[None]:
        """Hold the lock, or find that there is nothing left to do, or that there is no way to lock.

        Args:
            is_done: Whether somebody else has done the work; asked while waiting.
        """
        mine = self._acquire(is_done)
        try:
            yield
        finally:
            if mine:
                self._release()

    def beat(self) -> None:
        """Show that the work goes on; cheap enough to be called for every piece of it."""
        now_s = time.monotonic()
        if now_s - self._beaten_s >= _BEAT_S:
            self._beaten_s = now_s
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def _acquire(self, is_done: Callable[[], bool]) -> bool:
        started_s = seen_s = time.monotonic()
        seen, told = None, False
        while True:
            created = self._create()
            if created is not None:
                return created
            now_s = time.monotonic()
            now = self._look()
            if now != seen:
                seen, seen_s = now, now_s
            if is_done() or now_s - started_s > self._patience.give_up_s:
                return False
            is_stale = now_s - seen_s > self._patience.stale_s
            if now is None and is_stale:
                return False
            if now is not None and (is_stale or owner_is_dead(now[0])):
                self._take_over(now)
                continue
            if not told and now is not None and now_s - started_s > _TOLD_S:
                told = True
                _LOG.warning("waiting for %s (lock %s)", _owner(now[0]), self._path)
            time.sleep(min(max(_FIRST_WAIT_S, _SHARE_OF_WAIT * (now_s - started_s)), _LONGEST_WAIT_S))

    def _create(self) -> bool | None:
        """True if the lock is ours, False if there can be none here, None if another has it."""
        if not is_writable(self._path.parent):
            return False
        # The note is written first and then given the lock's name, so that no lock is ever without its owner's name.
        growing = self._path.with_name(f"{self._path.name}.{secrets.token_hex(4)}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            growing.write_bytes(self._note)
        except OSError as error:
            _LOG.debug("no lock at %s: %s", self._path, error)
            return False
        try:
            self._path.hardlink_to(growing)
        except FileExistsError:
            return None
        except OSError:
            return self._create_without_links()
        finally:
            with contextlib.suppress(OSError):
                growing.unlink()
        return True

    def _create_without_links(self) -> bool | None:
        try:
            with self._path.open("xb") as file:
                file.write(self._note)
        except FileExistsError:
            return None
        except OSError as error:
            _LOG.debug("no lock at %s: %s", self._path, error)
            return False
        return True

    def _look(self) -> tuple[bytes, int] | None:
        try:
            with self._path.open("rb") as file:
                return file.read(_MAX_NOTE_BYTES), os.fstat(file.fileno()).st_mtime_ns
        except OSError:
            return None

    def _take_over(self, seen: tuple[bytes, int]) -> None:
        if self._look() == seen:
            _LOG.debug("taking over the lock %s of %s", self._path, _owner(seen[0]))
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _release(self) -> None:
        now = self._look()
        # A lock that was taken over meanwhile belongs to somebody else.
        if now is not None and now[0] == self._note:
            with contextlib.suppress(OSError):
                self._path.unlink()


def owner_is_dead(note: bytes) -> bool:
    """Whether a lock's note names a process of this machine that is no more."""
    try:
        owner = json.loads(note)
        host, pid = owner["host"], owner["pid"]
    except (ValueError, KeyError, TypeError):
        return False
    return host == platform.node() and isinstance(pid, int) and is_dead(pid)


def is_dead(pid: int) -> bool:
    """Whether no process of this machine has that id; False where it cannot be told."""
    if sys.platform == "win32" or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        # Linux keeps the number of a dead process until its parent takes notice; its state then is Z.
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:1]
    except OSError:
        return False
    return state == ["Z"]


def _owner(note: bytes) -> str:
    try:
        owner = json.loads(note)
        return f"process {owner['pid']} on {owner['host']}, which is at {owner['work']}"
    except (ValueError, KeyError, TypeError):
        return "an unknown process"
