"""Which C functions torch promises to its stable ABI, and since which release, read from an installed torch's headers.

The headers guard each function by the release that brought it (`TORCH_FEATURE_VERSION >= TORCH_VERSION_2_10_0`), so a
newer torch knows of every older target.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.version import Version

_FOLDERS = (
    "torch/csrc/stable/c",
    "torch/csrc/inductor/aoti_torch/c",
    "torch/csrc/inductor/aoti_torch/generated",
)
_GUARD = re.compile(r"TORCH_FEATURE_VERSION\s*>=\s*TORCH_VERSION_(\d+)_(\d+)_\d+")
_FUNCTION = re.compile(r"\b((?:aoti_)?torch_[a-z0-9_]\w*)\s*\(")
_DIRECTIVE = re.compile(r"^\s*#\s*(ifdef|ifndef|if|elif|else|endif)\b")
UNGUARDED = Version("2.9")
"""What is not guarded is as old as the stable ABI's first release that builds may target."""


def shims_in(include: Path) -> dict[str, Version]:
    """The functions declared below a torch's include folder, with the release that each needs."""
    found: dict[str, Version] = {}
    for folder in _FOLDERS:
        for path in sorted((include / folder).glob("*.h")):
            for name, version in shims_of(path.read_text("utf-8", "replace")).items():
                found[name] = min(version, found.get(name, version))
    return found


def shims_of(header: str) -> Mapping[str, Version]:
    """The functions that a header's text declares, with the release that each needs."""
    found: dict[str, Version] = {}
    for line, needed in _guarded(header):
        for name in _FUNCTION.findall(line):
            found[name] = min(needed, found.get(name, needed))
    return found


def _guarded(header: str) -> Iterator[tuple[str, Version]]:
    """Each line with the newest release that the conditions around it ask for."""
    open_conditions: list[Version] = []
    for line in header.splitlines():
        directive = _DIRECTIVE.match(line)
        if directive is None:
            yield line, max(open_conditions, default=UNGUARDED)
        elif directive[1] in ("if", "ifdef", "ifndef"):
            guard = _GUARD.search(line)
            open_conditions.append(Version(f"{guard[1]}.{guard[2]}") if guard else UNGUARDED)
        elif directive[1] in ("elif", "else") and open_conditions:
            open_conditions[-1] = UNGUARDED
        elif directive[1] == "endif" and open_conditions:
            open_conditions.pop()
