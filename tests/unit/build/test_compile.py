"""Running steps: logs, the compiler's own words, no output left behind."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from kernel_hub.build.command import Step
from kernel_hub.build.compile import log_name, run_step, run_steps
from kernel_hub.errors import CompileError, ToolchainError

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def step(folder: Path, code: str, name: str = "a: b.cpp") -> Step:
    return Step(name, (sys.executable, "-c", code), folder, folder / "out" / "b.o")


def test_the_log_holds_the_command_and_everything_that_was_said(tmp_path: Path) -> None:
    run_step(step(tmp_path, "import sys; print('one'); print('two', file=sys.stderr)"), ENVIRONMENT, tmp_path / "l")
    said = (tmp_path / "l").read_text()
    assert said.startswith(f"$ {sys.executable} -c 'import sys; ")
    assert {"one", "two"} <= set(said.splitlines())


def test_a_failure_shows_what_was_said_from_the_first_error_on_and_leaves_no_output(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; pathlib.Path('out/b.o').write_text('half');"
        "print('a note'); print('b.cpp:3:5: error: no such thing'); print('  caret'); sys.exit(1)"
    )
    failing = step(tmp_path, code)
    with pytest.raises(CompileError) as caught:
        run_step(failing, ENVIRONMENT, tmp_path / "l")
    assert caught.value.message == "a: b.cpp failed:\n  b.cpp:3:5: error: no such thing\n    caret"
    assert caught.value.command == failing.argv
    assert caught.value.log_path == tmp_path / "l"
    assert not failing.output.exists()


def test_a_silent_failure_says_how_it_ended(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="ended with status 7 and said nothing"):
        run_step(step(tmp_path, "raise SystemExit(7)"), ENVIRONMENT, tmp_path / "l")


def test_a_program_that_is_not_there_is_a_matter_of_the_toolchain(tmp_path: Path) -> None:
    absent = Step("a", (str(tmp_path / "no-such-compiler"),), tmp_path, tmp_path / "o")
    with pytest.raises(ToolchainError, match="no-such-compiler cannot be started"):
        run_step(absent, ENVIRONMENT, tmp_path / "l")


def test_a_step_sees_only_the_environment_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPATH", "/somewhere")
    run_step(step(tmp_path, "import os; print(sorted(os.environ))"), ENVIRONMENT, tmp_path / "l")
    assert "CPATH" not in (tmp_path / "l").read_text()


def test_steps_run_side_by_side(tmp_path: Path) -> None:
    # A pipe opens once both ends are asked for, so one after the other they would never end.
    os.mkfifo(tmp_path / "pipe")
    steps = [step(tmp_path, "open('pipe', 'w')", "1"), step(tmp_path, "open('pipe')", "2")]
    seen: list[str] = []
    lock = threading.Lock()

    def note(done: Step) -> None:
        with lock:
            seen.append(done.name)

    run_steps(steps, ENVIRONMENT, tmp_path / "logs", parallel=2, on_done=note)
    assert sorted(seen) == ["1", "2"]


def test_after_a_failure_nothing_more_is_begun(tmp_path: Path) -> None:
    steps = [step(tmp_path, "raise SystemExit(1)", "1")]
    steps += [step(tmp_path, "import pathlib; pathlib.Path('ran').touch()", str(index)) for index in range(2, 40)]
    with pytest.raises(CompileError, match="1 failed"):
        run_steps(steps, ENVIRONMENT, tmp_path / "logs", parallel=1)
    # The pool may have taken up one more before it heard of the failure, but never the last of many.
    assert not (tmp_path / "logs" / log_name(38, steps[38])).exists()


def test_log_names_are_plain_and_in_order(tmp_path: Path) -> None:
    assert log_name(3, step(tmp_path, "", "kernel: csrc/a b/ü.cu")) == "003-kernel-csrc-a-b-.cu.log"
