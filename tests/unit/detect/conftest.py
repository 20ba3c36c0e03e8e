"""Machines that are not here, made from the descriptions in tests/vectors/machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from kernel_hub.detect import Platform, Probes

VECTORS = Path(__file__).parents[2] / "vectors"


class FakeNvmlError(Exception):
    """Carries an NVML code, as the binding's errors do."""

    def __init__(self, value: int, text: str) -> None:
        super().__init__(text)
        self.value = value


class FakeNvml:
    """The part of NVML's Python binding that detection calls, over a described machine."""

    NVMLError = FakeNvmlError

    def __init__(self, description: Mapping[str, Any]) -> None:
        self._description = description
        self._open = 0

    def nvmlInit(self) -> None:
        if "error" in self._description:
            raise FakeNvmlError(self._description["error"], self._description["text"])
        self._open += 1

    def nvmlShutdown(self) -> None:
        self._open -= 1

    @property
    def is_shut_down(self) -> bool:
        return self._open == 0

    def _answer(self, value: Any) -> Any:
        assert self._open, "NVML was asked before it was started"
        return value

    def nvmlSystemGetDriverVersion(self) -> str:
        return self._answer(self._description["driver"])

    def nvmlDeviceGetCount(self) -> int:
        return self._answer(len(self._description["gpus"]))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Mapping[str, Any]:
        gpu = self._answer(self._description["gpus"][index])
        if "error" in gpu:
            raise FakeNvmlError(gpu["error"], gpu["text"])
        return gpu

    def nvmlDeviceGetCudaComputeCapability(self, device: Mapping[str, Any]) -> tuple[int, int]:
        major, minor = device["arch"].split(".")
        return int(major), int(minor)

    def nvmlDeviceGetUUID(self, device: Mapping[str, Any]) -> str | bytes:
        return device["uuid"]

    def nvmlDeviceGetName(self, device: Mapping[str, Any]) -> str | bytes:
        # Bindings before 11.515 answered bytes.
        return device["name"].encode() if self._description.get("answers_bytes") else device["name"]

    def nvmlDeviceGetMigMode(self, device: Mapping[str, Any]) -> list[int]:
        if "migs" not in device:
            raise FakeNvmlError(3, "Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Mapping[str, Any]) -> int:
        return len(device["migs"])

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Mapping[str, Any], index: int) -> Mapping[str, Any]:
        if device["migs"][index] is None:
            raise FakeNvmlError(6, "Not Found")
        return device["migs"][index]


def make_probes(description: Mapping[str, Any], root: Path) -> Probes:
    """Lay a described machine's files under `root` and answer for the rest."""
    for absolute, text in description.get("files", {}).items():
        path = root / absolute.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    modules = {name: root / name for name in description.get("modules", ())}
    if description.get("torch"):
        modules["torch"] = VECTORS / "torch_dists" / description["torch"] / "torch"
        assert modules["torch"].is_dir()

    def load_nvml() -> Any:
        if description.get("nvml") is None:
            raise ModuleNotFoundError("No module named 'pynvml'", name="pynvml")
        return FakeNvml(description["nvml"])

    return Probes(
        platform=Platform(**description["platform"]),
        find_module=modules.get,
        find_version=description.get("distributions", {}).get,
        load_nvml=load_nvml,
        environ=MappingProxyType(dict(description.get("environ", {}))),
        root=root,
    )


@pytest.fixture
def describe_machine(tmp_path: Path) -> Callable[..., Probes]:
    """Probes of a machine by name, with changes to its description."""

    def describe(name: str, **changes: Any) -> Probes:
        description = json.loads((VECTORS / "machines" / f"{name}.json").read_text())
        return make_probes(description | changes, tmp_path / "root")

    return describe
