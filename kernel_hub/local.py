"""Builds in a folder of the caller's: a local path or an override instead of a source.

The folder may be a project (builds below `build/`), a folder of builds, or one build (it holds `metadata.json`).
"""

from __future__ import annotations

from pathlib import Path

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.selection import Variant
from kernel_hub.model.value import dataclass
from kernel_hub.model.variant import UnknownLabel
from kernel_hub.select import BUILD_FOLDER, METADATA_FILE, variants_of_names


@dataclass(frozen=True, slots=True)
class LocalBuilds:
    """Builds found in a folder.

    Attributes:
        folders: Each build's folder by its name.
        single: Whether the caller named one build itself, so that its folder's name need not be a label.
    """

    folders: dict[str, Path]
    single: bool

    def variants(self) -> tuple[Variant, ...]:
        """The builds as selection takes them."""
        return variants_of_names(self.folders)


def find_builds(folder: Path, *, named_by: str) -> LocalBuilds:
    """Find the builds of a folder: `<folder>`, then `<folder>/build`, else the folder itself if it is a build.

    Args:
        folder: An absolute path.
        named_by: What named it (a variable and entry, or "local path"), for errors.

    Raises:
        InvalidDocumentError: If there is no such folder, or nothing in it is a build.
    """
    try:
        is_there, is_folder = folder.exists(), folder.is_dir()
    except (OSError, ValueError) as error:
        raise InvalidDocumentError(named_by, f"the folder {str(folder)[:200]} cannot be looked at: {error}") from None
    if not is_folder:
        problem = "is not a folder" if is_there else "does not exist"
        raise InvalidDocumentError(
            named_by, f"the folder {folder} {problem}", hint="correct the path or remove the entry"
        )
    for candidate in _places(folder):
        found = _builds_in(candidate)
        if any(not isinstance(variant.label, UnknownLabel) for variant in variants_of_names(found)):
            return LocalBuilds(found, single=False)
    if (folder / METADATA_FILE).is_file():
        return LocalBuilds({folder.name: folder}, single=True)
    raise InvalidDocumentError(
        named_by,
        f"the folder {folder} holds no build: neither it nor its '{BUILD_FOLDER}' has a folder named like a build, "
        f"and it has no {METADATA_FILE}",
        hint="build the kernel first: kernel-hub build",
    )


def is_project(folder: Path) -> bool:
    """Whether a folder holds the sources of a kernel."""
    return any(folder.glob("build*.toml"))


def _places(folder: Path) -> tuple[Path, ...]:
    # The sources of a kernel lie in `torch-ext`, which reads as the label of a build without compiled code.
    return (folder / BUILD_FOLDER,) if is_project(folder) else (folder, folder / BUILD_FOLDER)


def _builds_in(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    return {entry.name: entry for entry in sorted(folder.iterdir()) if entry.is_dir()}
