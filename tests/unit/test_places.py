"""Paths and URLs that people wrote, and users without a home folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_hub.api import get_local_kernel
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.places import is_file, working_folder, written_json, written_path, written_url
from kernel_hub.settings import load_settings
from tests.support.child import run_python

NO_SUCH_USER = "~no-such-user-here/x"


@pytest.mark.parametrize(
    "variable", ["HF_HOME", "HF_HUB_CACHE", "KERNEL_HUB_HOME", "KERNEL_HUB_TRUST", "KERNEL_HUB_LOCK", "XDG_CONFIG_HOME"]
)
@pytest.mark.parametrize("text", [NO_SUCH_USER, "a\0b"])
def test_a_path_that_cannot_be_one_names_its_variable(variable: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidDocumentError, match=variable):
        load_settings({"HF_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), variable: text}, tmp_path)


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("KERNEL_HUB_REGISTRIES", f"acme={NO_SUCH_USER}"),
        ("KERNEL_HUB_REGISTRIES", "acme=http://[::1"),
        ("KERNEL_HUB_REGISTRIES", "acme=http://127.0.0.1:port"),
        ("KERNEL_HUB_REGISTRIES", "acme=file://elsewhere/folder"),
        ("KERNEL_HUB_REGISTRIES", '{"a":' * 100_000),
        ("KERNEL_HUB_OVERRIDES", f"acme/axpy={NO_SUCH_USER}"),
        ("KERNEL_HUB_OVERRIDES", '{"a":' * 100_000),
        ("HF_ENDPOINT", "http://[::1"),
    ],
)
def test_a_setting_that_cannot_be_read_names_its_variable(variable: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidDocumentError, match=variable):
        load_settings({"HF_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), variable: text}, tmp_path)


@pytest.mark.parametrize("path", [NO_SUCH_USER, "a\0b", "x" * 5000])
def test_a_local_path_that_cannot_be_one_is_named(path: str) -> None:
    with pytest.raises(InvalidDocumentError, match="local path"):
        get_local_kernel(path)


@pytest.mark.parametrize("value", [None, 3, b"acme/axpy", ["acme/axpy"], Path("acme/axpy")])
def test_a_name_that_is_no_text_is_named(value: object) -> None:
    for parse in (RepoId.parse, Requirement.parse):
        with pytest.raises(InvalidDocumentError, match="is not a text"):
            parse(value)  # type: ignore[arg-type]


def test_a_user_without_home_folder_needs_only_the_cache_to_be_named(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\n"
        "def home(): raise RuntimeError('Could not determine home directory.')\n"
        "pathlib.Path.home = home\n"
        "from kernel_hub.settings import load_settings\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "print(load_settings({'HF_HOME': sys.argv[1]}, here).hub_cache)\n"
        "try:\n    load_settings({}, here)\n"
        "except ValueError as error:\n    print(error)\n"
    )
    lines = run_python(code, tmp_path).splitlines()
    assert lines[0] == str(tmp_path / "hub")
    assert "HOME" in lines[1]
    assert "HF_HOME" in lines[2]


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can take a right away and prove it gone"
)
def test_a_folder_that_may_not_be_entered_holds_no_settings(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "project").mkdir(parents=True)
    (closed / "pyproject.toml").write_text("[tool")
    closed.chmod(0o700)
    tmp_path.chmod(0o755)
    code = (
        "import os, pathlib, sys\n"
        "from kernel_hub.places import is_file\n"
        "from kernel_hub.settings import load_settings\n"
        "os.setuid(65534)\n"
        "closed = pathlib.Path(sys.argv[1])\n"
        "assert not is_file(closed / 'pyproject.toml')\n"
        "load_settings({'HF_HOME': '/tmp', 'XDG_CONFIG_HOME': str(closed)}, closed / 'project')\n"
        "print('read')\n"
    )
    assert run_python(code, closed) == "read\n"


def test_plain_answers(tmp_path: Path) -> None:
    assert not is_file(tmp_path / ("x" * 5000))
    assert working_folder() == Path.cwd()
    assert written_path("a/b", "x") == Path("a/b")
    assert written_url("http://127.0.0.1:80/x", "x").netloc == "127.0.0.1:80"
    assert written_json("[1]", "x") == [1]


def test_a_working_folder_that_was_deleted_is_the_root(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom kernel_hub.places import working_folder\n"
        "os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])\nprint(working_folder())\n"
    )
    gone = tmp_path / "gone"
    gone.mkdir()
    assert run_python(code, gone).strip() == Path(__file__).anchor
