"""What the oldest system offers, and the stubs that a link sees in place of the machine's own libraries."""

from __future__ import annotations

import pytest

from kernel_hub.build.audit.elf import Symbol
from kernel_hub.build.audit.floor import above_floor, is_within_floor
from kernel_hub.build.floor import stub_sources


def symbol(name: str, version: str) -> Symbol:
    return Symbol(name, version, "libc.so.6", False, False)


@pytest.mark.parametrize(
    ("version", "within"),
    [
        ("GLIBC_2.28", True),
        ("GLIBC_2.2.5", True),
        ("GLIBC_2.29", False),
        ("GLIBC_2.100", False),
        ("GLIBC_3.0", False),
        ("GLIBC_PRIVATE", False),
        ("GLIBC_ABI_DT_RELR", False),
        ("GLIBCXX_3.4.24", True),
        ("GLIBCXX_3.4.25", False),
        ("GLIBCXX_3.4", True),
        ("CXXABI_1.3.11", True),
        ("CXXABI_1.3.12", False),
        ("GCC_7.0.0", True),
        ("GCC_12.0.0", False),
        ("libcudart.so.13", True),
        ("LIBGOMP_9.0", True),
        ("", True),
    ],
)
def test_versions_are_compared_as_numbers_with_the_platform_tags_limits(version: str, within: bool) -> None:
    assert is_within_floor(version) is within


def test_what_is_above_the_floor_is_named_in_order() -> None:
    symbols = [symbol("stat", "GLIBC_2.33"), symbol("memcpy", "GLIBC_2.14"), symbol("exp", "GLIBC_2.29")]
    assert [str(item) for item in above_floor(symbols)] == ["exp@GLIBC_2.29", "stat@GLIBC_2.33"]


def test_a_stub_offers_the_newest_version_within_the_floor_and_nothing_newer() -> None:
    sources = stub_sources(
        [
            symbol("memcpy", "GLIBC_2.2.5"),
            symbol("memcpy", "GLIBC_2.14"),
            symbol("exp", "GLIBC_2.29"),
            symbol("exp", "GLIBC_2.2.5"),
            symbol("stat", "GLIBC_2.33"),
            symbol("_dl_private", "GLIBC_PRIVATE"),
            symbol("unversioned", ""),
        ]
    )
    assert sources.version_script.splitlines() == [
        "GLIBC_2.2.5 { global: exp; };",
        "GLIBC_2.14 { global: memcpy; };",
        "NONE { local: *; };",
    ]
    assert "memcpy:" in sources.assembly
    assert "stat" not in sources.assembly


def test_a_stub_does_not_depend_on_the_order_of_symbols() -> None:
    symbols = [symbol("a", "GLIBC_2.3"), symbol("b", "GLIBC_2.2.5"), symbol("a", "GLIBC_2.2.5")]
    assert stub_sources(symbols) == stub_sources(reversed(symbols))
