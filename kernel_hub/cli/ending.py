"""A request to end a command that has started other programs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ending_when_asked_to() -> Iterator[None]:
    """Take a request to end for an interrupt, so that compilers end too and no half build stays.

    Compilers are no children that end with this program: each has a process group of its own.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
