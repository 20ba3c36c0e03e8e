"""Stage 5, import: a verified artifact becomes a loaded kernel, once, whole or not at all.

`claims` decides which artifact gets which module name and keeps the records, `finder` serves the files to Python's import
system, `dependencies` looks for what a build needs beside itself, and `faults` says why an import failed.
"""

from __future__ import annotations

from kernel_hub.importer.claims import FORMAT_OF_KERNELS, Importer, import_artifact, loaded_kernels
from kernel_hub.importer.dependencies import check_dependencies, missing_dependencies
from kernel_hub.model.loaded import LoadedKernel

__all__ = [
    "FORMAT_OF_KERNELS",
    "Importer",
    "LoadedKernel",
    "check_dependencies",
    "import_artifact",
    "loaded_kernels",
    "missing_dependencies",
]
