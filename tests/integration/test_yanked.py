"""What a publisher takes back: marked, said, and never deleted."""

from __future__ import annotations

import logging
from datetime import date
from pathlib import Path

import pytest

from kernel_hub.build.yank import yank
from kernel_hub.cli import main
from kernel_hub.errors import InvalidDocumentError, PublishRefusedError, VersionNotFoundError
from kernel_hub.loader import Loader
from kernel_hub.model.host import Host
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.model.yanked import FILE_NAME, Yank, format_yanks, parse_yanks
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from kernel_hub.sources.directory import DirectoryRegistry
from kernel_hub.sources.hub import HubSink
from tests.support.fake_kernels import publish_fake_kernel
from tests.support.hub import HubServer

REPO = RepoId("acme", "axpy")
DAY = date(2026, 12, 2)
CPU = Host.from_json({"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "backend": "cpu", "devices": []})
ASK = Request(Requirement.parse("acme/axpy@v1"))


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    made = DirectoryRegistry.create(tmp_path / "registry")
    publish_fake_kernel(made, builds=["torch-cpu", "torch-cuda"])
    return made


@pytest.fixture
def loader(tmp_path: Path) -> Loader:
    environ = {"HF_HOME": str(tmp_path / "hf"), "KERNEL_HUB_REGISTRIES": f"acme={(tmp_path / 'registry').as_uri()}"}
    return Loader(load_settings(environ, tmp_path), CPU)


def test_a_yanked_version_still_loads_and_says_why(registry, loader: Loader, caplog) -> None:  # type: ignore[no-untyped-def]
    yank(registry, REPO, 1, reason="wrong results", on=DAY)
    kernel = loader.load(ASK)
    assert kernel.module.axpy(1, [1], [1]) == [2]
    said = "this version was yanked by its publisher on 2026-12-02: wrong results"
    assert said in kernel.notes
    assert [record.levelno for record in caplog.records if said in record.getMessage()] == [logging.WARNING]
    assert said in str(loader.plan(ASK))


@pytest.mark.parametrize(("build", "concerned"), [("torch-cpu", True), ("torch-cuda", False)])
def test_a_yanked_build_concerns_only_itself(registry, loader: Loader, build: str, concerned: bool) -> None:  # type: ignore[no-untyped-def]
    yank(registry, REPO, 1, build=build, reason="slow", on=DAY)
    assert any("yanked" in note for note in loader.load(ASK).notes) is concerned


def test_nothing_is_deleted_and_a_mark_can_be_taken_away(registry) -> None:  # type: ignore[no-untyped-def]
    before = registry.files(REPO, registry.commit_of(REPO, "v1"))
    yank(registry, REPO, 1, build="torch-cpu", reason="a", on=DAY)
    marks = yank(registry, REPO, 1, reason="b", on=DAY)
    assert {mark.build for mark in marks} == {None, "torch-cpu"}
    during = registry.files(REPO, registry.commit_of(REPO, "v1"))
    assert {entry.path for entry in during} - {entry.path for entry in before} == {FILE_NAME}
    yank(registry, REPO, 1, on=DAY, undo=True)
    yank(registry, REPO, 1, build="torch-cpu", on=DAY, undo=True)
    assert registry.files(REPO, registry.commit_of(REPO, "v1")) == before


def test_what_cannot_be_yanked_is_refused_by_name(registry) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(VersionNotFoundError, match="v7"):
        yank(registry, REPO, 7, reason="x", on=DAY)
    with pytest.raises(PublishRefusedError, match="torch-xpu"):
        yank(registry, REPO, 1, build="torch-xpu", reason="x", on=DAY)
    with pytest.raises(PublishRefusedError, match="reason"):
        yank(registry, REPO, 1, reason=" ", on=DAY)
    with pytest.raises(PublishRefusedError, match="not yanked"):
        yank(registry, REPO, 1, on=DAY, undo=True)


def test_a_kernel_on_a_hub_is_yanked_alike(hub_server: HubServer) -> None:
    publish_fake_kernel(hub_server.registry)
    sink = HubSink(hub_server.url, token="hf_any")
    assert yank(sink, REPO, 1, reason="x", on=DAY) == (Yank(None, "x", DAY),)
    assert yank(sink, REPO, 1, build="torch-cpu", reason="y", on=DAY)[-1].build == "torch-cpu"


def test_a_lock_that_holds_it_fails_its_check(registry, tmp_path: Path, monkeypatch, capsys) -> None:  # type: ignore[no-untyped-def]
    project = tmp_path / "project"
    project.mkdir()
    folder = (tmp_path / "registry").as_uri()
    (project / "pyproject.toml").write_text(
        f'[tool.kernel-hub.registries]\nacme = "{folder}"\n\n[tool.kernel-hub.dependencies]\n"acme/axpy" = "1"\n'
    )
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(project)
    assert main(["lock"]) == 0
    assert main(["lock", "--check"]) == 0
    capsys.readouterr()
    assert (
        main(["yank", "acme/axpy", "--version", "1", "--reason", "wrong results", "--to", str(tmp_path / "registry")])
        == 0
    )
    assert main(["lock", "--check"]) != 0
    assert "wrong results" in capsys.readouterr().err


def test_the_file_reads_as_it_is_written() -> None:
    marks = (Yank(None, 'says "no" \\ and \u007f\n', DAY), Yank("torch-cpu", "b", DAY))
    assert parse_yanks(format_yanks(marks)) == marks
    assert format_yanks(reversed(marks)) == format_yanks(marks)


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("yanked = 1", "yanked"),
        ("yanked = [1]", r"yanked\[0\]"),
        ("[[yanked]]\non = 2026-12-02", "reason"),
        ('[[yanked]]\nreason = "x"', "on"),
        ('[[yanked]]\nreason = "x"\non = 2026-12-02T00:00:00Z', "on"),
        ('[[yanked]]\nreason = "x"\non = 2026-12-02\nbuild = ""', "build"),
        ('[[yanked]]\nreason = "x"\non = 2026-12-02\nby = "me"', "by"),
        ("[[yanked", "TOML"),
    ],
)
def test_a_malformed_file_names_the_fault(text: str, location: str) -> None:
    with pytest.raises(InvalidDocumentError, match=location):
        parse_yanks(text.encode())
