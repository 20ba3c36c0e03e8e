"""Which commits a publication makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_hub.build.outgoing import OutgoingBuild, OutgoingFile
from kernel_hub.build.sending import Bounds, Plan, divided
from kernel_hub.errors import PublishRefusedError
from kernel_hub.model.metadata import Metadata
from tests.support.fake_kernels import fake_build

METADATA = Metadata.parse(fake_build("torch-cpu")["metadata.json"])


def file(path: str, size_bytes: int = 1) -> OutgoingFile:
    return OutgoingFile.of_bytes(path, b"x" * size_bytes)


def build(label: str) -> OutgoingBuild:
    return OutgoingBuild(label, Path(label), METADATA, ())


def plan(sizes: dict[str, list[int]], others: int = 0, stale: dict[str, int] | None = None) -> Plan:
    additions = [file(f"build/{label}/f{n}.py", size) for label, found in sizes.items() for n, size in enumerate(found)]
    additions += [file(f"benchmarks/b{n}.py") for n in range(others)]
    deletions = [f"build/{label}/old{n}.py" for label, count in (stale or {}).items() for n in range(count)]
    return Plan(tuple(additions), tuple(deletions), 0)


def test_what_fits_is_one_commit() -> None:
    whole = plan({"torch-cpu": [1, 2], "torch-cuda": [3]}, others=1, stale={"torch-cpu": 1})
    assert divided(whole, [build("torch-cpu"), build("torch-cuda")], Bounds()) == (whole,)


def test_too_many_files_are_whole_builds_in_several_commits() -> None:
    whole = plan({"torch-cpu": [1] * 3, "torch-cuda": [1] * 3, "torch-xpu": [1]}, others=1, stale={"torch-xpu": 2})
    labels = [build(label) for label in ("torch-cpu", "torch-cuda", "torch-xpu")]
    commits = divided(whole, labels, Bounds(files=4))
    assert [len(commit.additions) + len(commit.deletions) for commit in commits] == [3, 3, 4]
    assert {path.path.split("/")[1] for path in commits[0].additions} == {"torch-cpu"}


def test_large_files_are_sent_before_and_do_not_count() -> None:
    whole = plan({"torch-cpu": [50], "torch-cuda": [50]})
    bounds = Bounds(carried_bytes=60, large_from_bytes=40)
    assert len(divided(whole, [build("torch-cpu"), build("torch-cuda")], bounds)) == 1
    assert len(divided(whole, [build("torch-cpu"), build("torch-cuda")], Bounds(carried_bytes=60))) == 2


def test_a_build_that_is_too_large_is_refused_by_name() -> None:
    whole = plan({"torch-cpu": [1] * 5})
    with pytest.raises(PublishRefusedError, match=r"build torch-cpu changes 5 files .* at most 4 files"):
        divided(whole, [build("torch-cpu")], Bounds(files=4))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6), st.integers(0, 3))
def test_nothing_is_lost_doubled_or_divided(counts: list[tuple[int, int]], others: int) -> None:
    labels = [f"torch29-cxx11-cu{120 + n}-x86_64-linux" for n in range(len(counts))]
    whole = plan(
        {label: [1] * added for label, (added, _) in zip(labels, counts)},
        others,
        {label: gone for label, (_, gone) in zip(labels, counts)},
    )
    commits = divided(whole, [build(label) for label in labels], Bounds(files=8))
    assert sorted(path.path for commit in commits for path in commit.additions) == sorted(
        path.path for path in whole.additions
    )
    assert sorted(path for commit in commits for path in commit.deletions) == sorted(whole.deletions)
    for label in labels:
        holding = [
            commit
            for commit in commits
            if any(f"/{label}/" in path for path in (*(file.path for file in commit.additions), *commit.deletions))
        ]
        assert len(holding) <= 1
