"""Calls that nobody has to wait for: on threads that do not keep the process alive, and to sources that can be quick."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from kernel_hub.model.source import Source

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


@runtime_checkable
class Hurried(Protocol):
    """A source that can be asked to be quick."""

    def hurried(self, patience_s: float) -> Source:
        """The same source with one short try."""


class Begun(Protocol[_T_co]):
    """A call that is under way; calling it waits for the result."""

    def __call__(self, patience_s: float | None = None, /) -> _T_co:
        """The result, or what the call raised.

        Args:
            patience_s: How long to wait; None for as long as it takes.

        Raises:
            TimeoutError: If the call is not over by then. It goes on, and nobody will hear of it.
        """


def begin(call: Callable[[], _T]) -> Begun[_T]:
    """Start a call. Name look-ups, for one, have no limit of their own; here the caller sets one."""
    results: list[_T] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - carried over to the thread that waits
            errors.append(error)
        finally:
            done.set()

    def result(patience_s: float | None = None, /) -> _T:
        if not done.wait(patience_s):
            raise TimeoutError
        if errors:
            raise errors[0]
        return results[0]

    threading.Thread(target=run, name="kernel_hub-beside", daemon=True).start()
    return result
