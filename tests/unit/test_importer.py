"""Import: once per artifact, whole or not at all, and never one kernel's module in another's place."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import subprocess
import sys
import sysconfig
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernel_hub.errors import (
    AmbiguousKernelError,
    DigestMismatchError,
    EmptyKernelError,
    KernelHubError,
    KernelImportError,
    MissingDependencyError,
)
from kernel_hub.importer import import_artifact, loaded_kernels
from kernel_hub.model.artifact import Artifact, Expectation, FromFolder, VerifiedArtifact
from kernel_hub.verify import verify
from tests.support.artifacts import from_folder, from_source, verified_build, write_build
from tests.support.child import run_python


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[list[str]]:
    """A list that the bodies of kernels can reach: `import kernel_witness; kernel_witness.seen.append(...)`."""
    witness = ModuleType("kernel_witness")
    witness.seen = []  # type: ignore[attr-defined]
    witness.folder = tmp_path  # type: ignore[attr-defined]
    sys.modules["kernel_witness"] = witness
    yield witness.seen
    del sys.modules["kernel_witness"]


def unique(tmp_path: Path) -> str:
    """A comment that makes this test's kernel a kernel of its own in this process."""
    return f"# {tmp_path}\n"


def modules_of(verified: VerifiedArtifact) -> list[str]:
    prefix = f"{verified.metadata.python_name}_{verified.tree_digest.hex[:12]}"
    return sorted(name for name in sys.modules if name.partition(".")[0] == prefix)


def test_a_kernel_is_imported_with_its_record(tmp_path: Path) -> None:
    root = write_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path) + "def one(): return 1\n"})
    artifact = from_source(root)
    loaded = import_artifact(verify(artifact, Expectation()), notes=("newer version exists",))
    assert loaded.module.one() == 1
    assert loaded.module.__kernel_hub__ is loaded
    assert (loaded.name, loaded.label, loaded.version) == ("acme/axpy", "torch-cpu", 1)
    assert loaded.origin == artifact.origin
    assert loaded.notes == ("newer version exists",)
    assert loaded.overridden is None
    assert loaded in loaded_kernels()
    assert str(loaded) == "acme/axpy v1 (torch-cpu) from acme/axpy@v1 (c0ffeec0ffee) from https://hub.test"


def test_the_record_of_an_override_names_it(tmp_path: Path) -> None:
    root = write_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path)})
    artifact = Artifact(FromFolder(root, "KERNEL_HUB_OVERRIDES[0]"), "torch-cpu", root)
    loaded = import_artifact(verify(artifact, Expectation()))
    assert loaded.overridden == "KERNEL_HUB_OVERRIDES[0]"
    assert loaded.name == "axpy"


def test_the_record_is_there_while_the_body_runs(tmp_path: Path, seen: list[str]) -> None:
    body = unique(tmp_path) + "import kernel_witness\nkernel_witness.seen.append(__kernel_hub__.label)\n"
    import_artifact(verified_build(tmp_path / "torch-cpu", {"__init__.py": body}))
    assert seen == ["torch-cpu"]


def test_the_same_artifact_again_is_the_same_module(tmp_path: Path, seen: list[str]) -> None:
    body = unique(tmp_path) + "import kernel_witness\nkernel_witness.seen.append('ran')\n"
    verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": body})
    first = import_artifact(verified)
    assert import_artifact(verify(verified.artifact, Expectation())) is first
    assert seen == ["ran"]


def test_the_same_bytes_from_another_origin_are_the_same_kernel(tmp_path: Path, seen: list[str]) -> None:
    files = {
        "__init__.py": unique(tmp_path) + "import kernel_witness\nkernel_witness.seen.append('ran')\n",
        "_ops.py": "",
    }
    first = import_artifact(verified_build(tmp_path / "a" / "torch-cpu", files))
    second = import_artifact(verified_build(tmp_path / "b" / "torch-cpu", files))
    assert second.module is first.module
    assert [str(record.origin) for record in (first, second)] == [
        f"{tmp_path / name / 'torch-cpu'} (local path)" for name in "ab"
    ]
    assert seen == ["ran"]


