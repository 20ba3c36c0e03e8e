"""What a new kernel may be called and be made of."""

from __future__ import annotations

import pytest

from kernel_hub.build.blueprint import Abi, Blueprint, Part
from kernel_hub.errors import InvalidDocumentError


def test_parts_have_one_order_and_are_counted_once() -> None:
    blueprint = Blueprint.parse("my-kernel", ["triton", "cpu", "cpu"], "stable")
    assert blueprint.parts == (Part.CPU, Part.TRITON)
    assert (blueprint.abi, blueprint.python_name, blueprint.compiled) == (Abi.STABLE, "my_kernel", (Part.CPU,))


@pytest.mark.parametrize(
    ("parts", "backends"),
    [(["cpu"], ()), (["triton"], ("cuda", "rocm", "xpu")), (["cuda", "triton"], ("rocm", "xpu"))],
)
def test_triton_serves_the_gpus_that_nothing_is_compiled_for(parts: list[str], backends: tuple[str, ...]) -> None:
    assert Blueprint.parse("my-kernel", parts, "stable").triton_backends == backends


@pytest.mark.parametrize(
    ("name", "parts", "abi", "license", "location"),
    [
        ("My-Kernel", ["cpu"], "stable", "MIT", "name"),
        ("k", ["cpu"], "stable", "MIT", "name"),
        ("../up", ["cpu"], "stable", "MIT", "name"),
        ("", ["cpu"], "stable", "MIT", "name"),
        ("class", ["cpu"], "stable", "MIT", "name"),
        ("json", ["cpu"], "stable", "MIT", "name"),
        ("torch", ["cpu"], "stable", "MIT", "name"),
        ("layers", ["cpu"], "stable", "MIT", "name"),
        ("my-kernel", [], "stable", "MIT", "backends"),
        ("my-kernel", ["cpu", "metal"], "stable", "MIT", "backends"),
        ("my-kernel", ["cpu"], "abi3", "MIT", "abi"),
        ("my-kernel", ["cpu"], "stable", 'MIT"\nx = "', "license"),
        ("my-kernel", ["cpu"], "stable", "", "license"),
    ],
)
def test_what_no_project_can_be_made_from_is_refused_by_name(
    name: str, parts: list[str], abi: str, license: str, location: str
) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        Blueprint.parse(name, parts, abi, license)
    assert (caught.value.document, caught.value.location) == ("new kernel", location)
