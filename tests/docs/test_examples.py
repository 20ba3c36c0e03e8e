"""Every example runs by itself, offline, against a registry folder of its own, and says what it promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
_MAX_LINES = 60


def run_example(name: str, scratch: Path) -> list[str]:
    """The lines that an example prints; its temporary folders and the user's home lie in `scratch`."""
    (path,) = (ROOT / "examples").glob(f"{name}*.py")
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("HF_", "KERNEL", "LOCAL_KERNELS"))
    }
    environment = inherited | {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(scratch / "user"),
        "XDG_CONFIG_HOME": str(scratch / "config"),
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(scratch),
    }
    done = subprocess.run(
        [sys.executable, str(path)], cwd=scratch, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not (scratch / "user" / "hub").exists(), "an example put files into the cache of the user"
    return done.stdout.splitlines()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_shows(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert len(text.splitlines()) <= _MAX_LINES


def test_every_example_has_its_test() -> None:
    here = ["01_load", "02_explain", "03_local_registry", "04_overrides"]
    # The last runs in registry/flash-attn/tests/test_transformers.py, which has the builds at hand.
    assert [path.stem for path in EXAMPLES] == [*here, "05_transformers"]


def test_01_a_kernel_built_here_is_loaded_by_name_and_as_accurate_as_torch(tmp_path: Path) -> None:
    lines = run_example("01", tmp_path)
    assert [line.split()[0] for line in lines[:2]] == ["building", "loading"]
    assert lines[2].startswith("local/flash-attn@v1 (")
    assert any(line.startswith("  chosen: torch-") for line in lines)
    assert any(line.startswith("  does not fit: torch-") for line in lines)
    assert lines[-1].endswith(": as accurate as torch: largest error at most 2x torch's own")


def test_02_other_machines_are_told_which_build_they_would_take(tmp_path: Path) -> None:
    lines = run_example("02", tmp_path)
    assert [line for line in lines if line.startswith("  chosen")] == [
        "  chosen: torch-cuda",
        "  chosen: torch-rocm",
        "  chosen: none",
    ]
    assert sum(line.startswith("  way out: ") for line in lines) == 1


def test_03_the_version_that_is_asked_for_is_loaded(tmp_path: Path) -> None:
    lines = run_example("03", tmp_path)
    assert lines[:3] == ["[10, 20]", "[100, 200]", "local/scale has no version v3; available: v1, v2"]
    assert [line.split(" from ")[0] for line in lines[3:]] == [
        "local/scale v1 (torch-cpu)",
        "local/scale v2 (torch-cpu)",
    ]


def test_04_a_folder_stands_in_for_a_kernel_and_says_so(tmp_path: Path) -> None:
    lines = run_example("04", tmp_path)
    assert lines[1].startswith("  override: KERNEL_HUB_OVERRIDES: acme/scale=")
    assert lines[-3] == "40"
    assert lines[-2] == lines[1].removeprefix("  override: ")
    assert lines[-1] == "50"
