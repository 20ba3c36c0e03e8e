"""`kernel-hub export-wheel`: wheels of a folder's builds and of published kernels."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernel_hub.cli.command import MissingExtraError
from kernel_hub.model.metadata import AtVersion
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry
from tests.cli.conftest import Run, write_host
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.hub import HubServer

LABELS = ["torch-cpu", "torch-cuda"]


@pytest.fixture
def builds(tmp_path: Path) -> Path:
    """A kernel's folder with two builds."""
    for label in LABELS:
        for path, content in fake_build(label, name="axpy").items():
            place = tmp_path / "axpy" / "build" / label / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    return tmp_path / "axpy"


def test_every_build_of_a_folder_becomes_a_wheel(run: Run, builds: Path, tmp_path: Path) -> None:
    (builds / "LICENSE").write_text("Do as you please.\n")
    answer = run("export-wheel", str(builds), "--json").json
    assert [item["label"] for item in answer["wheels"]] == LABELS
    assert {Path(item["path"]).name for item in answer["wheels"]} == {
        path.name for path in (tmp_path / "dist").iterdir()
    }
    first = answer["wheels"][0]
    assert (first["distribution"], first["version"], first["tag"], first["import"], first["requires"]) == (
        "axpy", "1+torch.cpu", "py3-none-any", "axpy", ["torch"],
    )  # fmt: skip
    assert b"LICENSE" in Path(first["path"]).read_bytes()
    assert "  import: axpy\n  requires: torch" in run("export-wheel", str(builds)).out


def test_builds_can_be_chosen_and_named(run: Run, builds: Path, tmp_path: Path) -> None:
    words = ("export-wheel", str(builds), "--variant", "torch-cuda", "--name", "acme-axpy", "--out", "here")
    assert run(*words).code == 0
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["acme_axpy-1+torch.cuda-py3-none-any.whl"]


def test_the_build_of_a_published_kernel_for_a_machine_becomes_a_wheel(
    run: Run, registry: DirectoryRegistry, tmp_path: Path
) -> None:
    publish_fake_kernel(registry, "acme/axpy", builds={label: fake_build(label) for label in LABELS})
    host = write_host(tmp_path / "host.json", backend="cpu", backend_version=None, devices=[])
    words = ("export-wheel", "acme/axpy@v1", "--host", host, "--json")
    assert [item["label"] for item in run(*words).json["wheels"]] == ["torch-cpu"]
    assert [item["label"] for item in run(*words, "--backend", "cuda").json["wheels"]] == ["torch-cuda"]
    wrong = run(*words, "--variant", "torch-cuda")
    assert (wrong.code, wrong.error["type"]) == (2, "UsageError")
    assert "torch-cpu" in wrong.error["message"]


def test_a_kernel_of_an_untrusted_publisher_is_refused(
    run: Run, hub_server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_fake_kernel(hub_server.registry, "acme/axpy", builds={"torch-cpu": fake_build("torch-cpu")})
    hub_server.registry.set_publisher("acme", False)
    monkeypatch.setenv("HF_ENDPOINT", hub_server.url)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    words = ("export-wheel", "acme/axpy@v1", "--backend", "cpu", "--json")
    result = run(*words)
    assert (result.code, result.error["type"]) == (6, "UntrustedPublisherError")
    assert not (tmp_path / "dist").exists()
    assert run(*words, "--trust-remote-code").code == 0


def test_a_kernel_that_needs_others_is_refused(run: Run, registry: DirectoryRegistry, tmp_path: Path) -> None:
    needs = (AtVersion(RepoId("acme", "core"), 1),)
    publish_fake_kernel(registry, "acme/axpy", builds={"torch-cpu": fake_build("torch-cpu", kernel_depends=needs)})
    result = run("export-wheel", "acme/axpy@v1", "--backend", "cpu", "--json")
    assert (result.code, result.error["type"]) == (8, "BuildError")
    assert "acme/core" in result.error["message"]


@pytest.mark.parametrize(
    ("words", "code", "kind"),
    [
        (["no-such-folder"], 2, "UsageError"),
        (["axpy", "--variant", "torch-rocm"], 2, "UsageError"),
        (["axpy", "--backend", "cpu"], 2, "UsageError"),
        (["axpy", "--name", "a b"], 2, "InvalidDocumentError"),
        (["home"], 8, "PublishRefusedError"),
        (["acme/absent@v1"], 3, "RepositoryNotFoundError"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_cannot_be_exported_is_a_typed_error(
    run: Run, builds: Path, registry: DirectoryRegistry, words: list[str], code: int, kind: str
) -> None:
    result = run("export-wheel", *words, "--json")
    assert (result.code, result.error["type"]) == (code, kind)


def test_without_auditwheel_the_command_says_what_to_install(
    run: Run, builds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "auditwheel", None)
    result = run("export-wheel", str(builds))
    assert result.code == MissingExtraError.exit_code
    assert "pip install 'kernel-hub[build]'" in result.err
