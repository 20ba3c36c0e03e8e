"""A kernel that was imported: the record that goes with its module."""

from __future__ import annotations

from dataclasses import field
from types import ModuleType

from kernel_hub.model.artifact import LOCAL_PATH, FromFolder, Origin
from kernel_hub.model.digest import Digest
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.value import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class LoadedKernel:
    """A kernel that was imported, and everything that is known of it.

    Attributes:
        module: The kernel's module.
        name: The repository's name; for a folder, the kernel's.
        origin: Where it came from.
        label: Its build.
        version: Its major version, from metadata.
        metadata: What the build says of itself.
        tree_digest: Over all of its files that can be imported.
        notes: What a reader should know although it was loaded.
    """

    module: ModuleType
    name: str
    origin: Origin
    label: str
    version: int
    metadata: Metadata = field(repr=False)
    tree_digest: Digest
    notes: tuple[str, ...] = ()

    @property
    def overridden(self) -> str | None:
        """The override that put a folder in the repository's place, or None."""
        if isinstance(self.origin, FromFolder) and self.origin.reason != LOCAL_PATH:
            return self.origin.reason
        return None

    def __str__(self) -> str:
        return f"{self.name} v{self.version} ({self.label}) from {self.origin}"
