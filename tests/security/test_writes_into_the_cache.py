"""Attack surface: a loader that writes where it reads lets whoever may write there decide what is loaded next.

Every file operation of a whole verification and import is watched through Python's audit events, so that the test means
the same for root, who may write anywhere.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.artifacts import write_build
from tests.support.child import run_python

ENFORCED_BY = "kernel_hub.importer.finder.KernelFinder"
CODE = """
import os, sys
from pathlib import Path
from kernel_hub.importer import import_artifact
from kernel_hub.model.artifact import Expectation
from kernel_hub.verify import verify
from tests.support.artifacts import from_folder

root = Path(sys.argv[1])
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
CHANGING = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.utime", "os.truncate"}
writes = []

def watch(event, arguments):
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
        writes.append((event, arguments[0]))
    elif event in CHANGING:
        writes.append((event, arguments))

sys.dont_write_bytecode = False
sys.addaudithook(watch)
module = import_artifact(verify(from_folder(root, label=root.name), Expectation())).module
from importlib import import_module
import_module(module.__name__ + ".late")
assert module.ANSWER == 42
writes_of_ours = list(writes)
open(root.parent / "proof", "w").close()
assert len(writes) == len(writes_of_ours) + 1, "the watch does not see writes"
print(writes_of_ours)
"""


def test_loading_a_kernel_writes_nothing_anywhere(tmp_path: Path) -> None:
    files = {"__init__.py": "from .sub import ANSWER\n", "sub/__init__.py": "ANSWER = 42\n", "late.py": ""}
    root = write_build(tmp_path / "torch-cpu", files)
    assert run_python(CODE, root, environ={"PYTHONPYCACHEPREFIX": ""}).strip() == "[]"


def test_a_read_only_build_loads(tmp_path: Path) -> None:
    root = write_build(tmp_path / "torch-cpu", {"__init__.py": "ANSWER = 42\n", "late.py": "", "sub/x.py": ""})
    for path in [*root.rglob("*"), root]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert run_python(CODE, root).strip() == "[]"
    finally:
        for path in [root, root / "sub"]:
            path.chmod(0o755)
