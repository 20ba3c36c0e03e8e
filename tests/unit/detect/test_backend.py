"""Which backend is told from which files, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.detect import Probes, detect
from kernel_hub.model.host import Host


def with_fields(probes: Probes, folder: Path, **fields: str | None) -> Host:
    """What is detected if torch's version file says this."""
    torch = folder / "torch"
    torch.mkdir()
    lines = ["__version__ = '2.13.0'", *(f"{name} = {value!r}" for name, value in fields.items())]
    (torch / "version.py").write_text("\n".join(lines))
    return detect(replace(probes, find_module=lambda name: torch if name == "torch" else probes.find_module(name)))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"cuda": "12.8", "hip": None}, "CUDA 12.8"),
        ({"cuda": "13", "hip": None}, "CUDA 13.0"),
        ({"cuda": "12.8.1"}, "CUDA 12.8"),
        ({"cuda": None, "hip": "6.4.43482-0f2d60242"}, "ROCm 6.4"),
        ({"cuda": None, "hip": "7.1"}, "ROCm 7.1"),
        ({"cuda": None, "hip": None, "xpu": "20250301"}, "XPU 2025.3"),
        ({"cuda": None, "hip": None, "xpu": "2025.2.0"}, "XPU 2025.2"),
        ({"cuda": None, "hip": None, "xpu": "soon"}, "XPU"),
        ({"cuda": None, "hip": None, "xpu": None}, "CPU"),
        ({"cuda": None}, "CPU"),
        ({"cuda": ""}, "CPU"),
        ({"hip": None}, "None"),
    ],
)
def test_the_backend_is_what_the_version_file_names(
    fields: dict[str, str | None], expected: str, describe_machine: Callable[..., Probes], tmp_path: Path
) -> None:
    assert str(with_fields(describe_machine("cpu-only-cpu-torch"), tmp_path, **fields).backend) == expected


@pytest.mark.parametrize(
    ("modules", "torch", "expected"),
    [
        (["torch_tpu", "torch_neuronx", "torch_npu"], "2.13.0-cu130", "TPU"),
        (["torch_neuronx"], "2.13.0-cu130", "Neuron"),
        (["torch_npu"], "2.13.0-cu130", "CUDA 13.0"),
        (["torch_npu"], "2.13.0-cpu", "CANN"),
        (["torch_xla"], "2.13.0-cpu", "CPU"),
        (["torch_tpu"], None, "CPU"),
    ],
)
def test_plugins_rank_as_the_ecosystem_ranks_them(
    modules: list[str], torch: str | None, expected: str, describe_machine: Callable[..., Probes]
) -> None:
    host = detect(describe_machine("cpu-only-cpu-torch", modules=modules, torch=torch))
    assert str(host.backend) == expected


def test_a_cuda_torch_on_apple_silicon_is_cuda_and_an_intel_mac_is_cpu(
    describe_machine: Callable[..., Probes], tmp_path: Path
) -> None:
    assert str(detect(describe_machine("mac-m3", torch="2.13.0-cu130")).backend) == "CUDA 13.0"
    intel = describe_machine("mac-m3", platform={"system": "darwin", "machine": "x86_64", "python": "3.11.9"})
    assert str(detect(intel).backend) == "CPU"
    assert detect(intel).probes["devices"] == "devices are not probed on macOS"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version=8.5.0\n", "CANN 8.5"),
        ("arch=aarch64\nversion=8.3.RC1\n", "CANN 8.3"),
        ("version=unknown\n", "CANN"),
        ("", "CANN"),
    ],
)
def test_the_version_of_cann_comes_from_its_installation(
    text: str, expected: str, describe_machine: Callable[..., Probes]
) -> None:
    path = "/usr/local/Ascend/ascend-toolkit/latest/aarch64-linux/ascend_toolkit_install.info"
    host = detect(describe_machine("ascend", environ={}, files={path: text}))
    assert str(host.backend) == expected


@pytest.mark.parametrize(
    ("files", "environ", "expected"),
    [
        (["/usr/lib/x86_64-linux-gnu/libcudart.so.12.4.127"], {}, "CUDA 12.4"),
        (["/usr/lib64/libcudart.so.12.4.127", "/usr/lib64/libcudart.so.13.0.48"], {}, "CUDA 13.0"),
        (["/opt/c/libcudart.so.11.8.89"], {"LD_LIBRARY_PATH": "relative::/opt/c"}, "CUDA 11.8"),
        (["/opt/c/libcudart.so.11.8.89"], {}, "CPU"),
        (["/usr/lib64/libcudart.so.12"], {}, "CPU"),
        (["/usr/lib64/libcudart.so.next.big"], {}, "CPU"),
    ],
)
def test_without_torch_an_installed_cuda_runtime_counts(
    files: list[str], environ: dict[str, str], expected: str, describe_machine: Callable[..., Probes]
) -> None:
    host = detect(describe_machine("no-torch", files=dict.fromkeys(files, ""), environ=environ))
    assert str(host.backend) == expected
