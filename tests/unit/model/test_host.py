"""A machine as a value: its JSON form, what a caller's backend makes of it, and its text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import Backend, BackendKind
from kernel_hub.model.host import Host, describe

HOSTS = Path(__file__).parents[2] / "vectors" / "hosts"


def golden(name: str) -> Host:
    return Host.from_json(json.loads((HOSTS / f"{name}.json").read_text()))


def test_every_key_is_optional_and_missing_means_unknown() -> None:
    assert Host.from_json({}) == Host()
    assert Host.from_json(dict.fromkeys(Host().to_json())) == Host()


@pytest.mark.parametrize(
    ("document", "location"),
    [
        ([], ""),
        ("h100", ""),
        ({"gpu": "H100"}, "gpu"),
        ({"torch": "latest"}, "torch"),
        ({"torch": 2.13}, "torch"),
        ({"cpu": ""}, "cpu"),
        ({"os": 1}, "os"),
        ({"cxx11_abi": "yes"}, "cxx11_abi"),
        ({"free_threaded": 1}, "free_threaded"),
        ({"cpu_features": "avx2"}, "cpu_features"),
        ({"cpu_features": [1]}, "cpu_features"),
        ({"backend": "cuda", "backend_version": "x"}, "backend_version"),
        ({"devices": {}}, "devices"),
        ({"devices": ["9.0"]}, "devices[0]"),
        ({"devices": [{"arch": "9.0"}, {"name": "H100"}]}, "devices[1]"),
        ({"devices": [{"arch": 9.0}]}, "devices[0]"),
        ({"devices": [{"arch": "9.0", "name": None}]}, "devices[0]"),
        ({"devices": [{"arch": "9.0", "index": -1}]}, "devices[0].index"),
        ({"devices": [{"arch": "9.0", "index": True}]}, "devices[0].index"),
        ({"probes": {"cpu": 1}}, "probes"),
        ({"probes": []}, "probes"),
        ({"probes": ["cpu"]}, "probes"),
    ],
)
def test_a_document_at_fault_is_refused_with_the_place_of_the_fault(document: Any, location: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        Host.from_json(document, name="box.json")
    assert caught.value.location == location
    assert caught.value.document == "box.json"


def test_a_backend_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidDocumentError, match="'vulkan' is not a backend"):
        Host.from_json({"backend": "vulkan"})


def test_a_device_without_index_takes_its_place_in_the_list() -> None:
    host = Host.from_json({"devices": [{"arch": "8.6"}, {"arch": "gfx942:sramecc+:xnack-", "name": "MI300X"}]})
    assert [str(device) for device in host.devices or ()] == ["device 0 (unnamed, 8.6)", "device 1 (MI300X, gfx942)"]


@pytest.mark.parametrize(
    ("machine", "asked", "expected"),
    [
        ("h100", None, "CUDA 13.0"),
        ("h100", "auto", "CUDA 13.0"),
        ("h100", "cuda", "CUDA 13.0"),
        ("h100", "cpu", "CPU"),
        ("h100", "rocm", "ROCm"),
        ("cpu-only-cuda-torch", None, "CPU"),
        ("cpu-only-cuda-torch", "auto", "CPU"),
        ("cpu-only-cuda-torch", "cpu", "CPU"),
        ("cpu-only-cuda-torch", "cuda", "CUDA 13.0"),
        ("gpu-without-nvml-binding", None, "CUDA 13.0"),
        ("cpu-only-cpu-torch", None, "CPU"),
        ("cpu-only-cpu-torch", "cuda", "CUDA"),
        ("mi300", "rocm", "ROCm 7.1"),
        ("mac-m3", None, "Metal"),
        ("arc", None, "XPU 2025.3"),
        ("no-torch", "cpu", "CPU"),
    ],
)
def test_the_backend_that_selection_sees_follows_what_is_asked(machine: str, asked: str | None, expected: str) -> None:
    assert str(golden(machine).for_backend(asked).backend) == expected


def test_a_machine_that_falls_back_to_its_cpu_says_why() -> None:
    host = golden("cpu-only-cuda-torch").for_backend(None)
    assert host.probes["backend"] == "torch is built for CUDA 13.0, but no device is visible"


def test_naming_the_backend_that_torch_has_changes_nothing() -> None:
    host = golden("cpu-only-cuda-torch")
    assert host.for_backend("cuda") is host


def test_an_unknown_backend_stays_unknown_until_one_is_named() -> None:
    host = Host(devices=())
    assert host.for_backend(None).backend is None
    assert host.for_backend("cuda").backend == Backend(BackendKind.CUDA)


def test_asking_for_no_backend_is_refused() -> None:
    with pytest.raises(InvalidDocumentError, match="'gpu' is not a backend"):
        golden("h100").for_backend("gpu")


@pytest.mark.parametrize(
    ("machine", "asked", "kept"),
    [
        ("cpu-torch-on-gpu-box", "cuda", True),
        ("cpu-torch-on-gpu-box", "rocm", False),
        ("h100", "cpu", False),
        ("mi300", "cuda", False),
    ],
)
def test_devices_are_kept_only_for_the_backend_that_they_belong_to(machine: str, asked: str, kept: bool) -> None:
    host = golden(machine)
    assert host.devices
    assert host.for_backend(asked).devices == (host.devices if kept else None)


def test_the_text_names_each_fact_its_value_and_its_probe() -> None:
    rows = {fact: (value, how) for fact, value, how in describe(golden("two-unlike-gpus"))}
    assert rows["devices"] == ("0: NVIDIA GeForce RTX 3090 (8.6); 1: NVIDIA GeForce RTX 5090 (12.0)", "NVML")
    assert rows["cxx11_abi"] == ("yes", "symbols of torch/lib/libc10.so")
    assert rows["free_threaded"][0] == "no"
    assert rows["macos"] == ("unknown", "not macOS")


def test_none_found_and_unknown_are_different_texts() -> None:
    def devices(name: str) -> str:
        return {fact: value for fact, value, _ in describe(golden(name))}["devices"]

    assert devices("cpu-only-cuda-torch") == "none"
    assert devices("gpu-without-nvml-binding") == "unknown"


def test_a_host_without_probes_has_empty_explanations() -> None:
    assert {how for _, _, how in describe(Host())} == {""}
    assert {value for _, value, _ in describe(Host())} == {"unknown"}
