"""GPU architectures: reading them, and what runs on what."""

from __future__ import annotations

import pytest

from kernel_hub.model.capability import (
    CudaArch,
    CudaCapability,
    Fit,
    RocmArch,
    UnknownArch,
    fit,
    parse_arch,
    parse_capability,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8.0", CudaArch(CudaCapability(8, 0))),
        ("9.0a", CudaArch(CudaCapability(9, 0), "a")),
        ("10.0f", CudaArch(CudaCapability(10, 0), "f")),
        ("12.0+PTX", CudaArch(CudaCapability(12, 0), "", True)),
        ("10.3f+PTX", CudaArch(CudaCapability(10, 3), "f", True)),
        ("gfx942", RocmArch("gfx942")),
        ("gfx90a", RocmArch("gfx90a")),
        ("gfx9-generic", UnknownArch("gfx9-generic")),
        ("9.0b", UnknownArch("9.0b")),
        ("9.0 ", UnknownArch("9.0 ")),
        ("9.0+ptx", UnknownArch("9.0+ptx")),
        ("90", UnknownArch("90")),
        ("9.10", UnknownArch("9.10")),
        ("sm_90", UnknownArch("sm_90")),
        ("", UnknownArch("")),
    ],
)
def test_an_architecture_is_read_or_kept_as_unknown_text(text: str, expected: object) -> None:
    assert parse_arch(text) == expected
    assert str(parse_arch(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9.0", CudaCapability(9, 0)),
        ("12.1", CudaCapability(12, 1)),
        ("gfx942:sramecc+:xnack-", RocmArch("gfx942")),
        ("gfx1100", RocmArch("gfx1100")),
        ("9.0a", UnknownArch("9.0a")),
        ("bmg-g21", UnknownArch("bmg-g21")),
        ("pvc:1", UnknownArch("pvc:1")),
    ],
)
def test_a_devices_architecture_is_read_without_its_features(text: str, expected: object) -> None:
    assert parse_capability(text) == expected


@pytest.mark.parametrize(
    ("archs", "device", "expected"),
    [
        (["8.0", "9.0a"], "8.6", Fit.NATIVE),
        (["8.0", "9.0a"], "9.0", Fit.NATIVE),
        (["8.0", "9.0a"], "10.0", Fit.NONE),
        (["8.6"], "8.0", Fit.NONE),
        (["9.0+PTX"], "9.0", Fit.NATIVE),
        (["9.0+PTX"], "12.0", Fit.PTX),
        (["9.0+PTX"], "8.9", Fit.NONE),
        (["10.0f"], "10.3", Fit.NATIVE),
        (["10.3f"], "10.0", Fit.NONE),
        (["10.0f"], "12.0", Fit.NONE),
        (["9.0a"], "9.1", Fit.NONE),
        (["8.0+PTX", "12.0"], "12.0", Fit.NATIVE),
        (["gfx90a", "gfx942"], "gfx942", Fit.NATIVE),
        (["gfx90a"], "gfx942", Fit.NONE),
        (["gfx942"], "9.0", Fit.NONE),
        (["9.0"], "gfx942", Fit.NONE),
        (["quantum"], "9.0", Fit.UNKNOWN),
        (["8.0", "quantum"], "9.0", Fit.UNKNOWN),
        (["9.0", "quantum"], "9.0", Fit.NATIVE),
        (["9.0"], "quantum", Fit.UNKNOWN),
        ([], "9.0", Fit.NATIVE),
        ([], "quantum", Fit.NATIVE),
    ],
)
def test_the_best_architecture_of_a_build_decides_how_it_fits(archs: list[str], device: str, expected: Fit) -> None:
    assert fit([parse_arch(text) for text in archs], parse_capability(device)) is expected


def test_fits_are_ordered_from_none_to_native() -> None:
    assert sorted(Fit, reverse=True) == [Fit.NATIVE, Fit.PTX, Fit.UNKNOWN, Fit.NONE]
