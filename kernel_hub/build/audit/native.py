"""The rules for native modules. Pure: a library's dynamic facts in, findings out.

Repository format, section (e), "ABI rules". Undefined symbols are all accounted for: a link lets any of them through, and
loading fails on the first that nobody offers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from packaging.version import Version

from kernel_hub.build.audit.elf import SharedLibrary, Symbol
from kernel_hub.build.audit.finding import Finding, Rule
from kernel_hub.build.audit.floor import FLOOR, is_within_floor
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.framework import Torch, TorchStableAbi, TvmFfi
from kernel_hub.model.variant import ArchLabel

_MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
_LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
# What PEP 600's platform tag promises and builds have a use for.
_SYSTEM = frozenset(
    {
        "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1", "libstdc++.so.6",
    }
)  # fmt: skip
_TORCH = frozenset({"libtorch.so", "libtorch_cpu.so", "libc10.so"})
_TORCH_OF = {
    BackendKind.CUDA: frozenset({"libtorch_cuda.so", "libc10_cuda.so"}),
    BackendKind.ROCM: frozenset({"libtorch_hip.so", "libc10_hip.so"}),
    BackendKind.XPU: frozenset({"libtorch_xpu.so", "libc10_xpu.so"}),
}
# Libraries that come with the toolkit's runtime and that a torch for this backend has loaded or brings along.
_RUNTIME_OF = {
    BackendKind.CUDA: re.compile(
        r"lib(cuda|cudart|cublas|cublasLt|cusparse|cusolver|cufft|curand|nvrtc|nvJitLink)\.so\.\d+"
    ),
    BackendKind.ROCM: re.compile(r"lib(amdhip64|hiprtc|rocblas|hipblas|hipblaslt|hipsparse|hipfft|hiprand)\.so\.\d+"),
    BackendKind.XPU: re.compile(r"lib(sycl|ze_loader|OpenCL|mkl_\w+)\.so(\.\d+)?"),
}
# Every link refers to these; the first four may stay undefined.
_LINKER_NAMES = frozenset(
    {"_ITM_registerTMCloneTable", "_ITM_deregisterTMCloneTable", "__gmon_start__", "__cxa_finalize", "__tls_get_addr"}
)
_PYTHON = re.compile(r"_?Py[A-Z_]\w*")
_SHIM = re.compile(r"(aoti_)?torch_\w+")
_TORCH_CXX = re.compile(r"_Z(?:T[VTISCHW])?(?:N[KRO]*)?(?:2at|3c10|5torch|6caffe2)")
_TVM = re.compile(r"TVMFFI\w+")


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known about what others offer; None for what this machine can't tell.

    Attributes:
        shims: Torch's C functions with the release that each needs.
        python_abi: The limited API's symbols with the Python release that each needs.
    """

    shims: Mapping[str, Version] | None = None
    python_abi: Mapping[str, Version] | None = None


PYTHON_FLOOR = Version("3.9")
_Make: TypeAlias = Callable[[Rule, str, str, str], Finding]


def check_native(
    library: SharedLibrary, path: str, label: ArchLabel, module: str | None, known: Knowledge
) -> Iterator[Finding]:
    """Every breach of a rule by a native module.

    Args:
        library: Its dynamic facts.
        path: Where it lies in the build.
        label: The build's label.
        module: The name it is imported by; None for a library that others load.
        known: What others offer.
    """

    def found(rule: Rule, subject: str, problem: str, fix: str) -> Finding:
        return Finding(rule, path, subject, problem, fix)

    wanted = _MACHINES.get(label.cpu)
    if wanted is not None and library.machine != wanted:
        yield found(
            Rule.PROCESSOR, library.machine, f"is not {wanted}, which {label.cpu} in the label stands for",
            "build it for that processor, or name the build by its own",
        )  # fmt: skip
    yield from _symbols(library, label, known, found)
    for name in library.needed:
        if not _may_need(name, label):
            yield found(
                Rule.NEEDED, name, "is not a library that every system with this build's label has",
                "link it statically, or do without it",
            )  # fmt: skip
    for folder in library.run_paths:
        yield found(
            Rule.RUN_PATH, folder, "is searched for libraries, although it is a folder of the build machine",
            "link without -rpath, or remove it with patchelf --remove-rpath",
        )  # fmt: skip
    if library.executable_stack:
        yield found(
            Rule.STACK, "", "asks for an executable stack, which hardened systems refuse",
            "link with -z noexecstack, and end assembler sources with a .note.GNU-stack section",
        )  # fmt: skip
    for symbol in library.defined:
        if symbol.unique:
            yield found(
                Rule.UNIQUE_SYMBOL, symbol.name, "is one for the whole process, so two versions of a kernel would share it",
                "compile with -fno-gnu-unique",
            )  # fmt: skip
    entry = f"PyInit_{module}"
    imported = module is not None and not isinstance(label.framework, TvmFfi)
    if imported and all(symbol.name != entry for symbol in library.defined):
        yield found(
            Rule.ENTRY, entry, "is not offered, so Python can't import the module",
            "end the binding with REGISTER_EXTENSION(TORCH_EXTENSION_NAME)",
        )  # fmt: skip


