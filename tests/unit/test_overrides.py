"""Local overrides in every spelling that people use."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kernel_hub.overrides import read_overrides


def paths(here: Path, **environ: str) -> dict[str, str]:
    return {str(override.repo): str(override.path) for override in read_overrides(environ, here)}


def test_one_entry(tmp_path: Path) -> None:
    assert paths(tmp_path, KERNEL_HUB_OVERRIDES="acme/axpy=/k/axpy") == {"acme/axpy": "/k/axpy"}


@pytest.mark.parametrize("separator", sorted({os.pathsep, ":"}))
@pytest.mark.parametrize("trailing", ["", ":"])
def test_two_entries_and_a_trailing_separator(tmp_path: Path, separator: str, trailing: str) -> None:
    text = separator.join(["acme/axpy=/k/axpy", "acme/gemm=/k/gemm"]) + trailing
    assert paths(tmp_path, LOCAL_KERNELS=text) == {"acme/axpy": "/k/axpy", "acme/gemm": "/k/gemm"}


def test_a_windows_drive_stays_whole(tmp_path: Path) -> None:
    (override,) = read_overrides({"LOCAL_KERNELS": r"acme/add=C:\k\add"}, tmp_path)
    assert str(override.path).endswith(r"C:\k\add")


def test_a_path_with_colon_and_spaces_stays_whole(tmp_path: Path) -> None:
    found = paths(tmp_path, LOCAL_KERNELS="acme/add=/k/a b:c:acme/mul=/k/m")
    assert found == {"acme/add": "/k/a b:c", "acme/mul": "/k/m"}


def test_a_json_object_names_kernels_and_folders(tmp_path: Path) -> None:
    text = json.dumps({"acme/add": "/k/a:b", "acme/mul": "m"})
    assert paths(tmp_path, KERNEL_HUB_OVERRIDES=text) == {"acme/add": "/k/a:b", "acme/mul": str(tmp_path / "m")}


def test_a_relative_folder_starts_at_the_working_folder(tmp_path: Path) -> None:
    assert paths(tmp_path, KERNEL_HUB_OVERRIDES="acme/add=out/add") == {"acme/add": str(tmp_path / "out" / "add")}


def test_ours_wins_over_the_ecosystems_variable_and_says_so(tmp_path: Path) -> None:
    (override,) = read_overrides(
        {"LOCAL_KERNELS": "acme/add=/theirs", "KERNEL_HUB_OVERRIDES": "acme/add=/ours"}, tmp_path
    )
    assert str(override.path) == "/ours"
    assert override.defined_in.startswith("KERNEL_HUB_OVERRIDES")


def test_nothing_set_is_no_override(tmp_path: Path) -> None:
    assert read_overrides({"LOCAL_KERNELS": " "}, tmp_path) == ()
