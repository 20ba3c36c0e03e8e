"""Where shared libraries usually lie on Linux, for probes that look for one without loading it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernel_hub.detect.probes import Probes


def library_folders(probes: Probes) -> Iterator[Path]:
    """Folders in the dynamic linker's order; none on other systems, and some of these may not exist."""
    if probes.platform.system != "linux":
        return
    for entry in probes.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if entry.startswith("/"):
            yield probes.path(entry)
    for absolute in (
        f"/usr/lib/{probes.platform.machine}-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/cuda/lib64",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
    ):
        yield probes.path(absolute)
