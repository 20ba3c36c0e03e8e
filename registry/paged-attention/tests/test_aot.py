"""The Triton kernels compile for chips that are not here, without spilling, within their memory, with matrix units."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Two processes share the chips: importing Triton takes as long as compiling several kernels.
CHIPS = (["sm_80", "sm_90", "sm_100"], ["sm_120", "gfx942", "gfx950"])
ATTENDING = {f"{kind}_d{head_dim}" for kind in ("decode", "prefill") for head_dim in (64, 128, 256)}
MOVING = {"join", "write", "copy", "merge"}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    cache = str(tmp_path_factory.mktemp("triton"))
    environment |= {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": cache, "TRITON_DEFAULT_FP_FUSION": "1"}
    script = str(Path(__file__).with_name("aot_kernels.py"))
    started = [
        subprocess.Popen(
            [sys.executable, script, *chips], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        for chips in CHIPS
    ]
    found: dict[str, list[dict[str, Any]]] = {}
    for process in started:
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        for line in output.splitlines():
            one = json.loads(line)
            found.setdefault(one["chip"], []).append(one)
    return found


@pytest.mark.parametrize("chip", sum(CHIPS, []))
def test_every_kernel_fits_the_chip(chip: str, compiled: dict[str, list[dict[str, Any]]]) -> None:
    assert {one["kernel"] for one in compiled[chip]} == ATTENDING | MOVING
    for one in compiled[chip]:
        assert one["spilled"] == 0, one
        assert one["shared_bytes"] <= one["shared_limit_bytes"], one
        assert (one["matrix_instructions"] > 0) == (one["kernel"] in ATTENDING), one
        assert one["registers"] > 0, one
