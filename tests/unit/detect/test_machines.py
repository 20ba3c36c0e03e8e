"""Whole machines: what is detected on each described one is exactly its golden host."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.detect import Probes, detect
from kernel_hub.model.host import Host, describe

VECTORS = Path(__file__).parents[2] / "vectors"
MACHINES = sorted(path.stem for path in (VECTORS / "machines").glob("*.json"))
GOLDEN = sorted(path.stem for path in (VECTORS / "hosts").glob("*.json"))


def test_every_described_machine_has_a_golden_host_and_the_reverse() -> None:
    assert MACHINES == GOLDEN
    assert len(GOLDEN) >= 14


@pytest.mark.parametrize("name", MACHINES)
def test_a_described_machine_is_detected_as_its_golden_host(
    name: str, describe_machine: Callable[..., Probes], tmp_path: Path
) -> None:
    found = json.dumps(detect(describe_machine(name)).to_json(), indent=2) + "\n"
    (tmp_path / f"{name}.json").write_text(found)
    assert found == (VECTORS / "hosts" / f"{name}.json").read_text(), f"what was found is in {tmp_path}"


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_host_survives_reading_and_writing_byte_for_byte(name: str) -> None:
    text = (VECTORS / "hosts" / f"{name}.json").read_text()
    assert json.dumps(Host.from_json(json.loads(text)).to_json(), indent=2) + "\n" == text


@pytest.mark.parametrize("name", GOLDEN)
def test_every_fact_of_a_golden_host_says_how_it_was_found(name: str) -> None:
    host = Host.from_json(json.loads((VECTORS / "hosts" / f"{name}.json").read_text()))
    rows = describe(host)
    assert all(how for _, _, how in rows), rows
    assert [fact for fact, _, _ in rows] == list(host.probes)


@pytest.mark.parametrize(
    ("name", "line", "pre_release"),
    [
        ("nightly", (2, 9), True),
        ("torch-from-source", (2, 10), True),
        ("ngc", (2, 5), True),
        ("a100", (2, 9), False),
        ("h100", (2, 13), False),
    ],
)
def test_every_way_to_write_torchs_version_tells_its_release_line(
    name: str, line: tuple[int, int], pre_release: bool, describe_machine: Callable[..., Probes]
) -> None:
    torch = detect(describe_machine(name)).torch
    assert torch is not None
    assert (torch.major, torch.minor) == line
    assert torch.is_prerelease is pre_release


def test_the_given_environment_replaces_that_of_the_probes(describe_machine: Callable[..., Probes]) -> None:
    host = detect(describe_machine("b200"), environ={"CUDA_VISIBLE_DEVICES": "1"})
    assert [device.index for device in host.devices or ()] == [0]