def _symbols(library: SharedLibrary, label: ArchLabel, known: Knowledge, found: _Make) -> Iterator[Finding]:
    for symbol in library.undefined:
        name = symbol.name
        if symbol.version:
            if not is_within_floor(symbol.version):
                limits = ", ".join(f"{key} {version}" for key, version in FLOOR.items())
                yield found(
                    Rule.SYMBOL_VERSION, str(symbol), f"is newer than what builds may need ({limits})",
                    "build it with kernel-hub build, which links for old systems, and avoid what brings it in",
                )  # fmt: skip
        elif _PYTHON.fullmatch(name):
            problem = _python_problem(name, known)
            if problem:
                yield found(Rule.PYTHON_ABI, name, problem, f"compile with Py_LIMITED_API for Python {PYTHON_FLOOR}")
        elif _SHIM.fullmatch(name) and not isinstance(label.framework, TvmFfi):
            problem = _shim_problem(name, label, known)
            if problem:
                yield found(Rule.TORCH_ABI, name, problem, "raise stable-abi in the recipe, or do without the function")
        elif _TORCH_CXX.match(name) and isinstance(label.framework, TorchStableAbi):
            yield found(
                Rule.TORCH_ABI, name, "is of torch's C++ interface, which changes between releases",
                "use the headers below torch/csrc/stable and torch/headeronly only",
            )  # fmt: skip
        elif not _is_accounted_for(symbol, label):
            yield found(
                Rule.UNDEFINED_SYMBOL, name, "is offered by nothing that this build may need",
                "link the library or the source that defines it",
            )  # fmt: skip


def _is_accounted_for(symbol: Symbol, label: ArchLabel) -> bool:
    if symbol.name in _LINKER_NAMES or (symbol.weak and symbol.name.startswith("_ZTH")):
        return True
    match label.framework:
        case Torch():
            return _TORCH_CXX.match(symbol.name) is not None
        case TvmFfi():
            return _TVM.fullmatch(symbol.name) is not None
        case TorchStableAbi():
            return False


def _python_problem(name: str, known: Knowledge) -> str:
    if known.python_abi is None:
        return ""
    since = known.python_abi.get(name)
    if since is None:
        return "is not in Python's limited API"
    return f"is in Python's limited API only since {since}" if since > PYTHON_FLOOR else ""


def _shim_problem(name: str, label: ArchLabel, known: Knowledge) -> str:
    if known.shims is None or not isinstance(label.framework, TorchStableAbi):
        return ""
    since = known.shims.get(name)
    if since is None:
        return "is a function that torch's headers do not declare"
    target = label.framework.version
    return f"is in torch since {since} only, and the build is for {target} and newer" if since > target else ""


def _may_need(name: str, label: ArchLabel) -> bool:
    if name in _SYSTEM or name == _LOADERS.get(label.cpu):
        return True
    kind = label.backend.kind
    runtime = _RUNTIME_OF.get(kind)
    if runtime is not None and runtime.fullmatch(name):
        return True
    if isinstance(label.framework, TvmFfi):
        return name == "libtvm_ffi.so"
    return name in _TORCH or name in _TORCH_OF.get(kind, frozenset())
