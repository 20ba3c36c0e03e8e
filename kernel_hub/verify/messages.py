"""What verification says of an artifact that it refuses: which one, what is wrong with it, and the way out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kernel_hub.errors import DigestMismatchError
from kernel_hub.model.artifact import Artifact, FromFolder, Violation
from kernel_hub.verify.artifact_tree import TreeFile


def describe(artifact: Artifact) -> str:
    """The artifact as messages name it: build and origin."""
    return f"build {artifact.label} of {artifact.origin}"


def mismatch(
    artifact: Artifact, violations: tuple[Violation, ...], files: Mapping[str, TreeFile]
) -> DigestMismatchError:
    count = "1 fault" if len(violations) == 1 else f"{len(violations)} faults"
    lines = [f"{describe(artifact)} in {artifact.root} is not what was published ({count}):"]
    lines.extend(f"  {violation}" for violation in violations)
    at_fault = tuple(files[item.path] for item in violations if item.path in files)
    return DigestMismatchError("\n".join(lines), violations=violations, hint=way_out(artifact, at_fault))


def way_out(artifact: Artifact, at_fault: Iterable[TreeFile]) -> str:
    if isinstance(artifact.origin, FromFolder):
        return "nothing was imported; build the kernel again, or restore the folder"
    # A link's bytes lie elsewhere, and a cache that finds them there would link to them again.
    elsewhere = [str(Path(file.location)) for file in at_fault if file.linked]
    also = f" and {', '.join(elsewhere)}" if elsewhere else ""
    pin = artifact.origin.pin
    return (
        f"nothing was imported; with network access, kernel-hub download {pin.repo}@{pin.ref or pin.commit} makes it anew "
        f"(or remove {artifact.root}{also}, and load the kernel again)"
    )
