"""Builds whose files are split by GPU architecture: a machine fetches, verifies and imports what its devices can run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_hub.errors import DigestMismatchError, InvalidDocumentError
from kernel_hub.loader import Loader
from kernel_hub.model.capability import parse_capability
from kernel_hub.model.host import Host
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.requirement import Requirement
from kernel_hub.model.split import useless_files
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.child import run_python
from tests.support.fake_kernels import fake_build, publish_fake_kernel, write_fake_kernel
from tests.support.hub import HubServer

LABEL = "torch-cuda"
SPLIT = {"_sm80.bin": ["8.0", "8.6"], "_sm90.bin": ["9.0a"], "_sm120.bin": ["12.0", "12.0+PTX"], "_any.bin": ["novel"]}
FILES = {name: name.encode() * 100_000 for name in SPLIT}


def split_build(split: object = SPLIT, label: str = LABEL) -> dict[str, bytes]:
    build = fake_build(label, archs=("8.0", "9.0a", "12.0+PTX"), files=FILES)
    document = json.loads(build["metadata.json"]) | {"kernel-hub": {"file-archs": split}}
    return build | {"metadata.json": json.dumps(document, indent=2).encode()}


def machine(*archs: str) -> Host:
    devices = [{"index": index, "name": f"GPU{index}", "arch": arch} for index, arch in enumerate(archs)]
    facts = {"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "backend": "cuda", "backend_version": "13.0"}
    return Host.from_json(facts | {"devices": devices})


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    made = DirectoryRegistry.create(tmp_path / "registry")
    publish_fake_kernel(made, builds={LABEL: split_build()})
    return made


def loader(tmp_path: Path, *archs: str) -> Loader:
    environ = {"HF_HOME": str(tmp_path / "hf"), "KERNEL_HUB_REGISTRIES": f"acme={(tmp_path / 'registry').as_uri()}"}
    return Loader(load_settings(environ, tmp_path), machine(*archs))


ASK = Request(Requirement.parse("acme/axpy@v1"))


def here(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "hf").rglob("*.bin")}


@pytest.mark.parametrize(
    ("devices", "needed"),
    [
        (("9.0",), {"_sm90.bin", "_any.bin"}),
        (("8.6",), {"_sm80.bin", "_any.bin"}),
        (("12.1",), {"_sm120.bin", "_any.bin"}),
        (("9.0", "8.0"), {"_sm80.bin", "_sm90.bin", "_any.bin"}),
        ((), set(SPLIT)),
    ],
)
def test_a_machine_fetches_what_its_devices_can_run(registry, tmp_path: Path, devices, needed) -> None:  # type: ignore[no-untyped-def]
    request = Request(ASK.requirement, backend="cuda")
    loader(tmp_path, *devices).download(request)
    assert here(tmp_path) == needed


def test_a_kernel_has_one_digest_on_every_machine(registry, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    kernels = [loader(tmp_path / name, arch) for name, arch in (("a", "9.0"), ("b", "8.0"))]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "registry").symlink_to(tmp_path / "registry")
    digests = {kernel.download(ASK).tree_digest for kernel in kernels}
    assert len(digests) == 1


def test_another_device_later_adds_its_own_files(registry, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    loader(tmp_path, "9.0").download(ASK)
    loader(tmp_path, "8.0").download(ASK)
    assert here(tmp_path) == {"_sm80.bin", "_sm90.bin", "_any.bin"}


def test_what_was_left_out_does_not_exist_for_the_importer(registry, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    verified = loader(tmp_path, "9.0").download(ASK)
    assert "_sm80.bin" not in verified.files
    assert loader(tmp_path, "9.0").load(ASK).module.axpy(1, [1], [1]) == [2]


def test_a_needed_file_that_is_gone_or_changed_is_still_refused(registry, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder = write_fake_kernel(tmp_path / "kernel", {LABEL: split_build()}) / "build" / LABEL
    (folder / "_sm90.bin").write_bytes(b"changed")
    with pytest.raises(DigestMismatchError, match=r"_sm90\.bin"):
        loader(tmp_path, "9.0").load_folder(ASK, folder.parent)
    (folder / "_sm90.bin").unlink()
    with pytest.raises(DigestMismatchError, match=r"_sm90\.bin: missing"):
        loader(tmp_path, "9.0").load_folder(ASK, folder.parent)


def test_a_folder_that_lacks_only_what_no_device_runs_loads(tmp_path: Path) -> None:
    folder = write_fake_kernel(tmp_path / "kernel", {LABEL: split_build()}) / "build" / LABEL
    (folder / "_sm80.bin").unlink()
    assert loader(tmp_path, "9.0").load_folder(ASK, folder.parent).module.axpy(1, [1], [1]) == [2]
    with pytest.raises(DigestMismatchError, match=r"_sm80\.bin: missing"):
        loader(tmp_path, "8.0").load_folder(ASK, folder.parent)


def test_a_changed_file_that_nobody_needs_is_refused_if_it_is_there(tmp_path: Path) -> None:
    folder = write_fake_kernel(tmp_path / "kernel", {LABEL: split_build()}) / "build" / LABEL
    (folder / "_sm80.bin").write_bytes(b"changed")
    with pytest.raises(DigestMismatchError, match=r"_sm80\.bin"):
        loader(tmp_path, "9.0").load_folder(ASK, folder.parent)


@pytest.mark.parametrize(
    "split",
    [
        {"absent.bin": ["9.0"]},
        {"_sm90.bin": []},
        {"_sm90.bin": "9.0"},
        {"_sm90.bin": [9]},
        ["_sm90.bin"],
        {"../x": ["9.0"]},
    ],
)
def test_a_split_that_makes_no_sense_names_the_key(split: object) -> None:
    with pytest.raises(InvalidDocumentError, match="file-archs"):
        Metadata.parse(split_build(split)["metadata.json"])


def test_a_split_needs_a_digest() -> None:
    document = json.loads(split_build()["metadata.json"])
    del document["digest"]
    with pytest.raises(InvalidDocumentError, match="digest covers"):
        Metadata.parse(json.dumps(document).encode())


def test_the_key_survives_writing() -> None:
    metadata = Metadata.parse(split_build()["metadata.json"])
    assert Metadata.parse(metadata.format()) == metadata
    assert metadata.file_archs["_sm80.bin"] == ("8.0", "8.6")


def test_without_a_known_device_nothing_is_useless() -> None:
    split = {"a": ("9.0",)}
    assert useless_files(split, []) == frozenset()
    assert useless_files(split, [parse_capability("8.0")]) == {"a"}
    assert useless_files(split, [parse_capability("not an arch")]) == frozenset()


def test_the_peer_takes_every_file_and_loads(hub_server: HubServer, tmp_path: Path) -> None:
    publish_fake_kernel(hub_server.registry, builds={"torch-cpu": split_build(label="torch-cpu")})
    code = "import kernels; print(kernels.get_kernel('acme/axpy', version=1, trust_remote_code=True).axpy(1, [1], [1]))"
    assert run_python(code, environ=hub_server.child_environment(tmp_path)) == "[2]\n"
    assert {path.name for path in tmp_path.rglob("*.bin")} >= set(SPLIT)
