"""An interrupted `kernel-hub build`: nothing more is started, compilers end, and no half build stays."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="compiled builds are made on Linux")

_SOURCES = 30
_PARALLEL = 2
# A shell that starts the tests in the background has its children ignore interrupts.
_PROGRAM = (
    "import signal, sys\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from kernel_hub.cli import main\n"
    "sys.exit(main())\n"
)
_LIMIT_S = 120
_RECIPE = f"""
[general]
name = "scale"
version = 3
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/torch_binding.cpp"]

[torch.stable-abi]
cpu = "2.11"

[kernel.many]
backend = "cpu"
depends = ["torch"]
src = [{", ".join(f'"part_{number}.cpp"' for number in range(_SOURCES))}]
"""
# Says that it runs, and then waits for a writer that never comes. As long as it lives, `started` has a writer.
_COMPILER = """#!/bin/sh
case "$1" in --version) echo 'slow g++ 1.0'; exit 0;; -print-*) exit 1;; esac
{trap}
exec 3>'{folder}/started'
while [ $# -gt 0 ]; do if [ "$1" = -o ]; then echo half >"$2"; fi; shift; done
echo "$$" >&3
while :; do read -r line <'{folder}/never'; done
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel with many sources."""
    pytest.importorskip("torch")
    folder = tmp_path / "scale"
    (folder / "torch-ext" / "scale").mkdir(parents=True)
    (folder / "torch-ext" / "scale" / "__init__.py").write_text("__all__ = []\n", encoding="utf-8")
    (folder / "torch-ext" / "torch_binding.cpp").write_text("int bound;\n", encoding="utf-8")
    for number in range(_SOURCES):
        (folder / f"part_{number}.cpp").write_text(f"int part_{number};\n", encoding="utf-8")
    (folder / "build.toml").write_text(_RECIPE, encoding="utf-8")
    return folder


def slow_compiler(folder: Path, trap: str) -> Path:
    """A folder with a `g++` that starts and never ends, and the pipes through which it is watched."""
    folder.mkdir()
    os.mkfifo(folder / "started")
    os.mkfifo(folder / "never")
    program = folder / "g++"
    program.write_text(_COMPILER.format(folder=folder, trap=trap), encoding="utf-8")
    program.chmod(0o755)
    return folder


def read_some(pipe: int) -> bytes:
    """What a pipe holds next, "" once all its writers are gone."""
    ready, _, _ = select.select([pipe], [], [], _LIMIT_S)
    assert ready, "nothing came through the pipe"
    return os.read(pipe, 4096)


@pytest.mark.parametrize(
    "trap", ["", "trap '' INT TERM"], ids=["a compiler that ends", "a compiler that does not listen"]
)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=["interrupted", "asked to end"])
def test_a_build_that_is_ended_ends_its_compilers_and_leaves_no_build(
    home: Path, kernel: Path, tmp_path: Path, trap: str, how: signal.Signals
) -> None:
    tools = slow_compiler(tmp_path / "tools", trap)
    # Until the first compiler has started, the pipe is held open from here, lest it seem to have ended.
    pipe = os.open(tools / "started", os.O_RDONLY | os.O_NONBLOCK)
    holder = os.open(tools / "started", os.O_WRONLY)
    words = ["build", str(kernel), "--jobs", str(_PARALLEL)]
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *words],
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    said = b""
    while said.count(b"\n") < _PARALLEL:
        said += read_some(pipe)
    os.close(holder)
    os.killpg(program.pid, how)
    out, err = program.communicate(timeout=_LIMIT_S)
    assert (program.returncode, out, err) == (130, "", "interrupted\n")
    # The end of the pipe comes once no compiler lives.
    while more := read_some(pipe):
        said += more
    os.close(pipe)
    assert said.count(b"\n") == _PARALLEL
    assert not (kernel / "build").exists()
    assert list((kernel / ".build-work").rglob("*.o")) == []
