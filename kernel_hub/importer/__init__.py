"""Stage 5, import: a verified artifact becomes a loaded kernel, once, whole or not at all.

`claims` decides which artifact gets which module name and keeps the records, `finder` serves the files to Python's import
system, `dependencies` looks for what a build needs beside itself, `kernel_dependencies` offers it other kernels, and
`faults` says why an import failed.
"""

from __future__ import annotations

from kernel_hub.importer.claims import FORMAT_OF_KERNELS, Importer, import_artifact, loaded_kernels
from kernel_hub.importer.dependencies import check_dependencies, missing_dependencies
from kernel_hub.importer.kernel_dependencies import get_kernel_dep, offering
from kernel_hub.model.loaded import LoadedKernel

__all__ = [
    "FORMAT_OF_KERNELS",
    "Importer",
    "LoadedKernel",
    "check_dependencies",
    "get_kernel_dep",
    "import_artifact",
    "loaded_kernels",
    "missing_dependencies",
    "offering",
]
