"""NVIDIA devices through NVML, and what is said where NVML cannot be asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernel_hub.detect import Probes, detect
from kernel_hub.model.host import Host

Describe = Callable[..., Probes]

UNLIKE: dict[str, Any] = {
    "driver": "580.65.06",
    "gpus": [
        {"name": "NVIDIA GeForce RTX 3090", "arch": "8.6", "uuid": "GPU-aaaa"},
        {"name": "NVIDIA GeForce RTX 5090", "arch": "12.0", "uuid": "GPU-bbbb"},
    ],
}
MIGS = [{"name": "NVIDIA A100 MIG 1g.5gb", "uuid": "MIG-1111"}, {"name": "NVIDIA A100 MIG 2g.10gb", "uuid": "MIG-2222"}]
DIVIDED = {"name": "NVIDIA A100", "arch": "8.0", "uuid": "GPU-cccc", "migs": MIGS}
WHOLE = {"name": "NVIDIA A100", "arch": "8.0", "uuid": "GPU-dddd"}
NO_LIBRARY = {"error": 12, "text": "NVML Shared Library Not Found"}
NO_DRIVER = {"error": 9, "text": "Driver Not Loaded"}
LIBRARY = "/usr/lib64/libnvidia-ml.so.1"
MISMATCH = {"error": 18, "text": "Driver/library version mismatch"}


def devices(host: Host) -> list[str] | None:
    return None if host.devices is None else [str(device) for device in host.devices]


def see(describe_machine: Describe, gpus: list[dict[str, Any]], visible: str | None = None, **environ: str) -> Host:
    variables = environ if visible is None else {"CUDA_VISIBLE_DEVICES": visible, **environ}
    return detect(describe_machine("h100", nvml={"driver": "580.65.06", "gpus": gpus}, environ=variables))


def test_devices_are_numbered_as_the_variable_orders_them(describe_machine: Describe) -> None:
    host = see(describe_machine, UNLIKE["gpus"], "1,0", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    assert devices(host) == [
        "device 0 (NVIDIA GeForce RTX 5090, 12.0)",
        "device 1 (NVIDIA GeForce RTX 3090, 8.6)",
    ]


def test_unlike_devices_named_by_uuid_are_known_in_any_order(describe_machine: Describe) -> None:
    host = see(describe_machine, UNLIKE["gpus"], "GPU-bbbb")
    assert devices(host) == ["device 0 (NVIDIA GeForce RTX 5090, 12.0)"]


def test_unlike_devices_named_by_index_are_unknown_unless_ordered_by_bus(describe_machine: Describe) -> None:
    host = see(describe_machine, UNLIKE["gpus"], "0")
    assert host.devices is None
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in host.probes["devices"]


def test_unlike_devices_that_are_all_visible_are_known_with_a_note_on_their_order(describe_machine: Describe) -> None:
    host = see(describe_machine, UNLIKE["gpus"])
    assert len(host.devices or ()) == 2
    assert "PCI bus" in host.probes["devices"]


@pytest.mark.parametrize("visible", ["", "-1", "NoDevFiles", "7"])
def test_hiding_every_device_leaves_none(visible: str, describe_machine: Describe) -> None:
    host = see(describe_machine, [WHOLE], visible)
    assert host.devices == ()
    assert host.for_backend(None).backend != host.backend


def test_a_list_that_is_not_understood_makes_devices_unknown(describe_machine: Describe) -> None:
    host = see(describe_machine, [WHOLE], "first")
    assert host.devices is None
    assert "'first' is not understood" in host.probes["devices"]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["device 0 (NVIDIA A100 MIG 1g.5gb, 8.0)"]),
        ("0", ["device 0 (NVIDIA A100 MIG 1g.5gb, 8.0)"]),
        ("MIG-2222", ["device 0 (NVIDIA A100 MIG 2g.10gb, 8.0)"]),
        ("MIG-2222,MIG-1111", ["device 0 (NVIDIA A100 MIG 2g.10gb, 8.0)"]),
        ("MIG-GPU-cccc/1/0", ["device 0 (NVIDIA A100, 8.0)"]),
        ("MIG-9999", None),
        ("", []),
    ],
)
def test_of_a_divided_gpu_a_process_sees_one_instance(
    visible: str | None, expected: list[str] | None, describe_machine: Describe
) -> None:
    assert devices(see(describe_machine, [DIVIDED], visible)) == expected


def test_a_divided_gpu_without_instances_offers_no_device(describe_machine: Describe) -> None:
    assert devices(see(describe_machine, [DIVIDED | {"migs": [None, None]}])) == []


def test_divided_and_whole_gpus_together_are_unknown_until_one_is_named(describe_machine: Describe) -> None:
    assert devices(see(describe_machine, [DIVIDED, WHOLE])) is None
    assert devices(see(describe_machine, [DIVIDED, WHOLE], "1")) == ["device 0 (NVIDIA A100, 8.0)"]


def test_a_lost_gpu_makes_devices_unknown_and_leaves_the_driver_known(describe_machine: Describe) -> None:
    host = see(describe_machine, [WHOLE, {"error": 15, "text": "GPU is lost"}])
    assert host.devices is None
    assert "GPU is lost" in host.probes["devices"]
    assert host.driver == "580.65.06"


def test_a_binding_that_answers_bytes_is_understood(describe_machine: Describe) -> None:
    nvml = {"driver": "470.82.01", "gpus": [WHOLE], "answers_bytes": True}
    assert devices(detect(describe_machine("h100", nvml=nvml))) == ["device 0 (NVIDIA A100, 8.0)"]


def test_nvml_is_shut_down_also_when_a_question_fails(describe_machine: Describe) -> None:
    for gpus in ([WHOLE], [{"error": 15, "text": "GPU is lost"}]):
        probes = describe_machine("h100", nvml={"driver": "580.65.06", "gpus": gpus})
        nvml = probes.load_nvml()
        detect(replace(probes, load_nvml=lambda nvml=nvml: nvml))
        assert nvml.is_shut_down


@pytest.mark.parametrize(
    ("nvml", "files", "expected"),
    [
        (NO_LIBRARY, [], []),
        (NO_DRIVER, [], []),
        (NO_DRIVER, [LIBRARY], []),
        (NO_LIBRARY, ["/dev/nvidia0"], None),
        (NO_LIBRARY, ["/dev/dxg"], None),
        (NO_DRIVER, ["/proc/driver/nvidia/gpus/0000:01:00.0/information"], None),
        (MISMATCH, [LIBRARY], None),
        (None, [], []),
        (None, ["/dev/nvidiactl"], []),
        (None, ["/dev/nvidia3"], None),
        (None, [LIBRARY], None),
        (None, ["/usr/lib/wsl/lib/libnvidia-ml.so.1"], None),
    ],
)
def test_no_device_is_only_claimed_where_the_system_shows_no_sign_of_one(
    nvml: dict[str, Any] | None, files: list[str], expected: list[str] | None, describe_machine: Describe
) -> None:
    host = detect(describe_machine("h100", nvml=nvml, files=dict.fromkeys(files, "")))
    assert devices(host) == expected
    assert host.probes["devices"]


def test_a_library_that_only_the_linkers_cache_knows_is_a_sign_of_a_driver(describe_machine: Describe) -> None:
    cache = {"/etc/ld.so.cache": "glibc-ld.so.cache1.1\0libnvidia-ml.so.1\0/opt/nvidia/lib/libnvidia-ml.so.1\0"}
    host = detect(describe_machine("h100", files=cache))
    assert devices(host) == ["device 0 (NVIDIA H100 80GB HBM3, 9.0)"]


def test_a_machine_without_a_sign_of_a_driver_is_not_made_to_load_the_binding(describe_machine: Describe) -> None:
    asked = []

    def load() -> Any:
        asked.append("nvml")
        raise ImportError

    host = detect(replace(describe_machine("cpu-only-cuda-torch"), load_nvml=load))
    assert host.devices == ()
    assert asked == []


@pytest.mark.parametrize(("nvml", "expected"), [(NO_LIBRARY, []), (NO_DRIVER, []), (MISMATCH, None), (None, None)])
def test_on_windows_nvml_alone_decides(
    nvml: dict[str, Any] | None, expected: list[str] | None, describe_machine: Describe
) -> None:
    assert devices(detect(describe_machine("windows-cuda", nvml=nvml))) == expected


def test_without_the_binding_the_probe_says_what_to_install(describe_machine: Describe) -> None:
    host = detect(describe_machine("gpu-without-nvml-binding"))
    assert "kernel-hub[gpu]" in host.probes["devices"]
    assert host.driver == "580.65.06"


def test_a_binding_that_breaks_on_import_makes_devices_unknown(describe_machine: Describe) -> None:
    def fail() -> Any:
        raise OSError("libnvidia-ml.so.1: wrong ELF class")

    host = detect(replace(describe_machine("gpu-without-nvml-binding"), load_nvml=fail))
    assert host.devices is None
    assert "wrong ELF class" in host.probes["devices"]


@pytest.mark.parametrize(("visible", "expected"), [("0", 1), ("", 0), ("nothing", None)])
def test_the_integrated_gpu_of_a_board_can_be_hidden_too(
    visible: str, expected: int | None, describe_machine: Describe
) -> None:
    host = detect(describe_machine("jetson-orin", environ={"CUDA_VISIBLE_DEVICES": visible}))
    assert (None if host.devices is None else len(host.devices)) == expected


def test_a_board_whose_chip_is_not_known_is_unknown(describe_machine: Describe) -> None:
    files = {"/proc/device-tree/compatible": "nvidia,tegra999\0", "/dev/nvhost-gpu": ""}
    assert detect(describe_machine("jetson-orin", files=files)).devices is None
