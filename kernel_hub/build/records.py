"""What a step was made from, kept beside its output, so that a later build runs only the steps whose inputs changed.

Inputs are compared by content: a file that was touched and not changed starts nothing, and one that was changed and given
an old date does. What a compiler read besides its source is what it said itself in its depfile.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_hub.build.command import MODULE_DEFINE, TVM_MODULE_DEFINE, Step

_FORMAT = 1
_NAMES = (MODULE_DEFINE, TVM_MODULE_DEFINE)
_MAX_RECORD_BYTES = 64 << 20
_DEPFILE_WORD = re.compile(r"((?:\\.|[^\s\\])+)")


@dataclass(frozen=True, slots=True)
class Content:
    """A file's content, as far as records care.

    Attributes:
        digest: SHA-256, in hexadecimal.
        names_module: Whether the text asks for the module's name.
    """

    digest: str
    names_module: bool


class Records:
    """The records of one build's steps.

    Args:
        toolchain: Names the compilers and their versions; another text makes every step outdated.
    """

    def __init__(self, toolchain: str) -> None:
        self._toolchain = toolchain
        self._contents: dict[Path, Content | None] = {}
        self._lock = threading.Lock()

    def is_current(self, step: Step) -> bool:
        """Whether a step's output is there and is what running the step now would make."""
        record = _read(_place(step))
        if record is None or record.get("toolchain") != self._toolchain:
            return False
        inputs, output = record.get("inputs"), self._content(step.output)
        if not isinstance(inputs, dict) or output is None or record.get("output") != output.digest:
            return False
        found = {path: self._content(step.folder / path) for path in inputs}
        return all(
            content is not None and content.digest == inputs[path] for path, content in found.items()
        ) and record.get("argv") == _argv(step, found.values())

    def forget(self, step: Step) -> None:
        """Remove the record of a step that is about to run."""
        _place(step).unlink(missing_ok=True)

    def remember(self, step: Step) -> None:
        """Record what a step that has run was made from."""
        with self._lock:
            self._contents.pop(step.output, None)
        paths = _depfile_inputs(step)
        found = {path: self._content(step.folder / path) for path in paths}
        output = self._content(step.output)
        if output is None or not all(found.values()):
            return
        record = {
            "format": _FORMAT,
            "toolchain": self._toolchain,
            "argv": _argv(step, found.values()),
            "inputs": {path: content.digest for path, content in found.items() if content},
            "output": output.digest,
        }
        _place(step).write_text(json.dumps(record), encoding="utf-8")

    def _content(self, path: Path) -> Content | None:
        with self._lock:
            if path in self._contents:
                return self._contents[path]
        try:
            text = path.read_bytes()
            content = Content(hashlib.sha256(text).hexdigest(), any(name.encode() in text for name in _NAMES))
        except OSError:
            content = None
        with self._lock:
            self._contents[path] = content
        return content


def _argv(step: Step, inputs: Iterable[Content | None]) -> list[str]:
    """The arguments that matter. The module's name follows from all sources, and few of them ask for it."""
    if any(content is None or content.names_module for content in inputs):
        return list(step.argv)
    return [part for part in step.argv if not part.startswith(tuple(f"-D{name}=" for name in _NAMES))]


def _place(step: Step) -> Path:
    return step.output.with_name(f"{step.output.name}.record")


def _read(path: Path) -> Mapping[str, Any] | None:
    """A record; None if there is none that can be read, which only means that the step runs again."""
    try:
        with path.open("rb") as file:
            record = json.loads(file.read(_MAX_RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get("format") == _FORMAT else None


def _depfile_inputs(step: Step) -> list[str]:
    if step.depfile is None:
        return []
    try:
        text = step.depfile.read_text("utf-8", "surrogateescape")
    except OSError:
        return []
    return list(dict.fromkeys(read_depfile(text)))


def read_depfile(text: str) -> list[str]:
    """The prerequisites that a compiler's depfile lists: `target: path path ...`, with spaces behind a backslash."""
    _, _, listed = text.replace("\\\n", " ").partition(": ")
    words = _DEPFILE_WORD.findall(listed.partition("\n")[0])
    return [re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$") for word in words]
