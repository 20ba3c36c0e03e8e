"""Kernels that moved: following `kernel-status.toml` from repository to repository.

A destination is a repository like any other: the trust policy is asked about it before any of its files is listed or read.
At most `MAX_HOPS` moves are followed, and a circle is an error that names it. What was asked for by commit is exact, and is
not followed anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel_hub.cache import Cache
from kernel_hub.errors import RedirectError
from kernel_hub.fetch import fetch_document
from kernel_hub.model.requirement import Requirement
from kernel_hub.model.source import Pin, Source
from kernel_hub.model.status import FILE_NAME, KernelStatus, parse_status

MAX_HOPS = 3


def status_of(source: Source, cache: Cache, pin: Pin) -> KernelStatus | None:
    """What a commit says of its kernel; None if it says nothing.

    Raises:
        FetchError: If the source cannot be read.
        InvalidDocumentError: If the status is malformed.
    """
    content = fetch_document(source, cache, pin, FILE_NAME)
    return None if content is None else parse_status(content, name=f"{FILE_NAME} of {pin}")


def require_new(followed: Sequence[Requirement], destination: Requirement) -> None:
    """Refuse a circle, and a chain of moves that is too long.

    Args:
        followed: What was asked for, and every place that it led to so far.
        destination: Where the last of them points.

    Raises:
        RedirectError: Naming every repository on the way.
    """
    way = " -> ".join(str(item) for item in (*followed, destination))
    if any(destination.repo == item.repo for item in followed):
        raise RedirectError(
            f"{followed[0]} moved in a circle: {way}",
            hint="ask by commit for the build that was used, and tell its publisher",
        )
    if len(followed) > MAX_HOPS:
        raise RedirectError(
            f"{followed[0]} moved more than {MAX_HOPS} times: {way}", hint=f"ask for its last place: {destination}"
        )
