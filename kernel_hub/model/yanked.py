"""`kernel-yanked.toml` at a version branch's root: versions or builds that their publisher takes back, without deleting them.

Our own file, which other clients do not read. What is yanked still loads, because whoever pinned it must get the same bytes;
but loaders and `lock --check` say so, with the reason.

    [[yanked]]
    build = "torch213-cxx11-cu130-x86_64-linux"    # without it, the whole version
    reason = "wrong results for head dimension 96"
    on = 2026-12-02
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date, datetime

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.value import dataclass

FILE_NAME = "kernel-yanked.toml"
MAX_BYTES = 256 << 10
_KEYS = frozenset({"build", "reason", "on"})


@dataclass(frozen=True, slots=True)
class Yank:
    """One mark.

    Attributes:
        build: The build that it is about; None for every build of the version.
        reason: Why, in the publisher's words.
        on: The day it was made.
    """

    build: str | None
    reason: str
    on: date

    def concerns(self, build: str) -> bool:
        """Whether it is about a build of this name."""
        return self.build in (None, build)

    def __str__(self) -> str:
        what = f"the build {self.build}" if self.build is not None else "this version"
        return f"{what} was yanked by its publisher on {self.on.isoformat()}: {self.reason}"


def parse_yanks(content: bytes, *, name: str = FILE_NAME) -> tuple[Yank, ...]:
    """Read the bytes of a `kernel-yanked.toml`.

    Raises:
        InvalidDocumentError: Naming the entry and key at fault.
    """
    if len(content) > MAX_BYTES:
        raise InvalidDocumentError(name, f"is longer than {MAX_BYTES} bytes")
    # Imported here, because most kernels have no such file.
    import tomllib

    try:
        entries = tomllib.loads(content.decode("utf-8")).get("yanked", [])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDocumentError(name, f"is not TOML: {error}") from error
    if not isinstance(entries, list):
        raise InvalidDocumentError(name, "is not a list of tables", location="yanked")
    return tuple(_yank(entry, f"yanked[{index}]", name) for index, entry in enumerate(entries))


def format_yanks(yanks: Iterable[Yank]) -> bytes:
    """The bytes of the file, sorted; `parse_yanks` is its inverse."""
    lines = []
    for yank in sorted(yanks, key=lambda yank: (yank.build or "", yank.on, yank.reason)):
        lines.append("[[yanked]]")
        if yank.build is not None:
            lines.append(f"build = {_text(yank.build)}")
        lines += [f"reason = {_text(yank.reason)}", f"on = {yank.on.isoformat()}", ""]
    return "\n".join(lines).encode("utf-8")


def _yank(entry: object, place: str, name: str) -> Yank:
    if not isinstance(entry, dict):
        raise InvalidDocumentError(name, "is not a table", location=place)
    for key in entry:
        if key not in _KEYS:
            raise InvalidDocumentError(name, "unknown key", location=f"{place}.{key}")
    build, reason, on = entry.get("build"), entry.get("reason"), entry.get("on")
    if build is not None and (not isinstance(build, str) or not build):
        raise InvalidDocumentError(name, "is not a build's name", location=f"{place}.build")
    if not isinstance(reason, str) or not reason:
        raise InvalidDocumentError(name, "is missing, or not a text", location=f"{place}.reason")
    if not isinstance(on, date) or isinstance(on, datetime):
        raise InvalidDocumentError(name, "is missing, or not a day", location=f"{place}.on")
    return Yank(build, reason, on)


def _text(text: str) -> str:
    # A JSON text without its two escapes that TOML lacks is a TOML basic string; DEL must be escaped there.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
