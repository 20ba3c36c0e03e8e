"""The tutorial and the README's part on publishing: their commands run as they stand there, and load what they published."""

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
TUTORIAL = (ROOT / "docs" / "tutorial" / "write-a-kernel.md").read_text(encoding="utf-8")
LEAST = TUTORIAL.partition("## The least there can be")[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVED = "http://127.0.0.1:8000"
pytestmark = pytest.mark.skipif(os.name != "posix", reason="the pages are written for a POSIX shell")


_STEP = re.compile(r"<!-- (run|write|append) ?(\S*) -->\n```\w+\n(.*?)```", re.DOTALL)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def script(text: str) -> str:
    """What a page has its reader run, and the files that it has them write in between, as one script."""
    lines = []
    for verb, path, block in _STEP.findall(text):
        if verb == "run":
            lines.append(block)
        else:
            sign = ">" if verb == "write" else ">>"
            lines.append(f"mkdir -p \"$(dirname {path})\"\ncat {sign} {path} <<'END OF FILE'\n{block}END OF FILE\n")
    return "\n".join(lines)


def marked(name: str) -> str:
    """The one block of the README below a mark."""
    (section,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end -->", README, re.DOTALL)
    return section.partition("\n")[2].rpartition("```")[0]


@pytest.fixture
def programs(tmp_path: Path) -> None:
    """The programs that the pages call."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, words in (("kernel-hub", "-m kernel_hub"), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (folder / name).chmod(0o755)


@pytest.fixture
def kernel(tmp_path: Path, programs: None) -> Path:
    """The smallest kernel of the tutorial, with the README's program beside it."""
    folder = tmp_path / "kernel"
    package = folder / "torch-ext" / "scale"
    package.mkdir(parents=True)
    (folder / "build.toml").write_text(blocks(LEAST, "toml")[0])
    (package / "__init__.py").write_text(blocks(LEAST, "python")[0])
    (tmp_path / "app.py").write_text(marked("app"))
    return folder


def run(text: str, folder: Path) -> str:
    home = folder.parent / "home"
    environ = {
        "PATH": f"{folder.parent / 'programs'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "HF_HOME": str(home),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "CUDA_VISIBLE_DEVICES": "",
        **{
            f"GIT_{role}_{field}": "reader@example.org"
            for role in ("AUTHOR", "COMMITTER")
            for field in ("NAME", "EMAIL")
        },
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    done = subprocess.run(
        ["bash", "-c", f"set -eu\n{text}"], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="compiled builds are made on Linux")
def test_every_command_of_the_tutorial_runs_in_order(programs: None, tmp_path: Path) -> None:
    text = script(TUTORIAL)
    # Only what installs the packages is left out, because they are here.
    commands = [block for block in blocks(TUTORIAL, "sh") if not block.startswith("python -m pip install")]
    assert len(commands) == len(re.findall("<!-- run -->", TUTORIAL))
    assert all(block in text for block in commands)
    start = tmp_path / "start"
    start.mkdir()
    printed = run(text, start)
    assert printed.splitlines().count("True") == 2
    assert "acme/gated-silu@v1" in printed
    assert printed.count(": published") == 2
    assert "failed" not in printed
    (wheel,) = (start / "wheels").iterdir()
    assert wheel.name.startswith("gated_silu-1+torch.stable.abi211.cpu-cp39-abi3-manylinux_2_28_")


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
