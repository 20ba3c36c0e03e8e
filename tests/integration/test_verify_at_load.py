"""What `get_kernel` does about a cache whose files are not what was fetched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir

from kernel_hub.errors import DigestMismatchError, KernelHubError, KernelImportError
from kernel_hub.loader import Loader
from kernel_hub.model.host import Host
from kernel_hub.model.requirement import Requirement
from kernel_hub.plan import Request
from kernel_hub.settings import load_settings
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.fake_kernels import fake_build, publish_fake_kernel

CPU = Host.from_json(
    {"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "cxx11_abi": True, "backend": "cpu", "devices": []}
)
REQUEST = Request(Requirement.parse("acme/axpy", version=1))


@pytest.fixture
def loader(tmp_path: Path) -> Callable[..., Loader]:
    publish_fake_kernel(DirectoryRegistry.create(tmp_path / "registry"), builds=["torch-cpu"])

    def make(**environ: str) -> Loader:
        settings = {
            "HF_HOME": str(tmp_path / "hf"),
            "XDG_CONFIG_HOME": str(tmp_path),
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "KERNEL_HUB_REGISTRIES": f"acme={(tmp_path / 'registry').as_uri()}",
        }
        return Loader(load_settings(settings | environ, tmp_path), CPU)

    return make


def cached_file(folder: Path, name: str) -> Path:
    (found,) = folder.rglob(name)
    return found.resolve()


def test_one_changed_byte_in_the_cache_is_refused_by_every_later_load_offline(
    loader: Callable[..., Loader], tmp_path: Path
) -> None:
    loader().download(REQUEST)
    file = cached_file(tmp_path / "hf", "_math.py")
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.chmod(0o644)
    file.write_bytes(content)
    for _ in range(2):
        with pytest.raises(DigestMismatchError, match=r"_math\.py: changed") as caught:
            loader(HF_HUB_OFFLINE="1").download(REQUEST)
        assert str(file) in caught.value.hint()


def test_what_was_verified_is_stamped_below_our_home(loader: Callable[..., Loader], tmp_path: Path) -> None:
    loader().download(REQUEST)
    assert len(list((tmp_path / "hf" / "kernel_hub" / "stamps").iterdir())) == 1


def test_verification_on_every_load_uses_no_stamp(loader: Callable[..., Loader], tmp_path: Path) -> None:
    loader(KERNEL_HUB_VERIFY="always").download(REQUEST)
    assert not (tmp_path / "hf" / "kernel_hub" / "stamps").exists()


def _add_a_file(folder: Path) -> None:
    (folder / "more.py").write_text("import os")


def _lead_outside(folder: Path) -> None:
    (folder / "_math.py").unlink()
    (folder / "_math.py").symlink_to("/etc/hosts")


def _put_a_folder(folder: Path) -> None:
    (folder / "_math.py").unlink()
    (folder / "_math.py").mkdir()


def _put_another_build(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.mkdir()
    (folder / "__init__.py").write_text("import os")


def _change_bytes(folder: Path) -> None:
    file = folder / "_math.py"
    file.write_bytes(file.read_bytes()[:-2] + b"x\n")


@pytest.mark.parametrize(
    "damage",
    [_add_a_file, _lead_outside, _put_a_folder, _put_another_build, _change_bytes],
    ids=["extra file", "link outside", "folder", "another build", "changed bytes"],
)
def test_whatever_happened_to_a_build_in_the_cache_downloading_it_repairs_it(
    loader: Callable[..., Loader], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    folder = loader().download(REQUEST).artifact.root
    right = {path.name: path.read_bytes() for path in folder.iterdir()}
    damage(folder)
    assert loader().download(REQUEST).artifact.root == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == right
    assert not list((tmp_path / "hf").rglob(".kernel_hub*"))


def test_loading_leaves_a_file_that_is_not_the_kernels_where_it_is_and_names_the_command_that_repairs(
    loader: Callable[..., Loader],
) -> None:
    folder = loader().download(REQUEST).artifact.root
    _add_a_file(folder)
    with pytest.raises(DigestMismatchError, match=r"more\.py") as caught:
        loader().load(REQUEST)
    assert "kernel-hub download acme/axpy@v1 makes it anew" in caught.value.hint()
    assert (folder / "more.py").is_file()


def _swap_in_another_kernel(loader: Callable[..., Loader], tmp_path: Path, *, with_blobs: bool) -> str:
    """Put all of another kernel's files in the place of the kernel's, with nobody left to fetch from; the commit."""
    other = {"__init__.py": b"raise SystemExit('the other kernel ran')\n"}
    registry = DirectoryRegistry.open(tmp_path / "registry")
    publish_fake_kernel(registry, "acme/other", builds={"torch-cpu": fake_build(name="other", files=other)})
    elsewhere = loader().download(Request(Requirement.parse("acme/other", version=1))).artifact.root
    folder = loader().download(REQUEST).artifact.root
    shutil.rmtree(folder)
    shutil.copytree(elsewhere, folder, symlinks=True)
    if with_blobs:
        ours, theirs = (build.parents[3] / "blobs" for build in (folder, elsewhere))
        shutil.rmtree(ours)
        shutil.copytree(theirs, ours)
    shutil.rmtree(tmp_path / "registry")
    DirectoryRegistry.create(tmp_path / "registry")
    return folder.parents[1].name


def test_another_kernels_build_in_its_place_is_refused_and_its_code_never_runs(
    loader: Callable[..., Loader], tmp_path: Path
) -> None:
    commit = _swap_in_another_kernel(loader, tmp_path, with_blobs=True)
    with pytest.raises(KernelHubError) as caught:
        loader().load(Request(Requirement.parse("acme/axpy", revision=commit)))
    assert not isinstance(caught.value, KernelImportError)


def test_another_kernels_build_in_its_place_gives_way_to_bytes_that_are_still_here(
    loader: Callable[..., Loader], tmp_path: Path
) -> None:
    commit = _swap_in_another_kernel(loader, tmp_path, with_blobs=False)
    kernel = loader().load(Request(Requirement.parse("acme/axpy", revision=commit)))
    assert kernel.module.axpy(2, [1], [1]) == [3]


def test_what_hf_cache_freed_is_gone_offline_and_fetched_again_online(
    loader: Callable[..., Loader], tmp_path: Path
) -> None:
    root = loader().download(REQUEST).artifact.root
    (cache,) = {path for path in root.parents if (path / "kernels--acme--axpy").is_dir()}
    found = scan_cache_dir(cache)
    found.delete_revisions(root.parent.parent.name).execute()
    assert not root.exists()
    assert loader().download(REQUEST).artifact.root == root
