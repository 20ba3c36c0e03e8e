"""`kernel-hub mirror`, `bundle`, `unbundle` as a user meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.fake_kernels import fake_build, publish_fake_kernel

AXPY = RepoId("acme", "axpy")
LABELS = ("torch-cpu", "torch-stable-abi211-cpu-x86_64-linux", "torch-stable-abi211-cu128-x86_64-linux")


@pytest.fixture
def project(run, tmp_path: Path, registry: DirectoryRegistry, monkeypatch: pytest.MonkeyPatch) -> Path:  # type: ignore[no-untyped-def]
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[tool.kernel-hub.dependencies]\n"acme/axpy" = "1"\n')
    publish_fake_kernel(registry, AXPY, builds={label: fake_build(label) for label in LABELS})
    monkeypatch.chdir(folder)
    assert run("lock").code == 0
    return folder


def test_a_target_that_leaves_much_open_gets_every_build_that_could_serve_it(run, project: Path) -> None:  # type: ignore[no-untyped-def]
    synced = run("sync", "--target", "linux-x86_64-cpu", "--json").json["builds"]
    assert [item["label"] for item in synced] == ["torch-cpu", "torch-stable-abi211-cpu-x86_64-linux"]
    one = run("sync", "--target", "linux-x86_64-cpu-torch2.13", "--json").json["builds"]
    assert [item["label"] for item in one] == ["torch-stable-abi211-cpu-x86_64-linux"]
    none = run("sync", "--target", "linux-x86_64-rocm71", "--json")
    assert (none.code, none.error["type"]) == (4, "TargetNotServedError")


def test_mirroring_tells_what_was_copied_and_how_to_load_from_it(
    run,
    project: Path,
    registry: DirectoryRegistry,
    tmp_path: Path,  # type: ignore[no-untyped-def]
) -> None:
    first = run("mirror", "--to", str(tmp_path / "mirror"), "--json").json
    (kernel,) = first["kernels"]
    assert kernel["sent_bytes"] == kernel["size_bytes"] > 0
    again = run("mirror", "--to", str(tmp_path / "mirror"))
    assert "of which 0 B were new" in again.out
    assert f"export KERNEL_HUB_REGISTRIES='acme={tmp_path / 'mirror'}'" in again.out
    mirror = DirectoryRegistry.open(tmp_path / "mirror")
    assert mirror.refs(AXPY).branches["v1"] == registry.refs(AXPY).branches["v1"]


def test_an_archive_is_made_and_unpacked_beside_its_lock(run, project: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    made = run("bundle", "--to", str(tmp_path / "kernels.tar"), "--json").json
    assert made["size_bytes"] == (tmp_path / "kernels.tar").stat().st_size
    unpacked = run(
        "unbundle", str(tmp_path / "kernels.tar"), "--to", str(tmp_path / "out"), "--lock", "kernel-hub.lock"
    )
    assert unpacked.code == 0 and "KERNEL_HUB_REGISTRIES" in unpacked.out
    assert (tmp_path / "out" / "kernel-hub.lock").read_bytes() == (project / "kernel-hub.lock").read_bytes()


def test_a_changed_archive_is_refused_with_its_exit_code_and_nothing_is_unpacked(
    run,
    project: Path,
    tmp_path: Path,  # type: ignore[no-untyped-def]
) -> None:
    archive = tmp_path / "kernels.tar"
    run("bundle", "--to", str(archive))
    content = archive.read_bytes()
    place = content.index(b"def axpy")
    archive.write_bytes(content[:place] + b"DEF" + content[place + 3 :])
    refused = run("unbundle", str(archive), "--to", str(tmp_path / "out"), "--json")
    assert (refused.code, refused.error["type"]) == (5, "BlobMismatchError")
    assert DirectoryRegistry.open(tmp_path / "out").repos() == ()
    archive.write_bytes(content)
    small = run("unbundle", str(archive), "--to", str(tmp_path / "out"), "--limit-gib", "0", "--json")
    assert (small.code, "holds more than is read" in small.error["message"]) == (2, True)


@pytest.mark.parametrize("command", ["mirror", "bundle"])
def test_without_a_lock_there_is_nothing_to_copy(run, project: Path, tmp_path: Path, command: str) -> None:  # type: ignore[no-untyped-def]
    (project / "kernel-hub.lock").unlink()
    refused = run(command, "--to", str(tmp_path / "there"), "--json")
    assert (refused.code, refused.error["type"]) == (3, "NotLockedError")
    assert not (tmp_path / "there").exists()


def test_an_archive_that_is_not_there_is_named(run, project: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    refused = run("unbundle", str(tmp_path / "absent.tar"), "--to", str(tmp_path / "out"), "--json")
    assert refused.code == 2 and "absent.tar" in refused.error["message"]
