"""What compiled a build, as metadata says it: compilers with versions and digests, the toolkit, the flags. Pure.

It goes under our own optional key of `metadata.json`, which other readers ignore:

    {"kernel-hub": {"built-with": {"compilers": [{"name": "g++", "version": "...", "programs": {"cc1plus": "sha256:..."}}],
                                   "against": "torch 2.13", "flags": ["-std=c++20", "-O3", ...], "components": {...}}}}

Nothing in it names a folder, a time or a user, so that one machine writes the same for one kernel wherever it is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_hub.build.command import dialect_flags, host_flags
from kernel_hub.build.machine import TorchSdk
from kernel_hub.build.matrix import NativeJob
from kernel_hub.build.recipe import Component, NoarchFramework
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.digest import Digest

_DEVICE_FLAGS = {BackendKind.CUDA: "cuda-flags", BackendKind.ROCM: "hip-flags", BackendKind.XPU: "sycl-flags"}


@dataclass(frozen=True, slots=True)
class Tool:
    """A compiler.

    Attributes:
        name: What it is called, without a folder.
        version: Its version as it prints it.
        programs: The programs that it consists of, each with the digest of its file.
    """

    name: str
    version: str
    programs: tuple[tuple[str, Digest], ...]

    def to_json(self) -> dict[str, Any]:
        """As metadata writes it."""
        return {
            "name": self.name,
            "version": self.version,
            "programs": {name: str(digest) for name, digest in self.programs},
        }


def built_with(job: NativeJob, tools: Sequence[Tool], module_id: str, headers: Mapping[str, Digest]) -> dict[str, Any]:
    """The value of the key for a build.

    Args:
        job: What was built.
        tools: The compilers that built it.
        module_id: The name of its native module.
        headers: The digests of the libraries of headers that it was compiled with, by name.
    """
    sdk = "torch" if isinstance(job.sdk, TorchSdk) else "tvm-ffi"
    document: dict[str, Any] = {"compilers": [tool.to_json() for tool in tools], "against": f"{sdk} {job.sdk.version}"}
    if job.toolkit is not None:
        document["toolkit"] = f"CUDA {job.toolkit.version}" + (f" {job.remark}" if job.remark else "")
    if job.rocm is not None:
        document["toolkit"] = f"ROCm {job.rocm.version}"
    if job.headers:
        document["headers"] = [
            {"name": library.name, "version": library.version, "files": str(headers[library.name])}
            for library in job.headers
        ]
    document["flags"] = [*dialect_flags(job, module_id), *host_flags()]
    framework = job.recipe.framework
    components = {component.name: _own(component, job) for component in job.components}
    if not isinstance(framework, NoarchFramework) and framework.cxx_flags:
        document["binding-flags"] = list(framework.cxx_flags)
    document["components"] = components
    return document


def _own(component: Component, job: NativeJob) -> dict[str, Any]:
    """What is said for one component alone."""
    said = {
        "cxx-flags": component.cxx_flags,
        _DEVICE_FLAGS.get(component.backend, "device-flags"): component.device_flags,
        "archs": job.archs_of(component),
    }
    return {key: list(value) for key, value in said.items() if value}
