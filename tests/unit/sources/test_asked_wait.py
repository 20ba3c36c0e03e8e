"""How long a server asks to wait, in every form that it may be written, and in none."""

from __future__ import annotations

import pytest

from kernel_hub.sources.hub_refusal import asked_wait_s


@pytest.mark.parametrize(("headers", "wait_s"), [({"retry-after": "7"}, 7.0), ({"retry-after": "0"}, 0.0), ({}, None)])
def test_seconds_are_read(headers: dict[str, str], wait_s: float | None) -> None:
    assert asked_wait_s(headers) == wait_s


def test_a_date_that_has_passed_is_no_wait() -> None:
    assert asked_wait_s({"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}) == 0.0


@pytest.mark.parametrize(
    "text",
    ["soon", "-1", "1e3", "Fri, 31 Dec 99999999999999999999 23:59:59 GMT", "Fri, 99 Dec 2026 23:59:59 GMT", "\0"],
)
def test_what_is_neither_is_ignored(text: str) -> None:
    assert asked_wait_s({"retry-after": text}) is None
