"""Attack: bytecode beside a kernel's source. No manifest covers it, and Python's own loaders would run it unread."""

from __future__ import annotations

import importlib
import importlib.util
import marshal
import sys
from pathlib import Path

import pytest

from kernel_hub.importer import import_artifact
from kernel_hub.model.artifact import Expectation
from kernel_hub.verify import verify
from tests.support.artifacts import from_folder, write_build

ENFORCED_BY = "kernel_hub.importer.finder.KernelFinder"


def bytecode_of(source: str, stands_for: Path) -> bytes:
    """A `.pyc` that Python takes for the compiled form of `stands_for`."""
    status = stands_for.stat()
    header = importlib.util.MAGIC_NUMBER + (0).to_bytes(4, "little")
    stamp = int(status.st_mtime).to_bytes(4, "little") + status.st_size.to_bytes(4, "little")
    return header + stamp + marshal.dumps(compile(source, str(stands_for), "exec"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {"__init__.py": f"# {tmp_path}\nfrom . import part\nWHO = 'source'\n", "part.py": "WHO = 'source'\n"}
    return write_build(tmp_path / "torch-cpu", files)


def test_python_itself_would_run_the_planted_bytecode(root: Path) -> None:
    """That the other tests here test something."""
    cached = Path(importlib.util.cache_from_source(str(root / "part.py")))
    cached.parent.mkdir()
    cached.write_bytes(bytecode_of("WHO = 'planted'", root / "part.py"))
    spec = importlib.util.spec_from_file_location("planted_part", root / "part.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.WHO == "planted"


def test_cached_bytecode_of_the_entry_and_of_a_submodule_is_not_run(root: Path) -> None:
    for name in ("__init__.py", "part.py"):
        cached = Path(importlib.util.cache_from_source(str(root / name)))
        cached.parent.mkdir(exist_ok=True)
        cached.write_bytes(bytecode_of("from types import SimpleNamespace as part\nWHO = 'planted'", root / name))
    module = import_artifact(verify(from_folder(root), Expectation())).module
    assert (module.WHO, module.part.WHO) == ("source", "source")


def test_a_module_that_is_bytecode_only_does_not_exist(root: Path) -> None:
    (root / "hidden.pyc").write_bytes(bytecode_of("WHO = 'planted'", root / "part.py"))
    module = import_artifact(verify(from_folder(root), Expectation())).module
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{module.__name__}.hidden")


def test_source_in_a_bytecode_folder_does_not_exist(root: Path) -> None:
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "hidden.py").write_text("WHO = 'planted'\n")
    module = import_artifact(verify(from_folder(root), Expectation())).module
    for name in ("__pycache__", "__pycache__.hidden"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"{module.__name__}.{name}")


def test_bytecode_does_not_make_an_empty_build_a_kernel(tmp_path: Path) -> None:
    from kernel_hub.errors import EmptyKernelError

    root = write_build(tmp_path / "torch-cpu", {"README": "nothing here\n"})
    (root / "__init__.pyc").write_bytes(bytecode_of("WHO = 'planted'", root / "README"))
    with pytest.raises(EmptyKernelError):
        import_artifact(verify(from_folder(root), Expectation()))


def test_no_bytecode_is_written_where_someone_could_replace_it(root: Path) -> None:
    assert not sys.dont_write_bytecode or sys.flags.dont_write_bytecode
    import_artifact(verify(from_folder(root), Expectation()))
    assert not (root / "__pycache__").exists()