def test_modules_of_a_kernel_are_found_by_every_form_of_import(tmp_path: Path) -> None:
    verified = verified_build(
        tmp_path / "torch-cpu",
        {
            "__init__.py": unique(tmp_path)
            + "from . import a\nfrom .sub import b\nfrom .sub.deep.c import C\nimport importlib\n"
            "E = importlib.import_module(f'{__name__}.größe').E\n",
            "a.py": "A = 'a'\n",
            "sub/__init__.py": "from ..a import A\n",
            "sub/b.py": "from . import A\nB = A + 'b'\n",
            "sub/deep/c.py": "from ...a import A\nC = A + 'c'\n",
            "größe.py": "E = 'e'\n",
        },
    )
    module = import_artifact(verified).module
    assert (module.a.A, module.b.B, module.C, module.E) == ("a", "ab", "ac", "e")
    assert module.sub.__path__ == [str(tmp_path / "torch-cpu" / "sub")]


def test_a_package_comes_before_a_module_of_the_same_name(tmp_path: Path) -> None:
    files = {
        "__init__.py": unique(tmp_path) + "from . import x\n",
        "x/__init__.py": "W = 'package'\n",
        "x.py": "W = 'module'\n",
    }
    assert import_artifact(verified_build(tmp_path / "torch-cpu", files)).module.x.W == "package"


def test_resources_are_read_through_the_module(tmp_path: Path) -> None:
    from importlib.resources import files

    body = unique(tmp_path)
    module = import_artifact(verified_build(tmp_path / "torch-cpu", {"__init__.py": body, "table.txt": "42"})).module
    assert files(module).joinpath("table.txt").read_text() == "42"
    assert (Path(module.__file__).parent / "table.txt").read_text() == "42"


def test_source_is_found_by_inspect(tmp_path: Path) -> None:
    import inspect

    body = unique(tmp_path) + "def one():\n    return 1\n"
    module = import_artifact(verified_build(tmp_path / "torch-cpu", {"__init__.py": body})).module
    assert inspect.getsource(module.one) == "def one():\n    return 1\n"


def test_the_legacy_layout_loads_and_the_plain_one_comes_first(tmp_path: Path) -> None:
    legacy = {"axpy/__init__.py": unique(tmp_path) + "from .a import A\n", "axpy/a.py": "A = 'legacy'\n"}
    assert import_artifact(verified_build(tmp_path / "one" / "torch-cpu", legacy)).module.A == "legacy"
    both = legacy | {"__init__.py": unique(tmp_path) + "A = 'plain'\n"}
    assert import_artifact(verified_build(tmp_path / "two" / "torch-cpu", both)).module.A == "plain"


def test_the_name_of_the_legacy_folder_is_the_kernels_with_underscores(tmp_path: Path) -> None:
    files = {"flash_attn/__init__.py": unique(tmp_path)}
    loaded = import_artifact(verified_build(tmp_path / "torch-cpu", files, name="flash-attn"))
    assert loaded.module.__name__.startswith("flash_attn_")


def test_a_build_without_entry_module_is_refused(tmp_path: Path) -> None:
    verified = verified_build(tmp_path / "torch-cpu", {"other/__init__.py": "", "_ops.py": ""})
    with pytest.raises(
        EmptyKernelError, match=r"torch-cpu.* is empty: it has neither __init__.py nor axpy/__init__.py"
    ):
        import_artifact(verified)


def test_a_module_that_is_not_there_is_not_searched_elsewhere(tmp_path: Path) -> None:
    module = import_artifact(verified_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path)})).module
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(f"{module.__name__}.json")
    assert caught.value.name == f"{module.__name__}.json"


def test_two_versions_live_side_by_side_with_their_own_submodules(tmp_path: Path) -> None:
    files = {"__init__.py": unique(tmp_path) + "def which():\n    from . import lazy\n    return lazy.W\n"}
    modules = [
        import_artifact(verified_build(tmp_path / name / "torch-cpu", files | {"lazy.py": f"W = {name!r}\n"})).module
        for name in ("first", "second")
    ]
    assert [module.which() for module in reversed(modules)] == ["second", "first"]


