"""Holding a build to what its version offers already: the record of a published commit, or one made from its sources.

Nothing that is read here is run, so nobody has to be trusted for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from kernel_hub.build.audit.finding import Finding, Rule
from kernel_hub.build.interface import FILE_NAME, MAX_BYTES, ApiRecord
from kernel_hub.build.interface_changes import breaches
from kernel_hub.build.interface_reader import read_api, record_api
from kernel_hub.errors import EntryNotFoundError, InvalidDocumentError, PublishRefusedError
from kernel_hub.model.digest import covers
from kernel_hub.model.metadata import MAX_BYTES as MAX_METADATA_BYTES
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.source import Pin, Sink, Source

_MAX_SOURCE_BYTES = 16 << 20


def published_api(source: Source | Sink, pin: Pin, labels: Collection[str] = ()) -> ApiRecord:
    """What a published commit offers.

    Args:
        source: Where it is published.
        pin: The commit.
        labels: Builds to ask before others, where the commit has no record of its own.

    Raises:
        PublishRefusedError: If the commit has neither record nor build.
        InvalidDocumentError: If it can't be told what it offers.
        FetchError: If the source can't be read.
    """
    try:
        content = source.read(pin.repo, pin.commit, FILE_NAME, limit_bytes=MAX_BYTES)
        return ApiRecord.parse(content, name=f"{FILE_NAME} of {pin}")
    except EntryNotFoundError:
        return _from_sources(source, pin, labels)


def _from_sources(source: Source | Sink, pin: Pin, labels: Collection[str]) -> ApiRecord:
    paths = [entry.path.removeprefix("build/") for entry in source.files(pin.repo, pin.commit, "build")]
    there = sorted({path.partition("/")[0] for path in paths if path.endswith("/metadata.json")})
    if not there:
        raise PublishRefusedError(f"{pin} holds no build, so it can't be told what it offers")
    label = next((name for name in there if name in labels), there[0])
    inside = [path.partition("/")[2] for path in paths if path.startswith(f"{label}/")]

    def read(path: str, limit_bytes: int) -> bytes:
        return source.read(pin.repo, pin.commit, f"build/{label}/{path}", limit_bytes=limit_bytes)

    sources = {path: read(path, _MAX_SOURCE_BYTES) for path in inside if path.endswith(".py") and covers(path)}
    metadata = Metadata.parse(read("metadata.json", MAX_METADATA_BYTES), name=f"metadata.json of {pin}")
    return read_api(sources, name=metadata.name, version=metadata.version)


def check_interface(folder: Path, old: ApiRecord) -> Iterator[Finding]:
    """Changes of what a build offers that break callers of its version.

    Args:
        folder: The build.
        old: What the version offers.
    """
    try:
        new = record_api(folder)
    except InvalidDocumentError as error:
        yield Finding(Rule.INTERFACE, error.document, error.location, error.problem, "write __all__ as a list of texts")
        return
    for item in breaches(old, new):
        yield Finding(Rule.INTERFACE, "__init__.py", item.subject, item.problem, item.fix)
