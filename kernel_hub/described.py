"""Reading what builds say of themselves: parsed metadata by build, beside the errors of those that cannot be parsed.

One build with broken metadata must not hide the others, so a fault is a value here; it is raised if that build is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kernel_hub.errors import KernelHubError
from kernel_hub.fetch import read_metadata
from kernel_hub.local import LocalBuilds
from kernel_hub.model.metadata import MAX_BYTES, Metadata
from kernel_hub.model.selection import Accepted
from kernel_hub.model.source import Pin
from kernel_hub.select import BUILD_FOLDER, METADATA_FILE
from kernel_hub.sources.configured import Connection


def read_described(
    connection: Connection, pin: Pin, names: tuple[str, ...], *, ahead: Accepted | None = None
) -> tuple[Mapping[str, Metadata], Mapping[str, KernelHubError]]:
    """Metadata of builds of a commit, and what cannot be read of it; arguments as for `kernel_hub.fetch.read_metadata`."""
    contents = read_metadata(connection.source, connection.cache, pin, names, ahead=ahead)
    return _parse_all(
        {name: (content, f"{BUILD_FOLDER}/{name}/{METADATA_FILE} of {pin}") for name, content in contents.items()}
    )


def read_folders(
    builds: LocalBuilds, names: Iterable[str]
) -> tuple[Mapping[str, Metadata], Mapping[str, KernelHubError]]:
    """Metadata of builds in folders, and what cannot be read of it; a build without metadata is in neither."""
    contents = {}
    for name in names:
        path = builds.folders[name] / METADATA_FILE
        if path.is_file():
            with path.open("rb") as stream:
                contents[name] = (stream.read(MAX_BYTES + 1), str(path))
    return _parse_all(contents)


def _parse_all(
    contents: Mapping[str, tuple[bytes, str]],
) -> tuple[Mapping[str, Metadata], Mapping[str, KernelHubError]]:
    parsed: dict[str, Metadata] = {}
    faults: dict[str, KernelHubError] = {}
    for name, (content, described) in contents.items():
        try:
            parsed[name] = Metadata.parse(content, name=described)
        except KernelHubError as error:
            faults[name] = error
    return parsed, faults
