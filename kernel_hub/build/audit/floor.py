"""The oldest system that a build must run on, told by symbol versions.

The limits are those of the platform tag manylinux_2_28 (PEP 600; the table of pypa/auditwheel), which the ecosystem's
builds keep (repository format, section e).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from packaging.version import Version

from kernel_hub.build.audit.elf import Symbol

FLOOR = {
    "GLIBC": Version("2.28"),
    "GLIBCXX": Version("3.4.24"),
    "CXXABI": Version("1.3.11"),
    "GCC": Version("7.0.0"),
}
_VERSION = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9]+(?:\.[0-9]+)*)")


def is_within_floor(version: str) -> bool:
    """Whether the oldest system offers a symbol version, such as `GLIBC_2.14`.

    Versions of other libraries are none of the floor's business; a private or unnumbered version of these four is
    promised by no system.
    """
    found = _VERSION.fullmatch(version)
    if found:
        return Version(found[2]) <= FLOOR[found[1]]
    return version.partition("_")[0] not in FLOOR


def above_floor(symbols: Iterable[Symbol]) -> tuple[Symbol, ...]:
    """The symbols that the oldest system does not have, by name."""
    return tuple(sorted((item for item in symbols if not is_within_floor(item.version)), key=str))
