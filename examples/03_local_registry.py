"""Write a kernel in plain Python, publish two versions of it to a folder, and load the one that is asked for.

By itself: python examples/03_local_registry.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kernel_hub import get_kernel, has_kernel, loaded_kernels
from kernel_hub.build.pipeline import build
from kernel_hub.build.publish import publish
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry

RECIPE = """
[general]
name = "scale"
version = {version}
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch-noarch]
"""
SOURCE = """
__all__ = ["scale"]

def scale(values):
    return [{factor} * value for value in values]
"""


def write_kernel(folder: Path, version: int, factor: int) -> None:
    """The sources of a kernel: a recipe, and a Python package below `torch-ext`."""
    package = folder / "torch-ext" / "scale"
    package.mkdir(parents=True, exist_ok=True)
    (folder / "build.toml").write_text(RECIPE.format(version=version), encoding="utf-8")
    (package / "__init__.py").write_text(SOURCE.format(factor=factor), encoding="utf-8")


def main(workspace: Path) -> None:
    """Publish versions 1 and 2 of local/scale, then load them."""
    registry = DirectoryRegistry.create(workspace / "registry")
    for version, factor in ((1, 10), (2, 100)):
        write_kernel(workspace / "scale", version, factor)
        publish(build(workspace / "scale").output, registry, RepoId("local", "scale"))
    os.environ["KERNEL_HUB_REGISTRIES"] = f"local={(workspace / 'registry').as_uri()}"
    os.environ["KERNEL_HUB_HOME"] = str(workspace / "home")
    print(get_kernel("local/scale", version=1, backend="cpu").scale([1, 2]))
    print(get_kernel("local/scale", version=">=1,<3", backend="cpu").scale([1, 2]))
    print(has_kernel("local/scale", version=3).reason)
    print(*loaded_kernels(), sep="\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
