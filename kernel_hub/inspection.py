"""What a kernel's builds say of themselves, and whether they fit a machine: the answer of `kernel-hub info`.

Every build of the commit that loading would take is described, whether it fits a machine or not. Only metadata is read;
a build whose metadata is missing or malformed is described by its fault. Leaves out which build is chosen (see
`kernel_hub.planner`) and whether the files are what the metadata says (see `kernel_hub.verify`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.fetch import read_metadata
from kernel_hub.model.host import Host
from kernel_hub.model.metadata import MAX_BYTES, Metadata, SourceState
from kernel_hub.model.requirement import Requirement
from kernel_hub.model.selection import Variant, Verdict
from kernel_hub.model.source import Pin
from kernel_hub.plan import Plan, Request
from kernel_hub.planner import Planner
from kernel_hub.refusal import nearest
from kernel_hub.select import BUILD_FOLDER, METADATA_FILE
from kernel_hub.settings import Settings


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """One build.

    Attributes:
        label: The name of its folder.
        file_count: How many files it has.
        size_bytes: Their length together.
        metadata: What it says of itself; None if that cannot be read.
        fault: Why the metadata cannot be read; empty if it can.
        is_chosen: Whether it is the one that would be loaded on the machine that was asked about.
        obstacles: Everything that keeps it from fitting there, in one line; empty if it fits.
    """

    label: str
    file_count: int
    size_bytes: int
    metadata: Metadata | None
    fault: str
    is_chosen: bool = False
    obstacles: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON values; metadata has the keys of its file, with the digest reduced to its algorithm and file count."""
        document = None
        if self.metadata is not None:
            document = json.loads(self.metadata.format())
            if self.metadata.manifest is not None:
                document["digest"] = {
                    "algorithm": self.metadata.manifest.algorithm.value,
                    "files": len(self.metadata.manifest.files),
                }
        return {
            "label": self.label,
            "files": self.file_count,
            "size_bytes": self.size_bytes,
            "metadata": document,
            "fault": self.fault or None,
            "fits": not self.obstacles,
            "chosen": self.is_chosen,
            "obstacles": self.obstacles or None,
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """What there is to say, as names and texts."""
        yield "fits", "no: " + self.obstacles if self.obstacles else "yes, and is loaded" if self.is_chosen else "yes"
        yield "size", f"{self.size_bytes:,} bytes in {self.file_count} files"
        if self.metadata is None:
            yield "fault", self.fault
            return
        metadata = self.metadata
        yield "name", f"{metadata.name} version {metadata.version}, licence {metadata.license}"
        archs = f" ({', '.join(metadata.archs)})" if metadata.archs else ""
        yield "backend", f"{metadata.backend.value}{archs}"
        if metadata.python_depends:
            yield "python", ", ".join(metadata.python_depends)
        if metadata.kernel_depends:
            yield "kernels", ", ".join(str(dependency.repo) for dependency in metadata.kernel_depends)
        if metadata.kernels_minver is not None:
            yield "client", f"kernels {metadata.kernels_minver} or later"
        for name, url in (("upstream", metadata.upstream), ("source", metadata.source)):
            if url is not None:
                yield name, url
        manifest = metadata.manifest
        yield "digest", f"{manifest.algorithm.value} of {len(manifest.files)} files" if manifest else "none"
        provenance = metadata.provenance
        if provenance is None:
            yield "built", "no provenance"
            return
        yield "built", f"by kernel-builder {provenance.builder_version}{_state_text(provenance.builder)}"
        if provenance.kernel is not None:
            yield "from", f"the kernel's sources{_state_text(provenance.kernel)}"


@dataclass(frozen=True, slots=True)
class Inspection:
    """A kernel's builds at one commit.

    Attributes:
        requirement: What was asked for.
        source: The source's name, or the folder.
        pin: The commit; None for a folder.
        builds: Every build, by label.
    """

    requirement: Requirement
    source: str
    pin: Pin | None
    builds: tuple[BuildRecord, ...]

    def to_json(self) -> dict[str, Any]:
        """The whole answer as JSON values."""
        return {
            "kernel": str(self.requirement),
            "source": self.source,
            "commit": self.pin.commit if self.pin else None,
            "version": self.pin.version if self.pin else None,
            "builds": [build.to_json() for build in self.builds],
        }

    def __str__(self) -> str:
        lines = [f"{self.requirement}: {self.pin or 'local folder'} at {self.source}"]
        for build in self.builds:
            lines.append(f"  {build.label}")
            lines.extend(f"    {name:<8}  {text}" for name, text in build.lines())
        if not self.builds:
            lines.append("  it has no builds at all")
        return "\n".join(lines)


def inspect(settings: Settings, host: Host, request: Request) -> Inspection:
    """Describe the builds of the commit, or the folder, that loading would take on a host.

    Raises:
        ResolutionError: If the repository, version or revision is not there.
        FetchError: If the source cannot be read.
    """
    planner = Planner(settings, host)
    plan = planner.plan(request)
    verdicts: tuple[Verdict, ...] = (*plan.selection.accepted, *plan.selection.rejected)
    variants = sorted((verdict.variant for verdict in verdicts), key=lambda variant: variant.name)
    contents: Mapping[str, bytes] = {}
    if plan.pin is not None:
        connection = planner.connect(request)
        contents = read_metadata(connection.source, connection.cache, plan.pin, tuple(item.name for item in variants))
    builds = tuple(_record(plan, variant, contents) for variant in variants)
    return Inspection(request.requirement, plan.source, plan.pin, builds)


def _record(plan: Plan, variant: Variant, contents: Mapping[str, bytes]) -> BuildRecord:
    near = {entry.rejected.variant.name: entry for entry in nearest(plan.selection)}.get(variant.name)
    file_count, size_bytes, metadata, fault = (
        _in_folder(plan.folders[variant.name]) if plan.pin is None else _in_commit(variant, contents, str(plan.pin))
    )
    return BuildRecord(
        variant.name,
        file_count,
        size_bytes,
        metadata,
        fault,
        is_chosen=plan.chosen is not None and plan.chosen.variant == variant,
        obstacles="" if near is None else near.text.removeprefix(f"{variant.name}: "),
    )


def _in_commit(
    variant: Variant, contents: Mapping[str, bytes], described: str
) -> tuple[int, int, Metadata | None, str]:
    path = f"{BUILD_FOLDER}/{variant.name}/{METADATA_FILE}"
    content = contents.get(variant.name)
    if content is None and any(entry.path == path for entry in variant.files):
        fault = f"{path} of {described} is not in the cache, and the network may not be used"
        return len(variant.files), variant.size_bytes, None, fault
    return len(variant.files), variant.size_bytes, *_parse(content, f"{path} of {described}")


def _in_folder(folder: Path) -> tuple[int, int, Metadata | None, str]:
    sizes = [path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()]
    return len(sizes), sum(sizes), *_parse(_content(folder / METADATA_FILE), str(folder / METADATA_FILE))


def _content(path: Path) -> bytes | None:
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _parse(content: bytes | None, described: str) -> tuple[Metadata | None, str]:
    if content is None:
        return None, f"{described} does not exist"
    try:
        return Metadata.parse(content, name=described), ""
    except InvalidDocumentError as error:
        return None, error.message


def _state_text(state: SourceState | None) -> str:
    if state is None:
        return ""
    return f" at commit {state.commit[:12]}{', with changes' if state.dirty else ''}"
