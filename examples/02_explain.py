"""Ask which build another machine would take, and why not the others: no GPU is needed for that.

By itself: python examples/02_explain.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kernel_hub import Host, explain
from kernel_hub.build.pipeline import build
from kernel_hub.build.publish import publish
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry

KERNEL = Path(__file__).parents[1] / "registry" / "flash-attn"

# `kernel-hub host --json` writes such a description of the machine that it runs on.
LINUX = {"cpu": "x86_64", "os": "linux", "cxx11_abi": True, "python": "3.12.3", "free_threaded": False}
MACHINES = {
    "H100": LINUX
    | {
        "torch": "2.13.0+cu130",
        "backend": "cuda",
        "backend_version": "13.0",
        "devices": [{"index": 0, "name": "NVIDIA H100 80GB HBM3", "arch": "9.0"}],
    },
    "MI300X": LINUX
    | {
        "torch": "2.13.0+rocm7.1",
        "backend": "rocm",
        "backend_version": "7.1",
        "devices": [{"index": 0, "name": "AMD Instinct MI300X", "arch": "gfx942"}],
    },
    "no GPU": LINUX | {"torch": "2.13.0+cpu", "backend": "cpu", "devices": []},
}


def main(workspace: Path) -> None:
    """Publish the builds that need no compiler, then ask for each machine."""
    report = build(KERNEL, output=workspace / "build", backends=["cuda", "rocm"])
    registry = workspace / "registry"
    publish(report.output, DirectoryRegistry.create(registry), RepoId("local", "flash-attn"), allow_dirty=True)
    os.environ["KERNEL_HUB_REGISTRIES"] = f"local={registry.as_uri()}"
    os.environ["KERNEL_HUB_HOME"] = str(workspace / "home")
    for name, facts in MACHINES.items():
        print(f"{name}:\n{explain('local/flash-attn', host=Host.from_json(facts, name=name))}\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