class TestNotes:
    def test_a_dirty_build_is_noted(self, tmp_path: Path) -> None:
        provenance = {"kernel-builder": {"version": "0.1"}, "kernel": {"commit": "1" * 40, "dirty": True}}
        verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path)}, provenance=provenance)
        assert import_artifact(verified).notes == ("it was built from sources with uncommitted changes",)

    def test_a_build_for_a_newer_client_loads_with_a_note(self, tmp_path: Path) -> None:
        files = {"__init__.py": unique(tmp_path)}
        verified = verified_build(tmp_path / "a" / "torch-cpu", files, **{"kernels-minver": "0.18.0"})
        (note,) = import_artifact(verified).notes
        assert "kernels >= 0.18.0" in note

    def test_a_build_for_this_format_has_no_note(self, tmp_path: Path) -> None:
        files = {"__init__.py": unique(tmp_path)}
        verified = verified_build(tmp_path / "a" / "torch-cpu", files, **{"kernels-minver": "0.17.2"})
        assert import_artifact(verified).notes == ()

    def test_a_build_without_digest_is_noted(self, tmp_path: Path) -> None:
        root = write_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path)}, algorithm=None)
        (note,) = import_artifact(verify(from_folder(root), Expectation())).notes
        assert "carries no digest" in note


class TestFailure:
    BODY = (
        "import kernel_witness\nfrom . import part\nkernel_witness.seen.append('ran')\n"
        "if not (kernel_witness.folder / 'ready').exists():\n    raise RuntimeError('not ready')\n"
    )

    def test_a_failed_import_leaves_nothing_behind_and_a_second_try_works(
        self, tmp_path: Path, seen: list[str]
    ) -> None:
        verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path) + self.BODY, "part.py": ""})
        with pytest.raises(KernelImportError, match=r"kernel axpy .*torch-cpu.*RuntimeError: not ready") as caught:
            import_artifact(verified)
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert modules_of(verified) == []
        assert not [loaded for loaded in loaded_kernels() if loaded.tree_digest == verified.tree_digest]
        (tmp_path / "ready").touch()
        assert import_artifact(verified).module.part.__name__ in modules_of(verified)
        assert seen == ["ran", "ran"]

    @pytest.mark.parametrize(
        ("body", "told"),
        [
            ("class Odd(BaseException): pass\nraise Odd('odd')", "Odd: odd"),
            ("import asyncio\nraise asyncio.CancelledError", "CancelledError"),
            ("raise GeneratorExit", "GeneratorExit"),
            ("raise BaseExceptionGroup('two', [SystemExit(1), ValueError(2)])", "BaseExceptionGroup: two"),
            (
                "class Mute(Exception):\n    def __str__(self): raise SystemExit\nraise Mute",
                "Mute: .no text: SystemExit",
            ),
            ("class Mute(OSError):\n    def __str__(self): return 1\nraise Mute", "Mute: .no text: TypeError"),
            ("raise ModuleNotFoundError('odd', name=3)", "ModuleNotFoundError: odd"),
        ],
        ids=["own", "cancelled", "generator", "group", "no text", "native without text", "odd name"],
    )
    def test_whatever_a_body_raises_is_a_failed_import_and_the_next_one_works(
        self, tmp_path: Path, seen: list[str], body: str, told: str
    ) -> None:
        fails = "if not kernel_witness.seen:\n    kernel_witness.seen.append('failed')\n"
        below = unique(tmp_path) + "import kernel_witness\n" + fails + textwrap.indent(body, "    ") + "\n"
        files = {"__init__.py": "from . import first, second\n", "first.py": "", "second.py": below}
        verified = verified_build(tmp_path / "torch-cpu", files)
        with pytest.raises(KernelImportError, match=told):
            import_artifact(verified)
        assert modules_of(verified) == []
        assert import_artifact(verified).module.second

    def test_a_body_that_exits_the_process_is_a_failed_import(self, tmp_path: Path) -> None:
        body = unique(tmp_path) + "raise SystemExit(3)\n"
        with pytest.raises(KernelImportError, match="SystemExit"):
            import_artifact(verified_build(tmp_path / "torch-cpu", {"__init__.py": body}))

    def test_an_interrupt_passes_and_leaves_nothing_behind(self, tmp_path: Path) -> None:
        verified = verified_build(
            tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path) + "raise KeyboardInterrupt\n"}
        )
        with pytest.raises(KeyboardInterrupt):
            import_artifact(verified)
        assert modules_of(verified) == []

    def test_a_syntax_error_names_the_kernel(self, tmp_path: Path) -> None:
        verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path) + "def broken(:\n"})
        with pytest.raises(KernelImportError, match=r"kernel axpy .*SyntaxError"):
            import_artifact(verified)

    def test_a_missing_package_names_what_to_install(self, tmp_path: Path) -> None:
        verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path) + "import cutlass.cute\n"})
        with pytest.raises(MissingDependencyError, match="'cutlass'") as caught:
            import_artifact(verified)
        assert caught.value.distributions == ("nvidia-cutlass-dsl",)
        assert caught.value.hint().startswith("pip install nvidia-cutlass-dsl")

    def test_a_missing_module_of_its_own_is_the_builds_fault(self, tmp_path: Path) -> None:
        verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path) + "from .gone import x\n"})
        with pytest.raises(KernelImportError, match="its own module 'gone'"):
            import_artifact(verified)

    def test_named_dependencies_are_checked_before_any_code_runs(self, tmp_path: Path, seen: list[str]) -> None:
        body = unique(tmp_path) + "import kernel_witness\nkernel_witness.seen.append('ran')\n"
        metadata = {"python-depends": ["helion"]}
        verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": body}, **metadata)
        with pytest.raises(MissingDependencyError, match="helion"):
            import_artifact(verified)
        assert seen == []

    def test_the_refusal_of_an_inner_kernel_keeps_its_type(self, tmp_path: Path) -> None:
        body = unique(tmp_path) + "from kernel_hub.errors import OfflineError\nraise OfflineError('inner')\n"
        with pytest.raises(KernelHubError, match="inner") as caught:
            import_artifact(verified_build(tmp_path / "torch-cpu", {"__init__.py": body}))
        assert type(caught.value).__name__ == "OfflineError"
        assert "while importing kernel axpy" in caught.value.__notes__[0]

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("x.abi3.so: undefined symbol: _ZN3c106detail", "another release of torch"),
            ("/lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by x.so)", "GLIBCXX is too old"),
            ("libcudart.so.13: cannot open shared object file: No such file or directory", "needs libcudart.so.13"),
            ("x.abi3.so: invalid ELF header", "damaged"),
        ],
    )
    def test_a_native_library_that_cannot_be_loaded_says_what_to_look_at(
        self, tmp_path: Path, text: str, hint: str
    ) -> None:
        body = unique(tmp_path) + f"raise ImportError({text!r})\n"
        with pytest.raises(KernelImportError, match="native library cannot be loaded") as caught:
            import_artifact(verified_build(tmp_path / "torch-cpu", {"__init__.py": body}))
        assert hint in caught.value.hint()


