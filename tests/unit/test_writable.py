"""A folder that can only be read is told of once, and is not tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.writable import is_writable, tell_unwritable
from tests.support.child import run_python


@pytest.mark.parametrize("below", ["", "new", "new/newer"])
def test_a_folder_that_is_not_there_is_as_writable_as_where_it_would_be_made(tmp_path: Path, below: str) -> None:
    assert is_writable(tmp_path / below)
    assert list(tmp_path.iterdir()) == []


def test_below_a_file_nothing_is_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "file").chmod(0o444)
    assert not is_writable(tmp_path / "file" / "below")


@pytest.mark.parametrize("below", ["", "new/newer"])
def test_a_folder_without_permission_is_not_writable(tmp_path: Path, below: str) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    told = run_python(
        "import sys; from pathlib import Path; from kernel_hub.writable import is_writable\n"
        "print(is_writable(Path(sys.argv[1])))",
        folder / below,
        ordinary=True,
    )
    assert told.strip() == "False"


def test_a_folder_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for folder in (tmp_path / "one", tmp_path / "two", tmp_path / "one"):
        tell_unwritable(folder, "files are read", OSError(28, "No space left on device"))
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "files are read again in every process" in caplog.text
    assert "No space left on device" in caplog.text
