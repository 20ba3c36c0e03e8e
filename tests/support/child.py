"""Runs Python code in a process of its own, for tests of what a whole process sees: torch, `sys.modules`, the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def run_python(code: str, *arguments: object, environ: dict[str, str] | None = None) -> str:
    """Run code with the project importable; its output. A failing child fails the test with its traceback."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "PYTHONWARNINGS": "error"} | (environ or {})
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
