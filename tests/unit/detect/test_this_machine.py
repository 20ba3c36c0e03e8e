"""The machine that runs the tests, against what torch says about itself there."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from kernel_hub.detect import detect, this_machine
from tests.support.child import run_python

# A new process, because the one that runs the tests may have torch loaded already.
_ASK_BOTH = """
import json, sys
from kernel_hub.detect import detect
host = detect()
loaded = [name for name in ("torch", "huggingface_hub") if name in sys.modules]
import torch
print(json.dumps({
    "loaded": loaded,
    "found": [str(host.torch), host.cxx11_abi if sys.platform == "linux" else None],
    "truth": [torch.__version__, torch.compiled_with_cxx11_abi() if sys.platform == "linux" else None],
    "backend": None if host.backend is None else host.backend.kind.value,
    "cuda": torch.version.cuda, "hip": torch.version.hip, "xpu": getattr(torch.version, "xpu", None),
    "metal": torch.backends.mps.is_available(),
    "version": str(host.backend.version) if host.backend and host.backend.version else None,
}))
"""


def test_detection_says_what_torch_says_and_does_not_import_it() -> None:
    ran = subprocess.run([sys.executable, "-c", _ASK_BOTH], check=True, capture_output=True, text=True)
    answer = json.loads(ran.stdout.splitlines()[-1])
    assert answer["loaded"] == []
    assert answer["found"] == answer["truth"]
    if answer["cuda"]:
        assert (answer["backend"], answer["version"]) == ("cuda", answer["cuda"])
    elif answer["hip"]:
        assert answer["backend"] == "rocm"
        assert answer["hip"].startswith(answer["version"])
    elif answer["metal"]:
        assert answer["backend"] == "metal"
    elif answer["xpu"]:
        assert answer["backend"] == "xpu"
    else:
        assert answer["backend"] == "cpu"


def test_this_machine_knows_its_system_python_and_c_library() -> None:
    host = detect(this_machine())
    assert host.os in ("linux", "darwin", "windows")
    assert host.cpu in ("x86_64", "aarch64")
    assert host.python is not None
    assert host.python.release == sys.version_info[:3]
    assert (host.libc is None) is (sys.platform != "linux")


def test_the_running_interpreter_says_of_its_lock_what_sysconfig_says() -> None:
    assert this_machine().platform.free_threaded is bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.mark.skipif(not hasattr(sys, "abiflags"), reason="this Python has no flags of its ABI; sysconfig is asked")
def test_detection_does_not_read_the_variables_of_pythons_build() -> None:
    ask = "import sys; from kernel_hub.detect import detect; detect(); print(*sys.modules)"
    assert "_sysconfigdata" not in run_python(ask)


def test_a_module_that_is_not_installed_and_a_folder_without_init_are_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernel_hub_left_behind").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    probes = this_machine()
    assert probes.find_module("kernel_hub_left_behind") is None
    assert probes.find_module("kernel_hub_never_installed") is None
    assert probes.find_module("kernel_hub") is not None
    assert probes.find_version("kernel-hub-never-installed") is None
    assert probes.find_version("packaging") == metadata.version("packaging")


def test_a_version_is_found_however_a_distribution_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    written = {
        "kernel_hub_one-1.2.dist-info/METADATA": "Name: kernel-hub-one\nVersion: 1.2\n",
        "Kernel_Hub_Two-3.4.dist-info/METADATA": "Name: Kernel-Hub-Two\nVersion: 3.4\n",
        "kernel.hub.three-5.6.egg-info/PKG-INFO": "Name: kernel.hub.three\nVersion: 5.6\n",
        "kernel_hub_four-7.8.dist-info/RECORD": "",
        "kernel_hub_one_more-9.0.dist-info/METADATA": "Name: kernel-hub-one-more\nVersion: 9.0\n",
    }
    for name, content in written.items():
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(content)
    find = this_machine().find_version
    asked = ("one", "two", "three", "four", "one-more")
    assert [find(f"kernel-hub-{name}") for name in asked] == ["1.2", "3.4", "5.6", None, "9.0"]


def test_a_torch_that_is_imported_says_what_its_files_say() -> None:
    ask = "import json; from kernel_hub.detect import detect; print(json.dumps(detect().to_json()))"
    apart, imported = (json.loads(run_python(first + ask)) for first in ("", "import torch; "))
    for answer in (apart, imported):
        answer.pop("probes", None)
    assert imported == apart