class TestOrder:
    def test_four_threads_run_the_body_once_and_get_one_module(self, tmp_path: Path, seen: list[str]) -> None:
        body = (
            "import kernel_witness, threading\nkernel_witness.seen.append('ran')\n"
            "kernel_witness.entered.set()\nassert kernel_witness.others.wait(60)\nfrom . import late\n"
        )
        witness: Any = sys.modules["kernel_witness"]
        witness.entered, witness.others = threading.Event(), threading.Event()
        verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path) + body, "late.py": ""})
        modules: list[ModuleType] = []
        threads = [threading.Thread(target=lambda: modules.append(import_artifact(verified).module)) for _ in range(4)]
        threads[0].start()
        assert witness.entered.wait(60)
        for thread in threads[1:]:
            thread.start()
        # The body only goes on when all four have been started, so that three of them ask while it runs.
        witness.others.set()
        for thread in threads:
            thread.join(60)
        assert seen == ["ran"]
        assert len(modules) == 4
        assert len(set(map(id, modules))) == 1

    def test_a_body_that_asks_for_itself_gets_the_unfinished_module(self, tmp_path: Path, seen: list[str]) -> None:
        body = (
            "import kernel_witness\nBEFORE = 1\nkernel_witness.seen.append('ran')\n"
            "again = kernel_witness.load()\nassert again.BEFORE == 1\nAFTER = 2\n"
        )
        verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path) + body})
        witness: Any = sys.modules["kernel_witness"]
        witness.load = lambda: import_artifact(verified).module
        module = import_artifact(verified).module
        assert module.again is module
        assert module.AFTER == 2
        assert seen == ["ran"]

    def test_a_body_that_fails_after_asking_for_itself_is_not_loaded(self, tmp_path: Path, seen: list[str]) -> None:
        body = "import kernel_witness\nkernel_witness.load()\nraise RuntimeError('late')\n"
        verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path) + body})
        witness: Any = sys.modules["kernel_witness"]
        witness.load = lambda: import_artifact(verified).module
        with pytest.raises(KernelImportError, match="late"):
            import_artifact(verified)
        assert verified.tree_digest not in {loaded.tree_digest for loaded in loaded_kernels()}

    def test_a_body_that_removes_itself_from_the_modules_still_loads(self, tmp_path: Path) -> None:
        body = (
            "import sys\ndel sys.modules[__name__]\nONE = 1\ndef late():\n    from . import part\n    return part.TWO\n"
        )
        files = {"__init__.py": unique(tmp_path) + body, "part.py": "TWO = 2\n"}
        module = import_artifact(verified_build(tmp_path / "torch-cpu", files)).module
        assert (module.ONE, module.late()) == (1, 2)

    def test_a_body_that_puts_another_module_in_its_place_is_taken_at_its_word(self, tmp_path: Path) -> None:
        body = (
            "import sys, types\nclass Lazy(types.ModuleType):\n    @property\n    def one(self): return 1\n"
            "sys.modules[__name__] = Lazy(__name__)\n"
        )
        verified = verified_build(tmp_path / "torch-cpu", {"__init__.py": unique(tmp_path) + body})
        loaded = import_artifact(verified)
        assert loaded.module.one == 1
        assert import_artifact(verified) is loaded

    def test_functions_can_be_pickled_where_the_kernel_is_loaded(self, tmp_path: Path) -> None:
        body = unique(tmp_path) + "def one():\n    return 1\n"
        module = import_artifact(verified_build(tmp_path / "torch-cpu", {"__init__.py": body})).module
        assert pickle.loads(pickle.dumps(module.one)) is module.one

    def test_reloading_runs_the_verified_source_again(self, tmp_path: Path, seen: list[str]) -> None:
        body = unique(tmp_path) + "import kernel_witness\nkernel_witness.seen.append('ran')\n"
        module = import_artifact(verified_build(tmp_path / "torch-cpu", {"__init__.py": body})).module
        assert importlib.reload(module) is module
        assert seen == ["ran", "ran"]


