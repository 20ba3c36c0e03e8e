"""What every command has in common: help, usage errors, exit codes, streams."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernel_hub
from kernel_hub.cli import main
from kernel_hub.cli.console import Console, printable, size_text
from kernel_hub.cli.parser import COMMANDS, GROUPS, parse
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
RECIPE = """
[general]
name = "scale"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
"""
NAMES = [command.name for command in COMMANDS]
HEAVY = (
    "{'torch', 'huggingface_hub', 'httpx', 'packaging', 'starlette', 'uvicorn', 'numpy', 'triton', 'elftools', 'json'}"
)


def program(*words: str, **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "kernel_hub", *words],
        cwd=ROOT,
        env=dict(os.environ),
        text=True,
        check=False,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings,
    )


@pytest.mark.parametrize("words", [["--help"], ["--version"], *([name, "--help"] for name in NAMES)], ids=" ".join)
def test_help_is_printed_on_standard_output(run: Run, words: list[str]) -> None:
    result = run(*words)
    assert (result.code, result.err) == (0, "")
    assert "kernel-hub" in result.out


def test_help_imports_nothing_that_takes_time_to_load() -> None:
    code = (
        "import sys\n"
        "from kernel_hub.cli import main\n"
        f"for words in (['--help'], *([name, '--help'] for name in {NAMES})):\n"
        "    assert main(words) == 0\n"
        f"heavy = {HEAVY} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "ours = {name for name in sys.modules if name.startswith('kernel_hub')}\n"
        "assert all(name.startswith(('kernel_hub.cli', 'kernel_hub.errors')) for name in ours - {'kernel_hub'}), ours\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_version_is_the_packages(run: Run) -> None:
    assert run("--version").out == f"kernel-hub {kernel_hub.__version__}\n"


def test_the_module_is_the_program() -> None:
    done = program("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kernel-hub {kernel_hub.__version__}\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ["-v"],
        ["no-such-command"],
        ["explain"],
        ["explain", "acme/axpy", "--no-such-option"],
        ["explain", "acme/axpy", "--ver", "1"],
        ["explain", "acme/axpy", "--device", "first"],
        ["select", "--host"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_exits_with_2_and_says_where_help_is(run: Run, words: list[str]) -> None:
    plain, as_json = run(*words), run(*words, "--json")
    assert plain.code == as_json.code == 2
    assert plain.out == ""
    assert plain.err.startswith("error: kernel-hub")
    assert "--help" in plain.err
    assert as_json.err == ""
    assert (as_json.error["type"], as_json.error["exit_code"]) == ("UsageError", 2)
    assert "--help" in as_json.error["hint"]


def test_the_program_alone_prints_its_help_with_every_command_in_a_group(run: Run) -> None:
    alone = run()
    assert (alone.code, alone.out) == (0, run("--help").out)
    for title, commands in GROUPS.items():
        section = alone.out.split(f"\n{title}:\n")[1].split("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == [command.name for command in commands]


def test_a_slip_in_a_command_is_told_the_closest(run: Run) -> None:
    assert "did you mean 'kernel-hub explain'?" in run("explian", "acme/axpy").err
    assert "did you mean" not in run("zzzzzz").err


@pytest.mark.parametrize("words", [("-v", "versions", "acme/axpy"), ("versions", "acme/axpy", "-v")], ids=" ".join)
def test_verbose_and_json_are_taken_before_and_after_the_command(words: tuple[str, ...]) -> None:
    parsed = parse(list(words))
    assert parsed is not None
    assert (parsed[1].verbose, parsed[1].json) == (True, False)


# As `python -m kernel_hub` starts, and as the script does that the installer makes from pyproject.toml.
_STARTS = {
    "module": "runpy.run_module('kernel_hub', run_name='__main__')\n",
    "script": "import pkgutil\nsys.exit(pkgutil.resolve_name(tomllib.load(open('pyproject.toml', 'rb'))"
    "['project']['scripts']['kernel-hub'])())\n",
}


@pytest.mark.parametrize("start", _STARTS)
@pytest.mark.parametrize("module", ["kernel_hub.cli", "kernel_hub.cli.parser", "kernel_hub.cli.build"])
def test_an_interruption_while_the_program_starts_leaves_no_traceback(module: str, start: str) -> None:
    code = (
        "import runpy, sys, tomllib\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "sys.argv = ['kernel-hub', 'host']\n"
        f"{_STARTS[start]}"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_json_and_verbose(run: Run, name: str) -> None:
    shown = run(name, "--help").out
    assert "--json" in shown
    assert "--verbose" in shown


def test_an_error_is_text_on_standard_error_or_json_on_standard_output(run: Run) -> None:
    plain, as_json = run("explain", "not-a-name"), run("explain", "not-a-name", "--json")
    assert plain.code == as_json.code == 2
    assert plain.out == as_json.err == ""
    assert plain.err.startswith("error: repository name: 'not-a-name' is not of the form 'org/name'\n  hint: ")
    assert as_json.error == {
        "type": "InvalidDocumentError",
        "message": "repository name: 'not-a-name' is not of the form 'org/name'",
        "hint": "name one kernel, e.g. 'acme/axpy'",
        "exit_code": 2,
    }


class _Interrupting:
    def readline(self, _limit: int) -> bytes:
        raise KeyboardInterrupt


class _Broken:
    def readline(self, _limit: int) -> bytes:
        raise RuntimeError("a fault of ours")


def test_an_interruption_exits_with_130(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", "--stdin"], source=_Interrupting()) == 130  # type: ignore[arg-type]
    assert capsys.readouterr() == ("", "interrupted\n")
    assert main(["select", "--stdin", "--json"], source=_Interrupting()) == 130  # type: ignore[arg-type]
    written = capsys.readouterr()
    assert json.loads(written.out)["error"] == {
        "type": "KeyboardInterrupt",
        "message": "interrupted",
        "hint": "",
        "exit_code": 130,
    }
    assert written.err == ""


def test_an_unexpected_error_exits_with_1_with_its_traceback(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", "--stdin", "--json"], source=_Broken()) == 1  # type: ignore[arg-type]
    written = capsys.readouterr()
    assert json.loads(written.out)["error"]["message"] == "unexpected RuntimeError: a fault of ours"
    assert "Traceback" in written.err


@pytest.mark.skipif(os.name != "posix", reason="pipes and full devices of POSIX")
class TestStreams:
    def test_a_reader_that_goes_away_is_no_fault(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = program("select", "--stdin", stdout=writer, input='{"host": {}, "labels": []}\n' * 3)
        finally:
            os.close(writer)
        assert (done.returncode, done.stderr) == (141, "")

    def test_a_reader_that_goes_away_before_a_short_answer_is_no_fault(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = program("select", "--labels", "-", "--host", os.devnull, "--json", stdout=writer, input="")
        finally:
            os.close(writer)
        assert (done.returncode, done.stderr) == (141, "")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    def test_output_that_cannot_be_written_exits_with_1(self) -> None:
        with Path("/dev/full").open("w") as full:
            done = program("select", "--stdin", stdout=full, input='{"host": {}, "labels": []}\n')
        assert done.returncode == 1
        assert done.stderr == "error: the output cannot be written: No space left on device\n"

    def test_closed_streams_do_not_matter(self) -> None:
        command = f"exec {sys.executable} -m kernel_hub select --stdin <&- >&- 2>&-"
        done = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, check=False)
        assert done.returncode == 0

    def test_text_that_the_encoding_lacks_is_escaped(self) -> None:
        environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        done = subprocess.run(
            [sys.executable, "-m", "kernel_hub", "explain", "akmé/x"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 2
        assert b"akm\\xe9/x" in done.stderr

    def test_progress_is_shown_on_a_terminal_only(self, home: Path, tmp_path: Path) -> None:
        package = tmp_path / "scale" / "torch-ext" / "scale"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("__all__ = []\n", encoding="utf-8")
        (tmp_path / "scale" / "build.toml").write_text(RECIPE, encoding="utf-8")
        ours, theirs = os.openpty()
        try:
            watched = program("build", str(tmp_path / "scale"), stderr=theirs)
            shown = os.read(ours, 10_000)
        finally:
            os.close(ours)
            os.close(theirs)
        assert watched.returncode == 0
        assert shown == b"torch-cpu: assemble (1 of 1)\r\n"
        assert program("build", str(tmp_path / "scale")).stderr == ""


@pytest.mark.parametrize(
    ("words", "library", "extra"),
    [
        (["serve", "folder"], "uvicorn", "serve"),
        (["serve", "folder"], "starlette", "serve"),
        (["demo"], "torch", "torch"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_what_to_install(
    words: list[str], library: str, extra: str
) -> None:
    code = f"import sys; sys.modules[{library!r}] = None; from kernel_hub.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: this command needs {library}, which is not installed\n  hint: pip install 'kernel-hub[{extra}]'\n"
    )


def test_log_records_are_notices_with_their_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(sys.stdout, sys.stderr, None, as_json=True)
    logger = logging.getLogger("kernel_hub.anything")
    with console.log_records(verbose=False):
        logger.info("not shown")
        try:
            raise ValueError("broken\x1b")
        except ValueError:
            logger.exception("it failed")
    with console.log_records(verbose=True):
        logger.info("shown")
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("error: it failed\nTraceback")
    assert written.err.endswith("ValueError: broken\\x1b\ninfo: shown\n")


def test_control_characters_from_elsewhere_are_escaped(run: Run, cpu_host: str) -> None:
    label = "torch-\x1b[31mred\x07\x9b\u202e"
    result = run("select", "--host", cpu_host, "--labels", "-", stdin=json.dumps([label]).encode())
    assert "torch-\\x1b[31mred\\x07\\x9b\\u202e" in result.out
    assert not set(result.out) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_line_feeds_and_tabs_stay_in_text() -> None:
    assert printable("a\tb\nc\rd") == "a\tb\nc\\x0dd"


def test_nothing_is_said_of_progress_unless_a_terminal_watches() -> None:
    class Terminal(list[str]):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            self.append(text)
            return len(text)

        def flush(self) -> None:
            pass

    watched = Terminal()
    assert Console(None, sys.__stderr__, None, as_json=False).progress() is None or sys.__stderr__.isatty()  # type: ignore[union-attr]
    assert Console(None, watched, None, as_json=True).progress() is None  # type: ignore[arg-type]
    show = Console(None, watched, None, as_json=False).progress()  # type: ignore[arg-type]
    assert show is not None
    show("kernel.so", 10, 2048)
    assert watched == []
    show("kernel.so", 2048, 2048)
    assert watched == ["fetched kernel.so (2.0 KiB)\n"]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (2 << 40, "2048.0 GiB"),
    ],
)
def test_sizes_are_shown_in_the_largest_unit_that_fits(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text
