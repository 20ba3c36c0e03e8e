"""What the tests of the command line share: a machine that does not depend on this one, and a private home."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.cli import main
from kernel_hub.sources.directory import DirectoryRegistry

_INHERITED = (
    "LOCAL_KERNELS",
    "KERNEL_HUB_OVERRIDES",
    "KERNEL_HUB_REGISTRIES",
    "HF_ENDPOINT",
    "HF_TOKEN",
    "KERNELS_CACHE",
)


@dataclass(frozen=True, slots=True)
class Result:
    """What one run of the command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The error that stands on standard output as JSON."""
        return self.json["error"]


Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home: no configuration, no cache, no token; every process started from here inherits it."""
    for name in _INHERITED:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HF_HOME", str(folder / "hf"))
    monkeypatch.setenv("HF_HUB_CACHE", str(folder / "hf" / "hub"))
    monkeypatch.setenv("KERNEL_HUB_HOME", str(folder / "kernel_hub"))
    (folder / "config.toml").touch()
    monkeypatch.setenv("KERNEL_HUB_CONFIG", str(folder / "config.toml"))
    monkeypatch.setenv("KERNEL_HUB_TRUST", str(folder / "trust.toml"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process."""

    def run(*words: str, stdin: bytes = b"") -> Result:
        capsys.readouterr()
        code = main(words, source=io.BytesIO(stdin))
        written = capsys.readouterr()
        return Result(code, written.out, written.err)

    return run


@pytest.fixture
def registry(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> DirectoryRegistry:
    """An empty registry folder that the namespace `acme` is bound to."""
    folder = tmp_path / "registry"
    monkeypatch.setenv("KERNEL_HUB_REGISTRIES", f"acme={folder.as_uri()}")
    return DirectoryRegistry.create(folder)


@pytest.fixture
def cpu_host(tmp_path: Path) -> str:
    """A file that describes a machine without GPU."""
    return write_host(tmp_path / "cpu.json", backend="cpu", backend_version=None, devices=[])


@pytest.fixture
def gpu_host(tmp_path: Path) -> str:
    """A file that describes a machine with one H100."""
    return write_host(tmp_path / "h100.json", devices=[{"index": 0, "name": "NVIDIA H100", "arch": "9.0"}])


def write_host(path: Path, **changes: object) -> str:
    """Write a host file; the path."""
    facts: dict[str, object] = {
        "cpu": "x86_64",
        "os": "linux",
        "torch": "2.13.0",
        "cxx11_abi": True,
        "backend": "cuda",
        "backend_version": "13.0",
        "python": "3.11.4",
        "free_threaded": False,
    }
    path.write_text(json.dumps(facts | changes), encoding="utf-8")
    return str(path)
