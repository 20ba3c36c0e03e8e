"""AMD devices from the kernel's topology files."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel_hub.detect import Probes, detect
from kernel_hub.detect.rocm import target_of

Describe = Callable[..., Probes]
TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"


def node(number: int, version: int, unique_id: int = 0) -> dict[str, str]:
    folder = f"{TOPOLOGY}/{number}"
    properties = f"simd_count 304\ngfx_target_version {version}\nunique_id {unique_id}\n"
    return {f"{folder}/gpu_id": "4098\n", f"{folder}/properties": properties}


THREE = node(1, 90402, 0xA1) | node(2, 90010, 0xA2) | node(10, 110000, 0xA3)


def archs(describe_machine: Describe, files: dict[str, str], **environ: str) -> list[str] | None:
    host = detect(describe_machine("mi300", files=files, environ=environ))
    return None if host.devices is None else [str(device.arch) for device in host.devices]


@pytest.mark.parametrize(
    ("version", "target"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (90006, "gfx906"),
        (90500, "gfx950"),
        (100302, "gfx1032"),
        (110000, "gfx1100"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
    ],
)
def test_the_kernels_number_names_the_target(version: int, target: str) -> None:
    assert str(target_of(version)) == target


@pytest.mark.parametrize("version", [0, 5, 90099, 91600, 1_000_000_000, -1])
def test_a_number_that_names_no_target_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match="gfx_target_version"):
        target_of(version)


def test_devices_keep_the_order_of_their_node_numbers(describe_machine: Describe) -> None:
    assert archs(describe_machine, THREE) == ["gfx942", "gfx90a", "gfx1100"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ROCR_VISIBLE_DEVICES": "2,0"}, ["gfx1100", "gfx942"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-00000000000000A2"}, ["gfx90a"]),
        ({"ROCR_VISIBLE_DEVICES": "2,1", "HIP_VISIBLE_DEVICES": "0"}, ["gfx1100"]),
        ({"HIP_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, ["gfx90a"]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ["gfx942"]),
        ({"GPU_DEVICE_ORDINAL": "1,2", "HIP_VISIBLE_DEVICES": "1"}, ["gfx1100"]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "all"}, None),
        ({"HSA_OVERRIDE_GFX_VERSION": "10.3.0", "HIP_VISIBLE_DEVICES": "2"}, ["gfx1030"]),
        ({"HSA_OVERRIDE_GFX_VERSION": "newest"}, None),
        ({"HSA_OVERRIDE_GFX_VERSION_1": "10.3.0"}, None),
    ],
)
def test_variables_hide_reorder_and_override_devices(
    environ: dict[str, str], expected: list[str] | None, describe_machine: Describe
) -> None:
    assert archs(describe_machine, THREE, **environ) == expected


def test_a_node_that_is_hidden_or_a_cpu_is_no_device(describe_machine: Describe) -> None:
    files = node(1, 90402) | {f"{TOPOLOGY}/0/gpu_id": "0\n", f"{TOPOLOGY}/0/properties": "cpu_cores_count 96\n"}
    files |= {f"{TOPOLOGY}/2/gpu_id": "", f"{TOPOLOGY}/notes": ""}
    assert archs(describe_machine, files) == ["gfx942"]


def test_a_topology_that_cannot_be_read_makes_devices_unknown(describe_machine: Describe) -> None:
    broken = {f"{TOPOLOGY}/1/gpu_id": "7\n", f"{TOPOLOGY}/1/properties": "gfx_target_version nine\n"}
    assert archs(describe_machine, node(2, 90402) | broken) is None
    assert archs(describe_machine, {f"{TOPOLOGY}/1/gpu_id": "7\n"}) is None


def test_without_the_compute_driver_there_is_no_device_unless_windows_lies_around(describe_machine: Describe) -> None:
    assert archs(describe_machine, {}) == []
    assert archs(describe_machine, {"/dev/dxg": ""}) is None


def test_a_gpu_of_amd_is_told_beside_a_torch_that_cannot_use_it(describe_machine: Describe) -> None:
    host = detect(describe_machine("cpu-only-cpu-torch", files=node(1, 110000)))
    assert [str(device.arch) for device in host.devices or ()] == ["gfx1100"]
    asked = host.for_backend("rocm")
    assert asked.devices == host.devices
    assert host.for_backend("cuda").devices is None
