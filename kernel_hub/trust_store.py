"""Changing trust files: adding and removing allowances, with everything that people wrote beside them left as it is.

A file is changed as text, and what the text amounts to is compared before it is written, so that no comment is lost and no
other rule changes by accident.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.trust import Entry, Scope, TrustRules, format_entry, merged, parse_trust_file

_TABLE = re.compile(r"\s*\[")
_ALLOWANCE = re.compile(r"\s*\[\[\s*allow\s*\]\]\s*(#.*)?$")


def allow(path: Path, entry: Entry) -> bool:
    """Add an allowance to a trust file, which is made if there is none.

    Args:
        path: The file.
        entry: What to allow; its `defined_in` is the file's.

    Returns:
        Whether it was added; not if the file allows exactly this already.

    Raises:
        InvalidDocumentError: If the file is not a trust file, or the entry names a signer that it does not define.
        OSError: If it cannot be written.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    rules = parse_trust_file(text.encode("utf-8"), name=str(path))
    entry = replace(entry, defined_in=str(path))
    if any((other.scope, other.signers) == (entry.scope, entry.signers) for other in rules.allowed):
        return False
    apart = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    _write(path, text + apart + format_entry(entry), replace(rules, allowed=(*rules.allowed, entry)))
    return True


def disallow(path: Path, scope: Scope) -> tuple[Entry, ...]:
    """Remove every allowance of exactly this scope from a trust file.

    Returns:
        What was removed.

    Raises:
        InvalidDocumentError: If the file is not a trust file, or is written so that its parts cannot be told apart.
        OSError: If it cannot be written.
    """
    if not path.exists():
        return ()
    text = path.read_text(encoding="utf-8")
    rules = parse_trust_file(text.encode("utf-8"), name=str(path))
    removed = tuple(entry for entry in rules.allowed if entry.scope == scope)
    if removed:
        numbers = {number for number, entry in enumerate(rules.allowed) if entry.scope == scope}
        kept = tuple(entry for entry in rules.allowed if entry.scope != scope)
        _write(path, _without(text, numbers), replace(rules, allowed=kept))
    return removed


def _without(text: str, numbers: set[int]) -> str:
    """The text without the allowances of these numbers, counted from 0."""
    kept: list[str] = []
    number = -1
    dropping = False
    for line in text.splitlines(keepends=True):
        if _TABLE.match(line):
            number += 1 if _ALLOWANCE.match(line) else 0
            dropping = number in numbers and _ALLOWANCE.match(line) is not None
        if not dropping:
            kept.append(line)
    return "".join(kept)


def _write(path: Path, text: str, expected: TrustRules) -> None:
    if parse_trust_file(text.encode("utf-8"), name=str(path)) != expected:
        raise InvalidDocumentError(
            str(path), "is written in a way that cannot be changed safely", hint="edit it by hand"
        )
    merged([expected])
    path.parent.mkdir(parents=True, exist_ok=True)
    growing = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        growing.write_text(text, encoding="utf-8")
        growing.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        growing.replace(path)
    except BaseException:
        growing.unlink(missing_ok=True)
        raise
