"""Reading CUDA fat binaries."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_hub.build.audit.fatbin import DeviceCode, check_archs, device_codes


def entry(number: int, *, ptx: bool = False, flags: int = 0, size_bytes: int = 24) -> bytes:
    head = struct.pack("<HHIQ12xI8xI", 1 if ptx else 2, 0x101, 64, size_bytes, number, flags)
    return head.ljust(64, b"\0") + bytes(size_bytes)


def container(*entries: bytes) -> bytes:
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)


SPECIFIC, FAMILY = 1 << 20, 1 << 21


def test_machine_code_and_ptx_are_told_apart() -> None:
    section = container(entry(80), entry(90, ptx=True, flags=0x8011), entry(120))
    assert device_codes(section) == {DeviceCode("8.0", False), DeviceCode("9.0", True), DeviceCode("12.0", False)}


def test_suffixes_are_read() -> None:
    assert device_codes(container(entry(90, flags=SPECIFIC | 0x11), entry(100, flags=FAMILY | 0x1000011))) == {
        DeviceCode("9.0a", False),
        DeviceCode("10.0f", False),
    }


def test_containers_follow_each_other_with_gaps() -> None:
    section = container(entry(80)) + bytes(16) + container(entry(90)) + bytes(8)
    assert device_codes(section) == {DeviceCode("8.0", False), DeviceCode("9.0", False)}


@pytest.mark.parametrize("archs", [("8.0", "9.0+PTX", "9.0a"), ("9.0a", "8.0", "9.0+PTX")])
def test_a_module_that_holds_what_metadata_lists_is_right(archs: tuple[str, ...]) -> None:
    section = container(entry(80), entry(90), entry(90, ptx=True), entry(90, flags=SPECIFIC))
    assert list(check_archs(section, archs, "m.so")) == []


def test_what_is_missing_and_what_is_unsaid_are_named() -> None:
    section = container(entry(80), entry(90))
    found = list(check_archs(section, ("8.0", "9.0+PTX"), "m.so"))
    assert [(item.subject, item.problem) for item in found] == [
        ("PTX for 9.0", "is stated in metadata and not in the module")
    ]
    found = list(check_archs(section, ("8.0",), "m.so"))
    assert [(item.subject, item.problem) for item in found] == [
        ("machine code for 9.0", "is in the module and not stated in metadata")
    ]


def test_a_module_without_device_code_holds_nothing() -> None:
    assert [item.subject for item in check_archs(None, ("8.0",), "m.so")] == ["machine code for 8.0"]
    assert list(check_archs(None, (), "m.so")) == []


@given(st.binary(max_size=400))
def test_no_bytes_make_reading_fail(content: bytes) -> None:
    device_codes(content)


@given(st.integers(0, 300))
def test_a_section_cut_short_yields_no_more_than_it_holds(size_bytes: int) -> None:
    section = container(entry(80), entry(90), entry(100))
    assert device_codes(section[:size_bytes]) <= device_codes(section)
