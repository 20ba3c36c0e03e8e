"""What a version's branch promises its callers, kept and written down when builds are published to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kernel_hub.build.against import check_interface, published_api
from kernel_hub.build.audit.check import require_passed
from kernel_hub.build.audit.finding import PUBLISHES_ANYWAY
from kernel_hub.build.interface import FILE_NAME, ApiRecord
from kernel_hub.build.interface_reader import record_api
from kernel_hub.build.offered import api_to_publish
from kernel_hub.build.outgoing import Outgoing, OutgoingFile
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.source import FileEntry, Pin, Sink


def keep_promises(outgoing: Outgoing, sink: Sink, pin: Pin | None, there: Iterable[FileEntry]) -> tuple[Outgoing, str]:
    """Hold builds to what the branch offers already, and add the record of what it offers with them.

    Args:
        outgoing: The builds.
        sink: Where they go.
        pin: The branch's head; None if it is new.
        there: What the branch holds.

    Returns:
        The builds with the record, and what could not be told; "" if all could.

    Raises:
        CheckFailedError: If a build drops or changes what callers of this version may use.
        FetchError: If the branch can't be read.
    """
    paths = [entry.path for entry in there]
    labels = {path.split("/")[1] for path in paths if path.startswith("build/") and path.endswith("/metadata.json")}
    try:
        old = published_api(sink, pin, outgoing_labels(outgoing)) if pin and (labels or FILE_NAME in paths) else None
    except InvalidDocumentError as error:
        return outgoing, f"the builds were not compared with those that are there: {error.message}"
    if old is not None:
        for build in outgoing.builds:
            require_passed(build.label, tuple(check_interface(build.folder, old)), tolerated=PUBLISHES_ANYWAY)
    others_stay = bool(labels - outgoing_labels(outgoing))
    if others_stay and FILE_NAME not in paths:
        # What builds of another publisher's tools all offer is not known, so it is not written down.
        return outgoing, ""
    try:
        records = [record_api(build.folder) for build in outgoing.builds]
    except InvalidDocumentError as error:
        return outgoing, f"no record of the functions is published: {error.message}"
    record: ApiRecord = api_to_publish(records, old, others_stay=others_stay)
    return replace(outgoing, api=OutgoingFile.of_bytes(FILE_NAME, record.format())), ""


def outgoing_labels(outgoing: Outgoing) -> set[str]:
    """The labels of the builds that are published."""
    return {build.label for build in outgoing.builds}
