"""Why a kernel's code failed to import, said in a way that leads somewhere.

Reads an exception that the import of a verified kernel raised, and makes the error that the caller sees: a missing
package, a native library built for another torch or another system, or the kernel's own fault.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kernel_hub.errors import KernelImportError, MissingDependencyError
from kernel_hub.importer.dependencies import pip_line
from kernel_hub.model.pattern import Pattern

# Modules whose distribution has another name, as far as kernels import them.
_DISTRIBUTIONS = {
    "cutlass": "nvidia-cutlass-dsl",
    "cuda": "cuda-python",
    "tvm_ffi": "apache-tvm-ffi",
    "torch_npu": "torch-npu",
    "yaml": "PyYAML",
}
_SYMBOL = Pattern(r"undefined symbol|symbol not found|Symbol not found|procedure could not be found")
_LIBC = Pattern(r"version [`'](GLIBC|GLIBCXX|CXXABI)_[0-9.]+' not found")
_LIBRARY = Pattern(r"(lib[\w.+-]+\.so[\w.]*): cannot open shared object file")
_BROKEN = Pattern(
    r"invalid ELF header|cannot read file data|ELF load command|file too short|wrong ELF class|"
    r"not a mach-o file|not a valid Win32"
)


def import_fault(error: BaseException, *, subject: str, module_name: str, label: str) -> KernelImportError:
    """The error to raise for what a kernel's import raised.

    Args:
        error: What it raised; to be chained by the caller.
        subject: The kernel and its origin.
        module_name: The name under which it was imported.
        label: Its build.
    """
    for cause in _chain(error):
        if isinstance(cause, ModuleNotFoundError) and isinstance(cause.name, str) and cause.name:
            return _missing_module(cause.name, subject=subject, module_name=module_name)
        if isinstance(cause, OSError | ImportError) and (hint := _native_hint(_text(cause), label)):
            return KernelImportError(f"{subject}: its native library cannot be loaded: {_text(cause)}", hint=hint)
    return KernelImportError(
        f"{subject}: its code failed while it was imported: {type(error).__name__}: {_text(error)}",
        hint="the cause is above; nothing of the kernel stays imported, so a second try starts from the beginning",
    )


def _text(error: BaseException) -> str:
    """What an exception says; its own code says that, and may fail too."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # noqa: BLE001 - the kernel's code again
        return f"(no text: {type(failure).__name__} while it was made)"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _missing_module(name: str, *, subject: str, module_name: str) -> KernelImportError:
    if name == module_name or name.startswith(f"{module_name}."):
        own = name[len(module_name) + 1 :]
        return KernelImportError(
            f"{subject}: its code imports its own module {own!r}, which the build does not contain",
            hint="the build is faulty; tell its publisher, or take another version",
        )
    distribution = _DISTRIBUTIONS.get(name.partition(".")[0], name.partition(".")[0])
    return MissingDependencyError(
        f"{subject}: its code imports {name!r}, which is not installed and which its metadata does not name",
        distributions=(distribution,),
        hint=f"{pip_line((distribution,))} (the distribution's name is a guess)",
    )


def _native_hint(text: str, label: str) -> str:
    torch = getattr(sys.modules.get("torch"), "__version__", None)
    here = f"torch {torch} is installed" if torch else "torch is not installed"
    if _SYMBOL.search(text):
        return f"build {label} was compiled for another release of torch than it meets here ({here})"
    if found := _LIBC.search(text):
        return f"build {label} was compiled on a newer system: this one's {found[1]} is too old for it"
    if found := _LIBRARY.search(text):
        return f"build {label} needs {found[1]}, which the loader of this system does not find ({here})"
    if _BROKEN.search(text):
        return f"build {label} is damaged, or was compiled for another system"
    return ""
