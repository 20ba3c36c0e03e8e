"""Builds that are split by GPU architecture: which file serves which devices.

Our own optional key of `metadata.json`, which other readers ignore; they take every file:

    {"kernel-hub": {"file-archs": {"_attention_sm90.abi3.so": ["9.0a"], "_attention_sm80.abi3.so": ["8.0", "8.6"]}}}

Only files that the manifest covers may be named, because a file that is left out is vouched for by its digest alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kernel_hub.model.capability import Capability, Fit, fit, parse_arch
from kernel_hub.model.digest import Manifest
from kernel_hub.model.document import JsonObject

OWN_KEY = "kernel-hub"
FILE_ARCHS = "file-archs"


def read_file_archs(top: JsonObject, manifest: Manifest | None) -> dict[str, tuple[str, ...]]:
    """Read the key from a metadata document; empty if it is not there.

    Raises:
        InvalidDocumentError: If a value is of another form, or a file is named that the manifest does not cover.
    """
    own = top.optional_object(OWN_KEY)
    table = own.optional_object(FILE_ARCHS) if own is not None else None
    if table is None:
        return {}
    found = {}
    for path in table.names():
        if manifest is None or path not in manifest.files:
            raise table.fault(path, "is not a file that the digest covers")
        found[path] = table.texts(path)
        if not found[path]:
            raise table.fault(path, "names no architecture")
    return found


def file_archs_to_json(file_archs: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
    """The inverse of `read_file_archs`: its part of the value of the key."""
    return {FILE_ARCHS: {path: list(archs) for path, archs in sorted(file_archs.items())}}


def useless_files(file_archs: Mapping[str, tuple[str, ...]], devices: Iterable[Capability]) -> frozenset[str]:
    """The files that none of the devices can run, so that nobody here needs them.

    Without a device nothing is useless: what the machine needs is not known.
    """
    known = tuple(devices)
    if not known:
        return frozenset()
    parsed = {path: tuple(parse_arch(text) for text in archs) for path, archs in file_archs.items()}
    return frozenset(path for path, archs in parsed.items() if all(fit(archs, device) is Fit.NONE for device in known))
