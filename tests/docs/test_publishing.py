"""The pages about writing and publishing kernels: their commands run as they stand there, and load what they published."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_hub.server.exchange import Site
from kernel_hub.server.http import RunningServer, make_app
from kernel_hub.sources.directory import DirectoryRegistry

ROOT = Path(__file__).parents[2]
HOW_TO = (ROOT / "docs" / "how-to" / "write-a-kernel.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVED = "http://127.0.0.1:8000"
pytestmark = pytest.mark.skipif(os.name != "posix", reason="the pages are written for a POSIX shell")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def marked(name: str) -> str:
    """The one block of the README below a mark."""
    (section,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end -->", README, re.DOTALL)
    return section.partition("\n")[2].rpartition("```")[0]


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """The kernel of the how-to, with its programs beside it."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, words in (("kernel-hub", "-m kernel_hub"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    folder = tmp_path / "kernel"
    package = folder / "torch-ext" / "scale"
    package.mkdir(parents=True)
    (folder / "build.toml").write_text(blocks(HOW_TO, "toml")[0])
    (package / "__init__.py").write_text(blocks(HOW_TO, "python")[0])
    (tmp_path / "app.py").write_text(marked("app"))
    assert blocks(HOW_TO, "python")[1] == marked("app")
    return folder


def run(script: str, folder: Path) -> str:
    home = folder.parent / "home"
    environ = {
        "PATH": f"{folder.parent / 'programs'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "HF_HOME": str(home),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        ["bash", "-c", f"set -eu\n{script}"], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_of_the_how_to_run_in_order(kernel: Path) -> None:
    printed = run("\n".join(blocks(HOW_TO, "sh")), kernel)
    assert printed.count("[10, 20]") == 2


def test_the_commands_of_the_readme_publish_to_a_folder_and_to_a_server(kernel: Path) -> None:
    assert "[10, 20]" in run(marked("folder"), kernel)
    site = Site(token="a-long-secret", private=True)
    with RunningServer(make_app(DirectoryRegistry.open(kernel.parent / "registry"), site=site)) as server:
        assert f"{SERVED}" in marked("server")
        assert "v1 " in run(marked("server").replace(SERVED, server.url), kernel)
        project = kernel.parent / "project"
        project.mkdir()
        (project / "pyproject.toml").write_text(marked("project").replace(SERVED, server.url))
        assert "v1 " in run("export ACME_TOKEN=a-long-secret\nkernel-hub versions acme/scale", project)
