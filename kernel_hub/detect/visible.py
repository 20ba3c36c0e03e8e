"""The variables that hide GPUs from a process: CUDA_VISIBLE_DEVICES and its relatives, as pure functions.

Rules: CUDA Programming Guide, "CUDA Environment Variables" (a list of indices or of UUIDs, which may be abbreviated; an
invalid index ends the list), and AMD's "GPU isolation techniques", which follow the same form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from kernel_hub.model.pattern import Pattern
from kernel_hub.model.value import dataclass

_INDEX = Pattern(r"[0-9]{1,6}")
_NEGATIVE = Pattern(r"-[0-9]+")
# A batch system writes this where a job got no GPU; no CUDA device has such a name, so none is visible.
_NONE_WORDS = frozenset({"", "NoDevFiles"})


@dataclass(frozen=True, slots=True)
class Unclear:
    """A list that cannot be interpreted, so that nothing is known about what it leaves visible."""

    problem: str


Choice: TypeAlias = tuple[int, ...] | Unclear


def choose(text: str, uuids: Sequence[str]) -> Choice:
    """Which devices a list leaves visible, in its order.

    Args:
        text: The variable's value.
        uuids: The UUIDs of all devices as the driver orders them; their number is the number of devices.
    """
    if text.strip() in _NONE_WORDS:
        return ()
    chosen: list[int] = []
    for entry in (part.strip() for part in text.split(",")):
        found = _locate(entry, uuids)
        if isinstance(found, Unclear):
            return found
        if found is None:
            break
        if found in chosen:
            return Unclear(f"{entry!r} names a device for the second time")
        chosen.append(found)
    return tuple(chosen)


def names_by_index(text: str) -> bool:
    """Whether a list depends on how devices are numbered."""
    return any(_INDEX.fullmatch(part.strip()) for part in text.split(","))


def _locate(entry: str, uuids: Sequence[str]) -> int | Unclear | None:
    """A device's position; None if the entry is well-formed but names no device, which ends a list."""
    if _INDEX.fullmatch(entry):
        return int(entry) if int(entry) < len(uuids) else None
    if _NEGATIVE.fullmatch(entry):
        return None
    if entry.upper().startswith("GPU-"):
        matches = [index for index, uuid in enumerate(uuids) if uuid.lower().startswith(entry.lower())]
        if len(matches) > 1:
            return Unclear(f"{entry!r} names more than one device")
        return matches[0] if matches else None
    return Unclear(f"{entry!r} is not understood")
