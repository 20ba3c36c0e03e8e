"""What a wheel says of itself: tags, versions and requirements for each kind of build."""

from __future__ import annotations

from dataclasses import replace
from email import message_from_string

import pytest
from packaging.tags import parse_tag
from packaging.utils import parse_wheel_filename

from kernel_hub.build.wheel_metadata import core_metadata, requirements, wheel_file, wheel_name
from kernel_hub.errors import BuildError, InvalidDocumentError
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.metadata import AtVersion, Metadata
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.variant import parse_label

METADATA = Metadata(
    name="my-kernel",
    id="_my_kernel_cpu_abc",
    version=3,
    license="apache-2.0",
    backend=BackendKind.CPU,
    archs=(),
    python_depends=(),
    source="https://example.org/k.git",
)
KINDS = {
    "torch-stable-abi211-cpu-x86_64-linux": (
        "my_kernel-3+torch.stable.abi211.cpu-cp39-abi3-manylinux_2_28_x86_64.whl", ("torch>=2.11",),
    ),
    "torch213-cxx11-cu130-aarch64-linux": (
        "my_kernel-3+torch213.cxx11.cu130-cp39-abi3-manylinux_2_28_aarch64.whl", ("torch==2.13.*",),
    ),
    "tvm-ffi01-cpu-x86_64-linux": (
        "my_kernel-3+tvm.ffi01.cpu-py3-none-manylinux_2_28_x86_64.whl", ("apache-tvm-ffi==0.1.*",),
    ),
    "torch-rocm": ("my_kernel-3+torch.rocm-py3-none-any.whl", ("torch",)),
    "torch-universal": ("my_kernel-3+torch.universal-py3-none-any.whl", ("torch",)),
}  # fmt: skip


@pytest.mark.parametrize("label", KINDS)
def test_each_kind_of_build_has_its_name_and_requirements(label: str) -> None:
    parsed = parse_label(label)
    name = wheel_name(METADATA, parsed, "manylinux_2_17")
    assert (name.file_name, requirements(METADATA, parsed)) == KINDS[label]
    distribution, version, _, tags = parse_wheel_filename(name.file_name)
    assert (distribution, version, tags) == ("my-kernel", name.version, parse_tag(name.tag))
    assert name.dist_info == f"{name.stem}.dist-info"


@pytest.mark.parametrize(
    ("policy", "tag"), [("manylinux_2_5", "2_28"), ("manylinux_2_28", "2_28"), ("manylinux_2_34", "2_34")]
)
def test_the_tag_promises_the_floor_or_what_is_newer(policy: str, tag: str) -> None:
    name = wheel_name(METADATA, parse_label("torch-stable-abi211-cpu-x86_64-linux"), policy)
    assert name.tag == f"cp39-abi3-manylinux_{tag}_x86_64"


def test_the_text_is_core_metadata() -> None:
    label = parse_label("torch-stable-abi211-cpu-x86_64-linux")
    metadata = replace(METADATA, python_depends=("einops", "tvm-ffi"))
    name = wheel_name(metadata, label, "manylinux_2_17", "Acme.My-Kernel")
    read = message_from_string(core_metadata(name, metadata, label, requirements(metadata, label), ("LICENSE",)))
    assert (read["Metadata-Version"], read["Name"], read["Version"]) == (
        "2.4", "Acme.My-Kernel", "3+torch.stable.abi211.cpu",
    )  # fmt: skip
    assert read.get_all("Requires-Dist") == ["apache-tvm-ffi", "einops", "torch>=2.11"]
    assert (read["License-Expression"], read["License-File"]) == ("Apache-2.0", "LICENSE")
    assert read["Project-URL"] == "Source, https://example.org/k.git"
    assert name.file_name.startswith("acme_my_kernel-3+")
    assert "Root-Is-Purelib: false\n" in wheel_file(name, generator="x")


def test_sources_that_import_torch_need_it_whatever_the_label_says() -> None:
    label = parse_label("tvm-ffi01-cpu-x86_64-linux")
    assert requirements(METADATA, label, imports_torch=True) == ("apache-tvm-ffi==0.1.*", "torch")
    stable = parse_label("torch-stable-abi211-cpu-x86_64-linux")
    assert requirements(METADATA, stable, imports_torch=True) == ("torch>=2.11",)


@pytest.mark.parametrize("text", ["other", "my licence\nRequires-Dist: evil"])
def test_a_licence_that_is_no_expression_stays_one_line(text: str) -> None:
    label = parse_label("torch-cpu")
    metadata = replace(METADATA, license=text)
    read = message_from_string(core_metadata(wheel_name(metadata, label, ""), metadata, label, ()))
    assert (read["License"], read["License-Expression"], read["Requires-Dist"]) == (" ".join(text.split()), None, None)


@pytest.mark.parametrize(
    ("label", "policy", "changes", "problem"),
    [
        ("torch-stable-abi211-cpu-x86_64-linux", "linux", {}, "fits no manylinux system"),
        ("torch-stable-abi211-cpu-x86_64-windows", "", {}, "is for windows"),
        ("torch213-metal-aarch64-darwin", "", {}, "is for darwin"),
        ("torch-cpu", "", {"kernel_depends": (AtVersion(RepoId("acme", "core"), 1),)}, "needs other kernels"),
        ("torch-cpu", "", {"name": "torch"}, "in place of another"),
        ("torch-cpu", "", {"name": "json"}, "in place of another"),
    ],
)
def test_what_no_wheel_can_hold_is_refused(label: str, policy: str, changes: dict[str, object], problem: str) -> None:
    with pytest.raises(BuildError, match=problem):
        wheel_name(replace(METADATA, **changes), parse_label(label), policy)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "a\nb", "ä"])
def test_a_name_that_pip_has_no_use_for_is_refused(name: str) -> None:
    with pytest.raises(InvalidDocumentError, match="not the name of a distribution"):
        wheel_name(METADATA, parse_label("torch-cpu"), "", name)


def test_a_dependency_that_is_not_known_is_refused() -> None:
    with pytest.raises(BuildError, match="'strange'"):
        requirements(replace(METADATA, python_depends=("strange",)), parse_label("torch-cpu"))
