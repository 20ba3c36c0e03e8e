"""`kernel-hub demo`: run the first example of a checkout, which builds, publishes, loads and checks a real kernel.

The comparison with torch lives in the example, because only the loader's own code may import torch in this package.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernel_hub.cli.command import Command, UsageError, argument, needing
from kernel_hub.cli.following import binding_lines, loading_line
from kernel_hub.errors import BuildError, InvalidDocumentError

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path
    from types import ModuleType

    from kernel_hub.cli.console import Console

_EXAMPLE = "examples/01_load.py"
_KERNEL = "registry/flash-attn"
_REPO = "local/flash-attn"


def _run(arguments: Namespace, console: Console) -> int:
    import shutil
    import tempfile
    from pathlib import Path

    checkout = Path(arguments.checkout or _checkout()).absolute()
    kernel = Path(arguments.kernel).absolute() if arguments.kernel else checkout / _KERNEL
    if not (kernel / "build.toml").is_file():
        raise InvalidDocumentError(
            "--kernel" if arguments.kernel else str(checkout),
            f"the folder {kernel} holds no build.toml",
            hint="run it in a clone of the repository, or name one: --checkout DIR",
        )
    with _without_numpy():
        with needing("torch"):
            example = _load(checkout / _EXAMPLE)
        if arguments.keep is not None:
            kept = _new_folder(arguments.keep)
            following = binding_lines([_REPO.partition("/")[0]], str(kept / "registry"))
            following.append(loading_line(_REPO, version=1))
            return _show(example.run(kernel, kept, console.notice), following, console)
        folder = Path(tempfile.mkdtemp(prefix="kernel-hub-demo-"))
        try:
            report = example.run(kernel, folder, console.notice)
        except BaseException:
            console.notice(f"what was made so far is kept in {folder}")
            raise
    shutil.rmtree(folder, ignore_errors=True)
    return _show(report, ["to keep the registry and load from it: kernel-hub demo --keep DIR"], console)


@contextmanager
def _without_numpy() -> Iterator[None]:
    """Silences one warning: torch complains where numpy is not installed, and nothing here needs numpy."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy", category=UserWarning)
        yield


def _new_folder(name: str) -> Path:
    from pathlib import Path

    folder = Path(name).expanduser().resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--keep: {folder} is not an empty folder", hint="name one that does not exist yet")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _show(report: dict[str, Any], following: list[str], console: Console) -> int:
    lines = [*report["lines"], *following]
    console.answer("\n".join(lines), {key: value for key, value in report.items() if key != "lines"})
    if report["within_bounds"]:
        return 0
    console.notice("error: the kernel's error is larger than twice that of torch")
    return BuildError.exit_code


def _checkout() -> Path:
    from pathlib import Path

    import kernel_hub

    return Path(kernel_hub.__file__).parents[1]


def _load(path: Path) -> ModuleType:
    import importlib.util

    if not path.is_file():
        raise InvalidDocumentError(
            str(path),
            "does not exist; the demo is part of a clone of the repository, not of an installed package",
            hint="clone the repository and run it there, or name a clone: --checkout DIR",
        )
    spec = importlib.util.spec_from_file_location("kernel_hub_demo", path)
    if spec is None or spec.loader is None:
        raise InvalidDocumentError(str(path), "is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DEMO = Command(
    "demo",
    "build, publish, load and check the flash-attention kernel of a clone",
    "Build the flash-attention kernel of this clone from source, publish it to a registry folder, load it by name and "
    "version, and compare it with PyTorch's attention in two precisions. Needs no access to any Hub and leaves the "
    "caches of the user alone. Exits with 0 only if the kernel's error against a float64 reference is at most twice "
    "that of PyTorch's own in the same precision, otherwise with 8.",
    (
        argument("--kernel", metavar="DIR", text="the kernel's sources; default: registry/flash-attn of the clone"),
        argument("--checkout", metavar="DIR", text="a clone of the repository; default: where this program runs from"),
        argument(
            "--keep", metavar="DIR", text="a new folder for the build, the registry and the cache; default: temporary"
        ),
    ),
    _run,
)
