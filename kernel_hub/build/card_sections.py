"""The parts of a card that are made from its builds, as Markdown: where they run, what they came from, what was measured.

Everything here was written by whoever made a build, so nothing of it may become a link, a tag or a row of its own. Pure, and
the same for the same builds in whatever order they come.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernel_hub.build.compatibility import compatibility
from kernel_hub.build.measured import Measured
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.provenance import SourceState

MOST_ROWS = 40
"""How many measurements of one machine a card shows."""

_MOST_TEXT = 200
_PLAIN = re.compile(r"[A-Za-z0-9_.:+=/~@-]+(?: [A-Za-z0-9_.:+=/~@-]+)*")

# Between letters an underscore means nothing.
_WORDS = re.compile(r"(?:[A-Za-z0-9.,() +-]|(?<=[A-Za-z0-9])_(?=[A-Za-z0-9]))*")


def shown(text: str) -> str:
    """A text as Markdown shows it letter for letter: as code if that is safe, else with everything but words escaped."""
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text[:_MOST_TEXT])
    return f"`{text}`" if _PLAIN.fullmatch(text) else escaped(text)


def escaped(text: str) -> str:
    """A text in which no character means anything to Markdown or HTML, be it in a table or not."""
    spaced = "".join(letter if letter.isprintable() else " " for letter in text)
    return "".join(letter if letter.isalnum() or letter == " " else f"&#{ord(letter)};" for letter in spaced)


def builds_table(builds: Mapping[str, Metadata | None]) -> str:
    """Which build runs where; "" if there are none."""
    rows = compatibility(builds)
    if not rows:
        return ""
    has_archs = any(row.archs for row in rows)
    head = ["backend", "framework", "system", *(["GPU architectures"] if has_archs else []), "build"]
    cells = [
        [
            _cell(row.backend),
            _cell(row.framework),
            _cell(row.system),
            *([", ".join(map(_cell, row.archs))] if has_archs else []),
            shown(row.label),
        ]
        for row in rows
    ]
    return _table(head, cells)


def provenance_list(builds: Mapping[str, Metadata | None]) -> str:
    """What the builds came from, those that came from the same in one item; "" if there are none."""
    groups: dict[str, list[str]] = {}
    for row in compatibility(builds):
        groups.setdefault(_origin(builds[row.label]), []).append(row.label)
    return "".join(f"- {', '.join(map(shown, labels))}: {said}\n" for said, labels in groups.items())


def measured_tables(measured: Iterable[Measured]) -> str:
    """A table for each machine that was measured on; "" if there is none."""
    return "\n".join(map(_measured, measured))


def _origin(metadata: Metadata | None) -> str:
    if metadata is None:
        return "its metadata cannot be read"
    provenance = metadata.provenance
    if provenance is None:
        parts = ["sources and builder not stated"]
    else:
        sources = "sources not stated" if provenance.kernel is None else f"sources at {_state(provenance.kernel)}"
        builder = f"built by {shown(provenance.builder_version)}"
        parts = [sources, builder if provenance.builder is None else f"{builder} at {_state(provenance.builder)}"]
    return "; ".join((*parts, *_compilers(metadata.built_with)))


def _state(state: SourceState) -> str:
    return f"commit `{state.commit}`" + (" **with changes that are in no commit**" if state.dirty else "")


def _compilers(said: Mapping[str, Any]) -> Iterable[str]:
    """What metadata says of compilers, as far as it has the shape that this release writes."""
    compilers = said.get("compilers")
    found = [
        f"{shown(tool['name'])} {shown(tool['version'])}"
        for tool in (compilers if isinstance(compilers, list) else ())
        if isinstance(tool, dict) and isinstance(tool.get("name"), str) and isinstance(tool.get("version"), str)
    ]
    if found:
        yield f"compiled with {', '.join(found)}"
    for key, word in (("against", "against"), ("toolkit", "with")):
        if isinstance(text := said.get(key), str) and text:
            yield f"{word} {shown(text)}"


def _measured(measured: Measured) -> str:
    rows = measured.rows[:MOST_ROWS]
    has_ratios = any(row.ratios for row in rows)
    cells = [
        [
            shown(row.problem),
            shown(row.element_type),
            row.rate,
            *([", ".join(f"{ratio:.2f} {shown(rival)}" for rival, ratio in row.ratios)] if has_ratios else []),
        ]
        for row in rows
    ]
    left_out = len(measured.rows) - len(rows)
    more = f"\n{left_out} more {'is' if left_out == 1 else 'are'} not shown.\n" if left_out else ""
    head = ["problem", "type", "rate", *(["times faster than"] if has_ratios else [])]
    return f"On {_cell(measured.machine)}:\n\n{_table(head, cells)}{more}"


def _cell(text: str) -> str:
    """Words as they are, anything else escaped."""
    text = text[:_MOST_TEXT]
    return text if _WORDS.fullmatch(text) else escaped(text)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
