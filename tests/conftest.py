"""What holds for every test: no socket leaves this machine, no setting of the user is read, no file of the user is touched."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

# huggingface_hub reads these when it is imported, which may be long before the first fixture runs.
_HOME = tempfile.mkdtemp(prefix="kernel_hub-tests-")
for _name in [name for name in os.environ if name.startswith(("HF_", "HUGGING", "KERNEL", "LOCAL_KERNELS"))]:
    del os.environ[_name]
for _name in [name for name in os.environ if name.lower().endswith("_proxy")]:
    del os.environ[_name]
os.environ |= {
    "HF_HOME": _HOME,
    # Port 9 discards: a test that forgets to name its own Hub is refused at once.
    "HF_ENDPOINT": "http://127.0.0.1:9",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "NO_PROXY": "*",
    "XDG_CONFIG_HOME": str(Path(_HOME) / "config"),
}

_connect = socket.socket.connect
_connect_ex = socket.socket.connect_ex
_getaddrinfo = socket.getaddrinfo


class OutsideAccessError(RuntimeError):
    """A test tried to reach another machine."""


def _check(host: Any) -> None:
    text = host.decode() if isinstance(host, bytes) else host
    if text in (None, "", "localhost"):
        return
    try:
        inside = ipaddress.ip_address(text).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise OutsideAccessError(f"tests may not reach {text!r}")


def _guarded_connect(self: socket.socket, address: Any) -> None:
    if self.family in (socket.AF_INET, socket.AF_INET6):
        _check(address[0])
    _connect(self, address)


def _guarded_connect_ex(self: socket.socket, address: Any) -> int:
    if self.family in (socket.AF_INET, socket.AF_INET6):
        _check(address[0])
    return _connect_ex(self, address)


def _guarded_getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
    _check(host)
    return _getaddrinfo(host, *args, **kwargs)


socket.socket.connect = _guarded_connect  # type: ignore[method-assign]
socket.socket.connect_ex = _guarded_connect_ex  # type: ignore[method-assign]
socket.getaddrinfo = _guarded_getaddrinfo


def pytest_configure(config: pytest.Config) -> None:
    # huggingface_hub's LFS upload calls its HTTP library in a way that the library deprecates; nobody here can change that.
    config.addinivalue_line(
        "filterwarnings", "ignore:Use 'content=<...>' to upload raw bytes/text content:DeprecationWarning"
    )


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def _lingering_hubs() -> Iterator[None]:
    from tests.support.hub import stop_lingering

    yield
    stop_lingering()


@pytest.fixture
def start_hub(tmp_path: Path, _lingering_hubs: None) -> Iterator[Callable[..., Any]]:
    """Starts a Hub on a registry folder; takes what `tests.support.hub.running_hub` takes, folder first.

    It runs until the test ends. A test that needs it to go away earlier uses `running_hub` itself.
    """
    from tests.support.hub import running_hub

    with ExitStack() as running:
        yield lambda folder=None, **options: running.enter_context(
            running_hub(tmp_path / "registry" if folder is None else folder, linger=True, **options)
        )


@pytest.fixture
def hub_server(start_hub: Callable[..., Any]) -> Any:
    """A running `tests.support.hub.HubServer` over an empty registry."""
    return start_hub()
