"""The documents say what the code does: generated pages are current, every command line in them is understood."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_hub.cli.command import UsageError
from kernel_hub.cli.parser import COMMANDS, PROGRAM, parse
from kernel_hub.cli.reference import exit_codes, page

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "registry").glob("*/*.md")])
# A decision may speak of what is yet to come.
CURRENT_PAGES = [path for path in PAGES if "decisions" not in path.parts]
_FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
_INLINE = re.compile(rf"`({PROGRAM} [^`]+)`")
_NAMES = {command.name for command in COMMANDS}


def fenced(path: Path, *languages: str) -> Iterator[str]:
    for language, content in _FENCE.findall(path.read_text(encoding="utf-8")):
        if language in languages:
            yield content


def command_lines(path: Path) -> Iterator[list[str]]:
    """The words of every call of our program in a page's shell blocks."""
    for block in fenced(path, "sh", "bash", "console"):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\||;", line.removeprefix("$ ")):
                words = shlex.split(part, comments=True)
                if words and words[0] == PROGRAM:
                    yield words[1:]


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_line_in_a_page_is_understood(path: Path) -> None:
    for words in command_lines(path):
        assert parse(words) is not None, words


@pytest.mark.parametrize("path", CURRENT_PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_a_page_mentions_exists(path: Path) -> None:
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    for mentioned in _INLINE.findall(text):
        word = mentioned.split()[1]
        assert word in _NAMES or word.startswith("-") or word.isupper(), mentioned


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_python_block_in_a_page_parses(path: Path) -> None:
    for block in fenced(path, "python"):
        ast.parse(block)


def test_the_readme_names_the_demo() -> None:
    assert ["demo"] in list(command_lines(ROOT / "README.md"))


def test_the_page_lists_every_command_and_argument() -> None:
    text = page()
    for command in COMMANDS:
        assert f"\n## {command.name}\n" in text
        for entry in command.arguments:
            assert f"| `{entry.shown}` | {entry.text} |" in text


def test_every_exit_code_is_documented_once() -> None:
    codes = [code for code, _, _ in exit_codes()]
    assert codes == [0, 1, 2, 3, 4, 5, 6, 7, 8, 130, 141]


def test_a_wrong_command_line_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        f"```sh\npip install x && {PROGRAM} explain --no-such-option org/name  # so\n```\n", encoding="utf-8"
    )
    (words,) = command_lines(page)
    with pytest.raises(UsageError):
        parse(words)


def test_every_command_that_a_message_recommends_exists() -> None:
    found = 0
    for path in sorted((ROOT / "kernel_hub").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for word in re.findall(rf"['`]{PROGRAM} ([a-z-]+)|\b{PROGRAM} ([a-z]+) (?:--|\.|org/)", node.value):
                    name = word[0] or word[1]
                    assert name in _NAMES or name.startswith("-"), f"{path}: {name}"
                    found += 1
    assert found > 10
