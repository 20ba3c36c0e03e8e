"""What a version's branch holds: its builds with their metadata, read from a source or sink.

Leaves out: what a publication changes (see `kernel_hub.build.sending`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.metadata import MAX_BYTES, Metadata
from kernel_hub.model.source import FileEntry, Pin, Sink, Source
from kernel_hub.model.variant import UnknownLabel, read_label


def builds_there(
    place: Source | Sink, pin: Pin | None, files: Iterable[FileEntry], *, leaving_out: Container[str] = ()
) -> dict[str, Metadata | None]:
    """The builds of a commit, by label; None for one whose metadata this release can't read.

    Args:
        place: Where they are.
        pin: The commit; None if there is none, which holds no builds.
        files: The commit's listing.
        leaving_out: Labels that are not asked for.

    Raises:
        FetchError: If the place can't be read.
    """
    if pin is None:
        return {}
    found: dict[str, Metadata | None] = {}
    for entry in files:
        folder, _, rest = entry.path.partition("/")
        label, _, name = rest.partition("/")
        if (folder, name) != ("build", "metadata.json") or label in leaving_out:
            continue
        if not isinstance(read_label(label), UnknownLabel):
            found[label] = _metadata(place, pin, entry.path)
    return found


def _metadata(place: Source | Sink, pin: Pin, path: str) -> Metadata | None:
    try:
        return Metadata.parse(place.read(pin.repo, pin.commit, path, limit_bytes=MAX_BYTES), name=f"{path} of {pin}")
    except InvalidDocumentError:
        return None
