"""Attack: a server lists files whose paths leave the cache, shadow folders, or name devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.errors import KernelHubError
from kernel_hub.loader import Loader
from kernel_hub.model.host import Host
from kernel_hub.model.requirement import Requirement
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from tests.support import faults as fault
from tests.support.fake_kernels import publish_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer

ENFORCED_BY = "kernel_hub.model.repo_path.check_file_path"
CPU = Host.from_json({"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "backend": "cpu", "devices": []})


@pytest.mark.parametrize(
    "path",
    [
        "build/torch-cpu/../../../../../../planted.py",
        "../planted.py",
        "/tmp/planted.py",
        "build/torch-cpu/\\..\\..\\planted.py",
        "build/torch-cpu/planted.py\0.txt",
        "C:\\planted.py",
        "build/torch-cpu/./planted.py",
        "build//torch-cpu/planted.py",
        "build/torch-cpu/__init__.py/planted.py",
        "build/torch-cpu/__init__.py",
        "build/torch-cpu/con.py",
        "build/torch-cpu/.git/hooks/planted",
    ],
)
def test_nothing_is_written_and_the_listing_is_refused(
    start_hub: Callable[..., HubServer], tmp_path: Path, path: str
) -> None:
    faults = Faults()
    hub = start_hub(tmp_path / "registry", wrap=faults)
    publish_fake_kernel(hub.registry)
    hub.registry.set_publisher("acme", True)
    faults.add(fault.edited(lambda rows: [*rows, rows[-1] | {"path": path}]), "/tree/")
    settings = load_settings({"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}, tmp_path)
    with pytest.raises(KernelHubError):
        Loader(settings, CPU).download(Request(Requirement.parse("acme/axpy", version=1)))
    assert not list(tmp_path.rglob("planted*"))
    assert not (tmp_path / "hf" / "hub").exists()
