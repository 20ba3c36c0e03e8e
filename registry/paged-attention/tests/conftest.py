"""The kernel under test, native and Triton, as a registry gives it back (registry/_harness/published.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from registry._harness import published

KERNEL = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def native() -> published.Kernel:
    return published.kernel_of(KERNEL, "native")


@pytest.fixture(scope="session")
def triton() -> published.Kernel:
    return published.kernel_of(KERNEL, "triton")


@pytest.fixture(params=["native", "triton"])
def kernel(request: pytest.FixtureRequest) -> published.Kernel:
    return request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    with published.poisoned_memory():
        yield
