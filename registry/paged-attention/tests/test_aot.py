"""The Triton kernels compile for chips that are not here, without spilling, within their memory, with matrix units."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHIPS = ["sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950"]
ATTENDING = {f"{kind}_d{head_dim}" for kind in ("decode", "prefill") for head_dim in (64, 128, 256)}
MOVING = {"join", "write", "copy", "merge"}


@pytest.mark.parametrize("chip", CHIPS)
def test_every_kernel_fits_the_chip(chip: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path), "TRITON_DEFAULT_FP_FUSION": "1"}
    script = Path(__file__).with_name("aot_kernels.py")
    done = subprocess.run([sys.executable, str(script), chip], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    compiled = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["kernel"] for one in compiled} == ATTENDING | MOVING
    for one in compiled:
        assert one["chip"] == chip
        assert one["spilled"] == 0, one
        assert one["shared_bytes"] <= one["shared_limit_bytes"], one
        assert (one["matrix_instructions"] > 0) == (one["kernel"] in ATTENDING), one
        assert one["registers"] > 0, one
