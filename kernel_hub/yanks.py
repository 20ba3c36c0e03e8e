"""What publishers took back: marks of a commit, put to the builds that they are about."""

from __future__ import annotations

from dataclasses import replace

from kernel_hub.cache import Cache
from kernel_hub.fetch import fetch_document
from kernel_hub.model.selection import Accepted, Selection
from kernel_hub.model.source import Pin, Source
from kernel_hub.model.yanked import FILE_NAME, Yank, parse_yanks


def yanks_of(source: Source, cache: Cache, pin: Pin) -> tuple[Yank, ...]:
    """The marks of a commit.

    Raises:
        FetchError: If the source cannot be read.
        InvalidDocumentError: If the file of marks is malformed.
    """
    content = fetch_document(source, cache, pin, FILE_NAME)
    return () if content is None else parse_yanks(content, name=f"{FILE_NAME} of {pin}")


def mark(selection: Selection, yanks: tuple[Yank, ...]) -> Selection:
    """The selection with a note at every accepted build that was yanked. The order stays: a yank refuses nothing."""
    if not yanks:
        return selection
    return replace(selection, accepted=tuple(_marked(verdict, yanks) for verdict in selection.accepted))


def _marked(verdict: Accepted, yanks: tuple[Yank, ...]) -> Accepted:
    texts = tuple(str(yank) for yank in yanks if yank.concerns(verdict.variant.name))
    return replace(verdict, notes=(*verdict.notes, *texts), yanked=texts)
