"""Whatever a machine's files and environment hold, detection answers with a host that can be written and read."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from kernel_hub.detect import Platform, Probes, detect
from kernel_hub.detect.visible import Unclear, choose
from kernel_hub.model.host import Host, describe

PATHS = (
    "torch/version.py",
    "torch/lib/libc10.so",
    "torch/share/cmake/Torch/TorchConfig.cmake",
    "proc/cpuinfo",
    "proc/device-tree/compatible",
    "sys/module/nvidia/version",
    "sys/class/kfd/kfd/topology/nodes/0/gpu_id",
    "sys/class/kfd/kfd/topology/nodes/0/properties",
    "usr/lib64/libcudart.so.12.8.90",
)
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "LD_LIBRARY_PATH",
    "ASCEND_HOME_PATH",
)
contents = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"__version__ = '2.9.0'\ncuda = '12.8'\n",
            b"__version__ = '2.9.0'\nhip = '7.1.2-abc'\ncuda = None\n",
            b"__version__ = 'x' * 3\n(((",
            b"1\n",
            b"gfx_target_version 90402\nunique_id 7\n",
            b"gfx_target_version -1\n",
            b"flags : avx2\n",
            b"nvidia,tegra234\0",
        ]
    ),
)
lists = st.lists(st.sampled_from(["0", "1", "-1", "GPU-a", "MIG-a", "", " ", "all"]), max_size=4).map(",".join)


@given(
    files=st.dictionaries(st.sampled_from(PATHS), contents, max_size=6),
    environ=st.dictionaries(st.sampled_from(VARIABLES), lists | st.text(max_size=8), max_size=4),
    platform=st.builds(
        Platform,
        system=st.sampled_from(["linux", "darwin", "windows"]) | st.text(max_size=5),
        machine=st.sampled_from(["x86_64", "arm64", ""]),
        python=st.sampled_from(["3.12.1", ""]) | st.text(max_size=5),
        macos=st.sampled_from(["26.0", "10.16"]) | st.text(max_size=5),
    ),
    modules=st.sets(st.sampled_from(["torch", "torch_npu", "torch_tpu", "tvm_ffi"])),
    distribution=st.none() | st.text(max_size=6),
)
def test_no_content_of_a_machine_stops_detection(
    files: dict[str, bytes],
    environ: dict[str, str],
    platform: Platform,
    modules: set[str],
    distribution: str | None,
) -> None:
    def load_nvml() -> object:
        raise ImportError("pynvml")

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        probes = Probes(
            platform=platform,
            find_module=lambda name: root / name if name in modules else None,
            find_version=lambda _: distribution,
            load_nvml=load_nvml,
            environ=MappingProxyType(environ),
            root=root,
        )
        host = detect(probes)
        assert detect(probes) == host
    assert Host.from_json(host.to_json()) == host
    assert all(how for _, _, how in describe(host))


@given(st.text() | lists, st.lists(st.sampled_from(["GPU-aa", "GPU-ab", "GPU-b"]), unique=True))
def test_a_list_chooses_each_of_the_existing_devices_at_most_once_or_is_unclear(text: str, uuids: list[str]) -> None:
    choice = choose(text, uuids)
    if not isinstance(choice, Unclear):
        assert len(set(choice)) == len(choice)
        assert set(choice) <= set(range(len(uuids)))
