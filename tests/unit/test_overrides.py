"""Local overrides in every spelling that people use."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.requirement import RepoId
from kernel_hub.overrides import near_misses, read_overrides


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


@pytest.mark.parametrize(
    "text", ["acme", "acme/axpy", "acme/axpy=", "axpy=/x", "{", '{"axpy": "/x"}', '{"acme/axpy": 1}']
)
def test_an_entry_that_cannot_be_read_names_the_variable_and_shows_how(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        read_overrides({"LOCAL_KERNELS": text}, tmp_path)
    assert caught.value.document == "LOCAL_KERNELS"
    assert "org/name=/path" in caught.value.hint()


@pytest.mark.parametrize(
    ("asked", "is_near"),
    [
        ("acme/flash-attn", True),
        ("acme/flash-atn", False),
        ("acme/flash-atn2", True),
        ("labs/flash-attn", False),
        ("acme/flash-attention", False),
    ],
)
def test_an_override_that_is_probably_misspelt_is_found(tmp_path: Path, asked: str, is_near: bool) -> None:
    overrides = read_overrides({"KERNEL_HUB_OVERRIDES": "acme/flash-atn=/k"}, tmp_path)
    assert bool(near_misses(overrides, RepoId.parse(asked))) == is_near


def test_short_names_that_share_little_are_no_misspellings(tmp_path: Path) -> None:
    overrides = read_overrides({"KERNEL_HUB_OVERRIDES": "acme/add=/k"}, tmp_path)
    assert near_misses(overrides, RepoId.parse("acme/and2")) == ()
