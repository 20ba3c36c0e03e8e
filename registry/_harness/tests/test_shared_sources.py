"""Copies of shared sources are equal, and the script that makes them so works."""

from __future__ import annotations

import shutil
from pathlib import Path

from registry._harness import shared_sources


def test_the_copies_in_the_repository_are_equal() -> None:
    assert shared_sources.differing() == []


def test_a_differing_copy_is_found_and_overwritten(tmp_path: Path) -> None:
    for source, copy in shared_sources.PAIRS:
        for name in (source, copy):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(shared_sources.REGISTRY / source, tmp_path / name)
    assert shared_sources.differing(tmp_path) == []
    edited, missing = (tmp_path / copy for _, copy in shared_sources.PAIRS[:2])
    edited.write_text("changed")
    missing.unlink()
    assert [copy for _, copy in shared_sources.differing(tmp_path)] == [edited, missing]
    assert shared_sources.synchronise(tmp_path) == [edited, missing]
    assert shared_sources.differing(tmp_path) == []
