"""Running a build's steps: several at once, no shell, a log for each, the compiler's own words when one fails.

Programs run in process groups of their own, so that an interrupt reaches this program first, which then ends theirs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO

from kernel_hub.build.command import Step
from kernel_hub.errors import CompileError, ToolchainError

_SHOWN_LINES = 12
# Compilers that are asked to end remove their temporary files; one that does not listen is not waited for.
_GRACE_S = 0.5
_LOOK_UP_S = 1.0
# "file:3:5: error: ...", "file(3): error ...", "ld: error ..." and "undefined reference to ..."
_FAULT = re.compile(r"(\bfatal )?\berror\b|undefined reference|cannot find ", re.IGNORECASE)


class Programs:
    """The programs that run now, and whether more may be started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def start(self, step: Step, environment: Mapping[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a step's program.

        Raises:
            CancelledError: If all was ended.
            OSError: If it can't be started.
        """
        with self._lock:
            if self._ended:
                raise CancelledError
            program = subprocess.Popen(
                step.command, cwd=step.folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, process_group=0,
            )  # fmt: skip
            self._running.add(program)
            return program

    def forget(self, program: subprocess.Popen[bytes]) -> None:
        """A program that has ended and was waited for."""
        with self._lock:
            self._running.discard(program)

    def end(self, how: signal.Signals) -> None:
        """Send a signal to all that run, with whatever they started themselves, and let nothing more be started."""
        with self._lock:
            self._ended = True
            for program in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, how)


def run_step(step: Step, environment: Mapping[str, str], log: Path, programs: Programs | None = None) -> None:
    """Run one step.

    Args:
        step: What to run.
        environment: The whole environment of the program.
        log: Where its command and its whole output are kept.
        programs: Whoever may end it from another thread.

    Raises:
        CompileError: If it fails; then its output file does not exist.
        ToolchainError: If the program can't be started.
    """
    programs = programs or Programs()
    log.parent.mkdir(parents=True, exist_ok=True)
    step.output.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        file.write(f"$ {shlex.join(step.command)}\n".encode("utf-8", "surrogateescape"))
        file.flush()
        start = file.tell()
        try:
            program = programs.start(step, environment, file)
        except OSError as error:
            raise ToolchainError(f"{step.command[0]} cannot be started: {error}") from error
        status = _wait(step, program, programs)
    if status == 0:
        return
    step.output.unlink(missing_ok=True)
    said = log.read_bytes()[start:].decode("utf-8", "replace")
    words = _words(said) or f"the program ended with status {status} and said nothing"
    raise CompileError(
        f"{step.name} failed:\n{words}", command=step.argv, log_path=log, hint=f"the whole output is in {log}"
    )


def _wait(step: Step, program: subprocess.Popen[bytes], programs: Programs) -> int:
    """How a program ended; if waiting is interrupted, the program is ended and its output removed."""
    try:
        return program.wait()
    except BaseException:
        programs.end(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(_GRACE_S)
        programs.end(signal.SIGKILL)
        program.wait()
        step.output.unlink(missing_ok=True)
        raise
    finally:
        programs.forget(program)


def run_steps(
    steps: Sequence[Step],
    environment: Mapping[str, str],
    logs: Path,
    *,
    parallel: int,
    on_done: Callable[[Step], None] | None = None,
) -> None:
    """Run steps that do not need each other, several at once.

    The first failure ends it: what runs is waited for, what has not begun is not begun. An interrupt ends what runs too.

    Args:
        steps: What to run.
        environment: The whole environment of the programs.
        logs: The folder of their logs.
        parallel: How many run at once.
        on_done: Called after each step, from the thread that ran it.

    Raises:
        CompileError: The failure of the first step, in the order of `steps`, that failed.
    """

    programs = Programs()

    def run(index: int, step: Step) -> None:
        run_step(step, environment, logs / log_name(index, step), programs)
        if on_done is not None:
            on_done(step)

    with ThreadPoolExecutor(max_workers=max(1, parallel), thread_name_prefix="compile") as pool:
        futures: list[Future[None]] = []
        try:
            futures.extend(pool.submit(run, index, step) for index, step in enumerate(steps))
            _await(futures)
        except BaseException:
            programs.end(signal.SIGTERM)
            wait(futures, timeout=_GRACE_S)
            programs.end(signal.SIGKILL)
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    for future in futures:
        if not future.cancelled():
            future.result()


def _await(futures: Sequence[Future[None]]) -> None:
    """Wait until all are done or one has failed, and look up now and then.

    A signal that comes just before this thread falls asleep does not wake it; it is told of it when it wakes by itself.
    """
    pending: Iterable[Future[None]] = futures
    while pending and not any(future.done() and future.exception() for future in futures):
        pending = wait(futures, timeout=_LOOK_UP_S, return_when=FIRST_EXCEPTION).not_done


def log_name(index: int, step: Step) -> str:
    """The file name of a step's log."""
    return f"{index:03d}-{re.sub(r'[^A-Za-z0-9._-]+', '-', step.name)[-80:]}.log"


def _words(said: str) -> str:
    """What a compiler said of the fault: from its first error on, or the end of it all."""
    lines = said.splitlines()
    first = next((index for index, line in enumerate(lines) if _FAULT.search(line)), None)
    shown = lines[-_SHOWN_LINES:] if first is None else lines[first : first + _SHOWN_LINES]
    return "\n".join(f"  {line}" for line in shown)
