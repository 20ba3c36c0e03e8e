"""Who may read a repository of a registry. Leaves out how a reader shows who they are (see `kernel_hub.server`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Visibility:
    """Who may read a repository.

    Attributes:
        private: Only those with a token may know of it.
        gated: Anybody may list it, only those with a token may read its files.
    """

    private: bool = False
    gated: bool = False
