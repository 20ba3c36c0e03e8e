"""Runs Python code in a process of its own, for tests of what a whole process sees: torch, `sys.modules`, the environment."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


# From linux/prctl.h and linux/capability.h.
_DROP_FROM_BOUNDING_SET = 24
_IGNORE_PERMISSIONS = 1


def become_ordinary() -> None:
    """For a child that is about to start: let permissions of files hold for it although it is root's."""
    if sys.platform == "linux" and os.geteuid() == 0:
        ctypes.CDLL(None).prctl(_DROP_FROM_BOUNDING_SET, _IGNORE_PERMISSIONS, 0, 0, 0)


def run_python(code: str, *arguments: object, environ: dict[str, str] | None = None, ordinary: bool = False) -> str:
    """Run code with the project importable; its output. A failing child fails the test with its traceback.

    Args:
        code: The code.
        arguments: For `sys.argv`.
        environ: More variables.
        ordinary: See `become_ordinary`.
    """
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "PYTHONWARNINGS": "error"} | (environ or {})
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=become_ordinary if ordinary else None,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