class TestNamespaces:
    """Two artifacts with one metadata id."""

    def test_the_second_claim_on_an_operator_namespace_names_both_origins_and_runs_nothing(
        self, tmp_path: Path, seen: list[str]
    ) -> None:
        identity = f"_axpy_{tmp_path.name}"
        body = "import kernel_witness\nkernel_witness.seen.append({!r})\n"
        first = verified_build(tmp_path / "a", {"__init__.py": body.format("a"), "_ops.py": ""}, id=identity)
        second = verified_build(tmp_path / "b", {"__init__.py": body.format("b"), "_ops.py": ""}, id=identity)
        import_artifact(first)
        with pytest.raises(AmbiguousKernelError) as caught:
            import_artifact(second)
        for part in (f"torch.ops.{identity}", str(tmp_path / "a"), str(tmp_path / "b")):
            assert part in str(caught.value)
        assert seen == ["a"]

    def test_pure_python_without_operators_is_isolated_instead(self, tmp_path: Path) -> None:
        identity = f"_axpy_{tmp_path.name}"
        files = {"__init__.py": "def which():\n    from . import lazy\n    return lazy.W\n"}
        operators = files | {"_ops.py": "", "lazy.py": "W = 'operators'\n"}
        modules = [
            import_artifact(verified_build(tmp_path / "a", operators, id=identity)).module,
            import_artifact(verified_build(tmp_path / "b", files | {"lazy.py": "W = 'pure'\n"}, id=identity)).module,
        ]
        assert [module.which() for module in modules] == ["operators", "pure"]

    def test_a_namespace_that_a_failed_body_may_have_filled_stays_taken(self, tmp_path: Path) -> None:
        identity = f"_axpy_{tmp_path.name}"
        failing = verified_build(tmp_path / "a", {"__init__.py": "raise RuntimeError\n", "_ops.py": ""}, id=identity)
        other = verified_build(tmp_path / "b", {"__init__.py": "", "_ops.py": ""}, id=identity)
        for _ in range(2):
            with pytest.raises(KernelImportError, match="RuntimeError"):
                import_artifact(failing)
        with pytest.raises(AmbiguousKernelError, match="began to load"):
            import_artifact(other)

    def test_a_refused_claim_takes_nothing(self, tmp_path: Path) -> None:
        identity = f"_axpy_{tmp_path.name}"
        depends = {"python-depends": ["helion"]}
        refused = verified_build(tmp_path / "a", {"__init__.py": "A = 1\n", "_ops.py": ""}, id=identity, **depends)
        with pytest.raises(MissingDependencyError):
            import_artifact(refused)
        import_artifact(verified_build(tmp_path / "b", {"__init__.py": "B = 1\n", "_ops.py": ""}, id=identity))

    def test_real_operators_of_two_kernels_with_one_id_are_never_mixed(self, tmp_path: Path) -> None:
        code = """
import sys, torch
from pathlib import Path
from kernel_hub.errors import AmbiguousKernelError
from kernel_hub.importer import import_artifact
from tests.support.artifacts import verified_build

OPS = "import torch\\nops = torch.ops._axpy_x\\ndef add_op_namespace_prefix(op):\\n    return f'_axpy_x::{op}'\\n"
BODY = '''
import torch
from ._ops import add_op_namespace_prefix, ops
@torch.library.custom_op(add_op_namespace_prefix("scale"), mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR
'''
folder = Path(sys.argv[1])
def build(name, identity, factor):
    files = {"__init__.py": BODY.replace("FACTOR", factor), "_ops.py": OPS.replace("_axpy_x", identity)}
    return verified_build(folder / name, files, id=identity)
first = import_artifact(build("a", "_axpy_x", "2"))
try:
    import_artifact(build("b", "_axpy_x", "3"))
except AmbiguousKernelError as error:
    print("refused")
third = import_artifact(build("c", "_axpy_y", "5"))
one = torch.ones(1)
print(torch.ops._axpy_x.scale(one).item(), first.module.scale(one).item(), third.module.ops.scale(one).item())
"""
        assert run_python(code, tmp_path).split() == ["refused", "2.0", "2.0", "5.0"]


