"""The lists that hide GPUs."""

from __future__ import annotations

import pytest

from kernel_hub.detect.visible import Unclear, choose

UUIDS = ["GPU-aaaa1111-00", "GPU-aaaa2222-00", "GPU-bbbb3333-00"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", (0,)),
        ("2,0", (2, 0)),
        (" 1 , 2 ", (1, 2)),
        ("", ()),
        ("   ", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0,2,-1,1", (0, 2)),
        ("0,3,1", (0,)),
        ("99", ()),
        ("GPU-bbbb", (2,)),
        ("gpu-AAAA2222-00,0", (1, 0)),
        ("GPU-cccc,0", ()),
    ],
)
def test_a_list_leaves_these_devices_visible(text: str, expected: tuple[int, ...]) -> None:
    assert choose(text, UUIDS) == expected


@pytest.mark.parametrize("text", ["all", "0x1", "0,,1", "0 1", "GPU-aaaa", "1,1", "GPU-bbbb,2", "MIG-x", "٣", "1.0"])
def test_a_list_that_cannot_be_interpreted_is_unclear_not_guessed(text: str) -> None:
    assert isinstance(choose(text, UUIDS), Unclear)


def test_without_devices_every_well_formed_list_is_empty() -> None:
    assert choose("0,1", []) == ()
    assert choose("GPU-aaaa", []) == ()
