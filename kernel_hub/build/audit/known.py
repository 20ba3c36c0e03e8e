"""Finding out what others offer to a build: Python's limited API, the C functions of the torch that is installed here."""

from __future__ import annotations

from packaging.version import Version

from kernel_hub.build.audit.native import Knowledge
from kernel_hub.build.audit.shims import shims_in
from kernel_hub.build.machine import TorchSdk
from kernel_hub.errors import ToolchainError


def find_knowledge(torch: TorchSdk | None) -> Knowledge:
    """What is known here.

    Args:
        torch: The torch whose headers are read; None if there is none, and then its functions are not checked.

    Raises:
        ToolchainError: If abi3info is not installed.
    """
    return Knowledge(shims_in(torch.includes[0]) if torch else None, _limited_api())


def _limited_api() -> dict[str, Version]:
    try:
        from abi3info import DATAS, FUNCTIONS
    except ImportError as error:
        raise ToolchainError("checking a build needs abi3info", hint='pip install "kernel-hub[build]"') from error
    return {
        symbol.name: Version(f"{item.added.major}.{item.added.minor}")
        for table in (FUNCTIONS, DATAS)
        for symbol, item in table.items()
    }
