from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from kernel_hub.sources.hub_progress import TerminalProgress

TOTAL = 32 << 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def switch() -> Any:
    """The module that reads huggingface_hub's switch; the package shows a class of the same name in its place."""
    import huggingface_hub.utils

    assert huggingface_hub.utils.tqdm
    return sys.modules["huggingface_hub.utils.tqdm"]


@pytest.fixture(autouse=True)
def bars_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test run turns bars off by huggingface_hub's own variable."""
    monkeypatch.setattr(switch(), "HF_HUB_DISABLE_PROGRESS_BARS", None)


def run(stream: io.StringIO, total: int = TOTAL) -> str:
    progress = TerminalProgress(stream)
    for done in (total // 4, total // 2, total // 3, total):
        progress("build/torch-cpu/weights.bin", done, total)
    return stream.getvalue()


def test_a_terminal_sees_a_bar_that_ends_full() -> None:
    drawn = run(Terminal())
    assert "torch-cpu" in drawn
    assert "100%" in drawn


def test_what_is_no_terminal_sees_nothing() -> None:
    assert run(io.StringIO()) == ""


def test_a_small_download_draws_nothing() -> None:
    assert run(Terminal(), 1 << 20) == ""


def test_huggingface_hubs_own_switch_turns_the_bar_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switch(), "HF_HUB_DISABLE_PROGRESS_BARS", True)
    assert run(Terminal()) == ""
