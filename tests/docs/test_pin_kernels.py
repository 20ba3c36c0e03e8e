"""The pages about locks: the commands of the how-to run as they stand there, the reference describes what is read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_hub.model.lock_text import format_lock, parse_lock
from kernel_hub.model.metadata import AtVersion
from kernel_hub.model.requirement import RepoId
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.locks import registry_in

ROOT = Path(__file__).parents[2]
HOW_TO = ROOT / "docs" / "how-to" / "pin-kernels.md"
REFERENCE = ROOT / "docs" / "reference" / "lock-file.md"
LABELS = (
    "torch-cpu",
    "torch-cuda",
    "torch-stable-abi211-cpu-x86_64-linux",
    "torch-stable-abi211-cu128-x86_64-linux",
)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's project, beside a registry that has the kernels it names."""
    registry = registry_in(tmp_path / "registry")
    publish_fake_kernel(registry, "acme/core", builds={label: fake_build(label, name="core") for label in LABELS})
    needs = (AtVersion(RepoId("acme", "core"), 1),)
    builds = {label: fake_build(label, kernel_depends=needs) for label in LABELS}
    publish_fake_kernel(registry, "acme/axpy", builds=builds)
    for version in (1, 2, 3):
        publish_fake_kernel(registry, "acme/moe", version=version, builds=LABELS)
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text(blocks(HOW_TO, "toml")[0])
    (project / "app.py").write_text(blocks(HOW_TO, "python")[0])
    return project


def test_the_commands_of_the_how_to_run_in_order(folder: Path) -> None:
    programs = folder.parent / "programs"
    programs.mkdir()
    for name, words in (("kernel-hub", "-m kernel_hub"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    environ = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder.parent / "home"),
        "HF_HOME": str(folder.parent / "home"),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "KERNEL_HUB_REGISTRIES": f"acme={(folder.parent / 'registry').as_uri()}",
        "CUDA_VISIBLE_DEVICES": "",
    }
    script = "set -eu\n" + "\n".join(blocks(HOW_TO, "sh"))
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("[5, 8]") == 4
    project = (folder / "pyproject.toml").read_text()
    for line in blocks(HOW_TO, "toml")[1].splitlines():
        assert line in project


def test_the_example_of_the_reference_is_a_lock_in_its_one_form() -> None:
    (example,) = blocks(REFERENCE, "toml")
    lock = parse_lock(example.encode(), name="lock-file.md")
    assert format_lock(lock).decode() == example


def test_every_key_of_the_format_is_described() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    source = (ROOT / "kernel_hub" / "model" / "lock_text.py").read_text(encoding="utf-8")
    keys = {key for call in re.findall(r"\.only\((.*?)\)", source, re.DOTALL) for key in re.findall(r'"([^"]+)"', call)}
    assert {"format", "build-count", "digest", "registry"} <= keys
    for key in keys:
        assert f"`{key}`" in text, key