NATIVE_SOURCE = """
#define Py_LIMITED_API 0x03090000
#include <Python.h>
static PyObject *one(PyObject *self, PyObject *args) { return PyLong_FromLong(1); }
static PyMethodDef methods[] = {{"one", one, METH_NOARGS, 0}, {0, 0, 0, 0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_axpy_native", 0, -1, methods};
PyMODINIT_FUNC PyInit__axpy_native(void) { return PyModule_Create(&module); }
"""
NATIVE_FILES = {"__init__.py": "from ._ops import ops\n", "_ops.py": "from . import _axpy_native as ops\n"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """An extension module for the part of Python's C interface that is stable across its versions."""
    folder = tmp_path_factory.mktemp("native")
    (folder / "native.c").write_text(NATIVE_SOURCE)
    include = f"-I{sysconfig.get_paths()['include']}"
    command = ["cc", "-shared", "-fPIC", include, "native.c", "-o", "native.so"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return (folder / "native.so").read_bytes()


class TestNative:
    @pytest.fixture
    def native(self, tmp_path: Path, library: bytes) -> VerifiedArtifact:
        files: dict[str, str | bytes] = {**NATIVE_FILES, "_axpy_native.abi3.so": library, "note.txt": str(tmp_path)}
        label = "tvm-ffi01-cpu-x86_64-linux"
        return verified_build(tmp_path / label, files, label=label, id=f"_axpy_{tmp_path.name}")

    def test_a_stable_abi_extension_is_imported_relatively(self, native: VerifiedArtifact) -> None:
        module = import_artifact(native).module
        assert module.ops.one() == 1
        assert module.ops.__name__ == f"{module.__name__}._axpy_native"

    def test_a_library_that_was_written_after_verification_is_not_loaded(
        self, native: VerifiedArtifact, library: bytes
    ) -> None:
        (native.artifact.root / "_axpy_native.abi3.so").write_bytes(library + b"\0")
        with pytest.raises(DigestMismatchError, match=r"_axpy_native.abi3.so: changed"):
            import_artifact(native)
        assert modules_of(native) == []

    def test_a_truncated_library_that_was_published_so_is_said_to_be_damaged(
        self, tmp_path: Path, library: bytes
    ) -> None:
        label = "tvm-ffi01-cpu-x86_64-linux"
        files: dict[str, str | bytes] = {**NATIVE_FILES, "_axpy_native.abi3.so": library[:100]}
        verified = verified_build(tmp_path / label, files, label=label, id=f"_axpy_{tmp_path.name}")
        with pytest.raises(KernelImportError, match="native library cannot be loaded") as caught:
            import_artifact(verified)
        assert "damaged" in caught.value.hint()

    def test_torch_is_loaded_before_a_build_that_links_to_it(self, tmp_path: Path, library: bytes) -> None:
        label = "torch-stable-abi211-cpu-x86_64-linux"
        body = "import sys\nTORCH_WAS_HERE = 'torch' in sys.modules\nfrom ._ops import ops\n"
        files: dict[str, str | bytes] = {**NATIVE_FILES, "__init__.py": body, "_axpy_native.abi3.so": library}
        root = write_build(tmp_path / label, files)
        code = """
import sys
from pathlib import Path
from kernel_hub.importer import import_artifact
from kernel_hub.model.artifact import Expectation
from kernel_hub.verify import verify
from tests.support.artifacts import from_folder
root = Path(sys.argv[1])
verified = verify(from_folder(root, label=root.name), Expectation())
assert "torch" not in sys.modules
module = import_artifact(verified).module
print(module.TORCH_WAS_HERE, module.ops.one())
"""
        assert run_python(code, root).split() == ["True", "1"]

    def test_a_build_that_links_to_torch_names_it_when_it_is_missing(self, tmp_path: Path, library: bytes) -> None:
        label = "torch-stable-abi211-cpu-x86_64-linux"
        root = write_build(tmp_path / label, {**NATIVE_FILES, "_axpy_native.abi3.so": library})
        code = """
import sys
from pathlib import Path
sys.modules["torch"] = None
from kernel_hub.errors import MissingDependencyError
from kernel_hub.importer import import_artifact
from kernel_hub.model.artifact import Expectation
from kernel_hub.verify import verify
from tests.support.artifacts import from_folder
root = Path(sys.argv[1])
try:
    import_artifact(verify(from_folder(root, label=root.name), Expectation()))
except MissingDependencyError as error:
    print(error.distributions, error.hint())
"""
        assert run_python(code, root).strip() == "('torch',) pip install torch"


def test_a_file_that_changes_before_a_late_import_is_not_run(tmp_path: Path) -> None:
    files = {
        "__init__.py": unique(tmp_path) + "def late():\n    from . import part\n    return part.X\n",
        "part.py": "X = 1\n",
    }
    verified = verified_build(tmp_path / "torch-cpu", files)
    module = import_artifact(verified).module
    (tmp_path / "torch-cpu" / "part.py").write_text("X = 2\n")
    with pytest.raises(DigestMismatchError, match=r"part.py: changed"):
        module.late()
    (tmp_path / "torch-cpu" / "part.py").write_text("X = 1\n")
    assert module.late() == 1


def test_a_collision_of_the_short_names_gives_the_second_a_longer_one(tmp_path: Path) -> None:
    first = verified_build(tmp_path / "a", {"__init__.py": unique(tmp_path) + "W = 'a'\n"})
    second = verified_build(tmp_path / "b", {"__init__.py": unique(tmp_path) + "W = 'b'\n"})
    value = first.tree_digest.value[:6] + second.tree_digest.value[6:]
    twin = replace(second, tree_digest=replace(second.tree_digest, value=value))
    modules = [import_artifact(first).module, import_artifact(twin).module]
    assert [module.W for module in modules] == ["a", "b"]
    assert len(modules[1].__name__) == len(modules[0].__name__) + 1


def test_nothing_is_written_into_the_build(tmp_path: Path) -> None:
    files = {"__init__.py": unique(tmp_path) + "from . import part\n", "part.py": ""}
    verified = verified_build(tmp_path / "torch-cpu", files)
    before = sorted(tmp_path.rglob("*"))
    import_artifact(verified)
    assert sorted(tmp_path.rglob("*")) == before
