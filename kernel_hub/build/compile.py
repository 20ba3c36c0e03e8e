"""Running a build's steps: several at once, no shell, a log for each, the compiler's own words when one fails."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path

from kernel_hub.build.command import Step
from kernel_hub.errors import CompileError, ToolchainError

_SHOWN_LINES = 12
# "file:3:5: error: ...", "file(3): error ...", "ld: error ..." and "undefined reference to ..."
_FAULT = re.compile(r"(\bfatal )?\berror\b|undefined reference|cannot find ", re.IGNORECASE)


def run_step(step: Step, environment: Mapping[str, str], log: Path) -> None:
    """Run one step.

    Args:
        step: What to run.
        environment: The whole environment of the program.
        log: Where its command and its whole output are kept.

    Raises:
        CompileError: If it fails; then its output file does not exist.
        ToolchainError: If the program can't be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    step.output.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        file.write(f"$ {shlex.join(step.argv)}\n".encode("utf-8", "surrogateescape"))
        file.flush()
        start = file.tell()
        try:
            ended = subprocess.run(
                step.argv, cwd=step.folder, env=environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
        except OSError as error:
            raise ToolchainError(f"{step.argv[0]} cannot be started: {error}") from error
    if ended.returncode == 0:
        return
    step.output.unlink(missing_ok=True)
    said = log.read_bytes()[start:].decode("utf-8", "replace")
    words = _words(said) or f"the program ended with status {ended.returncode} and said nothing"
    raise CompileError(
        f"{step.name} failed:\n{words}", command=step.argv, log_path=log, hint=f"the whole output is in {log}"
    )


def run_steps(
    steps: Sequence[Step],
    environment: Mapping[str, str],
    logs: Path,
    *,
    parallel: int,
    on_done: Callable[[Step], None] | None = None,
) -> None:
    """Run steps that do not need each other, several at once.

    The first failure ends it: what runs is waited for, what has not begun is not begun.

    Args:
        steps: What to run.
        environment: The whole environment of the programs.
        logs: The folder of their logs.
        parallel: How many run at once.
        on_done: Called after each step, from the thread that ran it.

    Raises:
        CompileError: The failure of the first step, in the order of `steps`, that failed.
    """

    def run(index: int, step: Step) -> None:
        run_step(step, environment, logs / log_name(index, step))
        if on_done is not None:
            on_done(step)

    with ThreadPoolExecutor(max_workers=max(1, parallel), thread_name_prefix="compile") as pool:
        futures: list[Future[None]] = [pool.submit(run, index, step) for index, step in enumerate(steps)]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
    for future in futures:
        if not future.cancelled():
            future.result()


def log_name(index: int, step: Step) -> str:
    """The file name of a step's log."""
    return f"{index:03d}-{re.sub(r'[^A-Za-z0-9._-]+', '-', step.name)[-80:]}.log"


def _words(said: str) -> str:
    """What a compiler said of the fault: from its first error on, or the end of it all."""
    lines = said.splitlines()
    first = next((index for index, line in enumerate(lines) if _FAULT.search(line)), None)
    shown = lines[-_SHOWN_LINES:] if first is None else lines[first : first + _SHOWN_LINES]
    return "\n".join(f"  {line}" for line in shown)
