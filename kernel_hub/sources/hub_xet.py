"""Large files by Xet, the Hub's store of chunks, through huggingface_hub's own client of it.

A listing that names a file's Xet id offers it that way. huggingface_hub then asks the Hub for a token of the store and lets
`hf_xet` put the file together from chunks, many at a time. The bytes are judged like any others, by the caller. Whatever goes
wrong, including a store that says nothing for a while, leaves the file to be fetched over plain HTTP.

Leaves out uploads (see `kernel_hub.sources.hub_sink`). Implements the Hub's side of the protocol as huggingface_hub's public
documentation describes it; the store's side is `hf_xet`'s.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from kernel_hub.model.pattern import Pattern
from kernel_hub.model.source import FileEntry
from kernel_hub.sources.beside import begin

_LOG = logging.getLogger("kernel_hub")
_XET_ID = Pattern(r"[0-9a-f]{64}")
_LOOK_S = 0.1

XET_FROM_BYTES = 8 << 20
"""A smaller file is here before the store's token, its plan of the file, and the chunks have been asked for one by one."""


class XetGet(Protocol):
    """Brings a file from the store. Its progress may come from any thread."""

    def __call__(
        self,
        place: Path,
        *,
        xet: str,
        token_url: str,
        headers: Mapping[str, str],
        size_bytes: int,
        came: Callable[[int], None],
    ) -> None:
        """Write the file.

        Args:
            place: Where to.
            xet: Its id in the store.
            token_url: Where the Hub gives out tokens of the store.
            headers: For the Hub, with our token; the store gets them without it.
            size_bytes: Its length.
            came: Told how many bytes more are at `place`; 0 is a sign of life.
        """


def is_offered(entry: FileEntry, *, from_bytes: int = XET_FROM_BYTES) -> bool:
    """Whether a file had better be fetched from the store."""
    return entry.size_bytes >= from_bytes and entry.xet is not None and _XET_ID.fullmatch(entry.xet) is not None


def is_usable() -> bool:
    """Whether huggingface_hub would use the store: its client is installed, and nobody turned it off."""
    from huggingface_hub import constants

    return not constants.HF_HUB_DISABLE_XET and importlib.util.find_spec("hf_xet") is not None


def get_from_store(
    place: Path,
    *,
    xet: str,
    token_url: str,
    headers: Mapping[str, str],
    size_bytes: int,
    came: Callable[[int], None],
) -> None:
    """As `XetGet`, by huggingface_hub."""
    from huggingface_hub.file_download import xet_get
    from huggingface_hub.utils._xet import XetFileData

    told = came

    class Bar:
        """What huggingface_hub takes for its progress bar."""

        def __init__(self, **options: Any) -> None:
            del options

        def update(self, length_bytes: float) -> None:
            told(int(length_bytes))

        def update_transfer(self, length_bytes: float) -> None:
            del length_bytes
            told(0)

        def set_postfix_str(self, text: str, *, refresh: bool = True) -> None:
            del text, refresh

        set_transfer_postfix_str = set_postfix_str

        def close(self) -> None:
            pass

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *failure: object) -> None:
            pass

    drawn: Any = Bar
    # Some releases of huggingface_hub take the token out of what the store gets only if its name is written small.
    sent = {name.lower(): value for name, value in headers.items()}
    xet_get(
        incomplete_path=place,
        xet_file_data=XetFileData(xet, token_url),
        headers=sent,
        expected_size=size_bytes,
        displayed_filename=place.name,
        tqdm_class=drawn,
    )


class _Pulse:
    """What another thread reports of a download."""

    def __init__(self) -> None:
        self.came_bytes = 0
        self.beats = 0
        self._guard = threading.Lock()

    def came(self, length_bytes: int) -> None:
        with self._guard:
            self.came_bytes += length_bytes
            self.beats += 1


def download(
    get: XetGet,
    place: Path,
    entry: FileEntry,
    *,
    token_url: str,
    headers: Mapping[str, str],
    told: Callable[[int], None],
    stall_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Write a file from the store; False if it cannot be had there now, with nothing counted as here.

    Args:
        get: Does it.
        place: Where to. If this returns False, an abandoned download may still write to it.
        entry: The file.
        token_url, headers: See `XetGet`.
        told: Told about every piece, in the calling thread; what it raises ends the waiting.
        stall_s: How long nothing may come.
        clock: The time; replaced in tests.
    """
    assert entry.xet is not None, "only files with an id are offered"
    pulse, id = _Pulse(), entry.xet

    def outcome() -> BaseException | None:
        try:
            get(place, xet=id, token_url=token_url, headers=headers, size_bytes=entry.size_bytes, came=pulse.came)
        except BaseException as error:  # noqa: BLE001 - whatever a foreign client raises, the file can be had without it
            return error
        return None

    under_way = begin(outcome)
    counted_bytes, beats, alive_s = 0, 0, clock()
    reason = ""
    while not reason:
        try:
            failure = under_way(_LOOK_S)
        except TimeoutError:
            if pulse.beats != beats:
                beats, alive_s = pulse.beats, clock()
            elif clock() - alive_s > stall_s:
                reason = f"nothing came for {stall_s:g} s"
            # Told even if nothing came, because that also shows others that somebody is at work.
            more = min(pulse.came_bytes, entry.size_bytes) - counted_bytes
            counted_bytes += more
            told(more)
            continue
        if failure is None:
            told(entry.size_bytes - counted_bytes)
            return True
        reason = f"{type(failure).__name__}: {failure}"
    told(-counted_bytes)
    _LOG.info("%s cannot be had by Xet (%s); it is fetched over plain HTTP", entry.path, reason)
    return False
