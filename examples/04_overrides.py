"""Work on a kernel: a folder stands in for the published one, and everything says so.

By itself: python examples/04_overrides.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from kernel_hub import explain, get_kernel, get_local_kernel, loaded_kernels
from kernel_hub.build.pipeline import build

RECIPE = """
[general]
name = "scale"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
"""
SOURCE = """
__all__ = ["scale"]

def scale(x):
    return 10 * x
"""


def main(workspace: Path) -> None:
    """Build a kernel in a folder and load it under a name that nobody has published."""
    package = workspace / "torch-ext" / "scale"
    package.mkdir(parents=True)
    (workspace / "build.toml").write_text(RECIPE, encoding="utf-8")
    (package / "__init__.py").write_text(SOURCE, encoding="utf-8")
    build(workspace)

    # The program asks for acme/scale as always; the environment puts the folder in its place.
    os.environ["KERNEL_HUB_OVERRIDES"] = f"acme/scale={workspace}"
    print(explain("acme/scale", backend="cpu"))
    print(get_kernel("acme/scale", backend="cpu").scale(4))
    print(loaded_kernels()[0].overridden)

    # Without a name, a folder can be loaded as it is.
    print(get_local_kernel(workspace, backend="cpu").scale(5))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
