"""The straight line over a registry folder: what a caller of `get_kernel` meets, for machines that are not here too."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.errors import (
    EmptyKernelError,
    InvalidDocumentError,
    MissingDependencyError,
    NoCompatibleVariantError,
    RepositoryNotFoundError,
    TrustUnknownError,
    VersionNotFoundError,
)
from kernel_hub.loader import Loader
from kernel_hub.model.host import Host
from kernel_hub.model.requirement import Requirement
from kernel_hub.plan import Request
from kernel_hub.settings import Settings, load_settings
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.fake_kernels import fake_build, publish_fake_kernel, write_fake_kernel

HOSTS = Path(__file__).parents[1] / "vectors" / "hosts"
CPU = Host.from_json(
    {"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "cxx11_abi": True, "backend": "cpu", "devices": []}
)
CUDA_TORCH = {"cpu": "x86_64", "os": "linux", "torch": "2.13.0+cu130", "cxx11_abi": True, "backend": "cuda"}
CUDA_TORCH |= {"backend_version": "13.0"}
NATIVE = "torch213-cxx11-cu130-x86_64-linux"


def cuda(*archs: str) -> Host:
    devices = [{"index": index, "name": f"GPU{index}", "arch": arch} for index, arch in enumerate(archs)]
    return Host.from_json(CUDA_TORCH | {"devices": devices})


def ask(text: str = "acme/axpy", **options: object) -> Request:
    wish = {key: options.pop(key) for key in ("version", "revision") if key in options}
    return Request(Requirement.parse(text, **wish), **options)  # type: ignore[arg-type]


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    return DirectoryRegistry.create(tmp_path / "registry")


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    def make(**environ: str) -> Settings:
        bound = {
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "KERNEL_HUB_REGISTRIES": f"acme={(tmp_path / 'registry').as_uri()}",
        }
        return load_settings(
            {"HF_HOME": str(tmp_path / "hf"), "XDG_CONFIG_HOME": str(tmp_path)} | bound | environ, tmp_path
        )

    return make


@pytest.fixture
def loader(settings: Callable[..., Settings]) -> Callable[..., Loader]:
    def make(host: Host = CPU, **environ: str) -> Loader:
        return Loader(settings(**environ), host)

    return make


def test_a_kernel_is_loaded_by_version_and_carries_its_record(registry, loader) -> None:  # type: ignore[no-untyped-def]
    commit = publish_fake_kernel(registry, builds=["torch-cpu", "torch-cuda"])
    kernel = loader().load(ask(version=1))
    assert kernel.module.axpy(2, [1, 2], [3, 4]) == [5, 8]
    assert (kernel.origin.pin.commit, kernel.version, kernel.label) == (commit, 1, "torch-cpu")
    assert kernel.module.__kernel_hub__.module is kernel.module


def test_without_a_version_the_newest_is_taken_and_named(registry, loader, caplog) -> None:  # type: ignore[no-untyped-def]
    for version in (0, 1, 2):
        publish_fake_kernel(registry, version=version)
    with caplog.at_level(logging.INFO, "kernel_hub"):
        kernel = loader().load(ask())
    assert kernel.version == 2
    assert kernel.origin.pin.ref == "v2"
    assert "taking acme/axpy@v2" in caplog.text


def test_main_is_never_loaded_unless_it_is_named(registry, loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, branch="main")
    with pytest.raises(VersionNotFoundError):
        loader().load(ask())
    assert loader().load(ask(revision="main")).origin.pin.ref == "main"


def test_no_fit_is_one_error_with_another_version_as_the_first_way_out(registry, loader, caplog) -> None:  # type: ignore[no-untyped-def]
    for version, label in ((1, "torch-cuda"), (2, "torch-cpu"), (3, "torch-rocm"), (4, "torch-cpu"), (6, "torch-xpu")):
        publish_fake_kernel(registry, version=version, builds=[label])
    with pytest.raises(NoCompatibleVariantError) as caught:
        loader().load(ask(version=3))
    assert caught.value.hint().startswith("take version 4")
    assert "no build for this machine" in caplog.text, "a caller with a broad except still finds it in the log"
    with pytest.raises(NoCompatibleVariantError) as caught:
        loader().load(ask())
    assert caught.value.hint().startswith("take version 4")


def test_a_range_takes_the_newest_version_inside_it_that_fits(registry, loader) -> None:  # type: ignore[no-untyped-def]
    for version, label in ((1, "torch-cpu"), (2, "torch-cpu"), (3, "torch-rocm")):
        publish_fake_kernel(registry, version=version, builds=[label])
    kernel = loader().load(ask(version=">=1,<4"))
    assert kernel.version == 2
    assert any("v3" in note and "no fitting build" in note for note in kernel.notes)


def test_stray_folders_and_newer_labels_are_explained_and_never_loaded(registry, loader, caplog) -> None:  # type: ignore[no-untyped-def]
    strays = ["garbage_dir", ".DS_Store", "torch29-cxx11-cu1x-x86_64-linux", "torch3-nextgen-cu140-x86_64-linux"]
    publish_fake_kernel(registry, builds=[*strays, "torch-cpu"])
    with caplog.at_level(logging.INFO, "kernel_hub"):
        assert loader().load(ask(version=1)).label == "torch-cpu"
    assert not any(stray in caplog.text for stray in strays)
    reasons = {row["label"]: row["reason"] for row in loader().plan(ask(version=1)).to_json()["rejected"]}
    assert reasons == dict.fromkeys(strays[:3], "not understood") | {strays[3]: "needs a newer kernel_hub"}


def test_has_kernel_is_false_with_a_reason_where_nothing_fits_or_nothing_is_there(registry, loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, builds=["torch-cuda"])
    assert "no build for this machine" in loader().availability(ask()).reason
    missing = loader().availability(ask("acme/absent"))
    assert not missing
    assert isinstance(missing.error, RepositoryNotFoundError)
    assert loader(cuda("9.0")).availability(ask())


@pytest.mark.parametrize("devices", ["none", "unknown"])
@pytest.mark.parametrize("backend", [None, "auto", "cpu", "cuda"])
def test_a_cuda_torch_without_gpu_takes_the_cpu_build_and_may_inspect_cuda(
    registry,
    loader,
    backend: str | None,
    devices: str,  # type: ignore[no-untyped-def]
) -> None:
    publish_fake_kernel(registry, builds=["torch-cpu", "torch-cuda"])
    host = Host.from_json(CUDA_TORCH | ({"devices": []} if devices == "none" else {}))
    wants_cuda = backend == "cuda" or (devices == "unknown" and backend in (None, "auto"))
    request = ask(version=1, backend=backend)
    assert loader(host).availability(request)
    assert loader(host).download(request).artifact.label == ("torch-cuda" if wants_cuda else "torch-cpu")


def test_only_a_gpu_build_on_a_machine_without_gpu_is_a_no_for_auto_and_a_yes_for_cuda(registry, loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, builds=[NATIVE])
    host = Host.from_json(CUDA_TORCH | {"devices": []})
    assert "no GPU visible" in loader(host).availability(ask()).reason
    assert loader(host).availability(ask(backend="cuda"))


class TestArchitectures:
    """The same answer through every entry point: by name, by commit, by local path, by override."""

    @pytest.fixture(params=["name", "commit", "path", "override"])
    def plan(self, request, registry, loader, tmp_path: Path):  # type: ignore[no-untyped-def]
        def plan(host: Host, archs: dict[str, tuple[str, ...]], **options: object):  # type: ignore[no-untyped-def]
            builds = {label: fake_build(label, archs=listed) for label, listed in archs.items()}
            folder = write_fake_kernel(tmp_path / "kernel", builds)
            if request.param == "path":
                return loader(host)._planner.plan_folder(ask(**options), folder)
            if request.param == "override":
                return loader(host, KERNEL_HUB_OVERRIDES=f"acme/axpy={folder}").plan(ask(**options))
            commit = publish_fake_kernel(registry, builds=builds)
            return loader(host).plan(
                ask(**({"version": 1} if request.param == "name" else {"revision": commit}), **options)
            )

        return plan

    @pytest.mark.parametrize(
        ("archs", "devices", "fits"),
        [
            (("8.0", "9.0a"), ("8.6",), True),
            (("8.0", "9.0a"), ("9.0",), True),
            (("8.0", "9.0a"), ("10.0",), False),
            (("9.0+PTX",), ("12.0",), True),
            (("10.0f",), ("10.3",), True),
            (("9.0",), ("9.0", "8.0"), False),
            (("sm_next",), ("9.0",), True),
        ],
    )
    def test_every_visible_device_must_be_able_to_run_the_build(self, plan, archs, devices, fits) -> None:  # type: ignore[no-untyped-def]
        found = plan(cuda(*devices), {NATIVE: archs})
        assert (found.chosen is not None) is fits
        if not fits:
            (verdict,) = found.selection.rejected
            assert f"device {len(devices) - 1}" in verdict.found

    def test_the_architecture_takes_part_in_choosing(self, plan) -> None:  # type: ignore[no-untyped-def]
        found = plan(cuda("10.0"), {NATIVE: ("9.0a",), "torch-cuda": ()})
        assert found.chosen.variant.name == "torch-cuda"

    def test_a_named_device_is_the_only_one_that_counts(self, plan) -> None:  # type: ignore[no-untyped-def]
        assert plan(cuda("9.0", "8.0"), {NATIVE: ("9.0",)}, device=0).chosen is not None

    def test_the_check_can_be_left_out(self, plan) -> None:  # type: ignore[no-untyped-def]
        assert plan(cuda("8.0"), {NATIVE: ("9.0",)}, check_arch=False).chosen is not None

    def test_a_device_that_is_not_there_is_named(self, plan) -> None:  # type: ignore[no-untyped-def]
        with pytest.raises(InvalidDocumentError, match="device 7"):
            plan(cuda("9.0"), {NATIVE: ("9.0",)}, device=7)


def test_the_architecture_is_decided_before_anything_large_is_read(registry, loader, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    large = {"weights.bin": bytes(3 << 20)}
    publish_fake_kernel(registry, builds={NATIVE: fake_build(NATIVE, archs=("9.0a",), files=large)})
    with pytest.raises(NoCompatibleVariantError):
        loader(cuda("8.0")).load(ask(version=1))
    cached = sum(
        path.stat().st_size for path in (tmp_path / "hf").rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert cached < 1 << 20


class NotInstalled:
    """Hides distributions that this machine may have."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in ("einops", "helion", "tvm_ffi"):
            raise ModuleNotFoundError(name)


def test_missing_python_dependencies_are_one_error_with_one_pip_line_before_any_download(
    registry,
    loader,
    tmp_path: Path,
    monkeypatch,  # type: ignore[no-untyped-def]
) -> None:
    monkeypatch.setattr(sys, "meta_path", [NotInstalled(), *sys.meta_path])
    for name in ("einops", "helion", "tvm_ffi"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    files = {"weights.bin": bytes(3 << 20)}
    build = fake_build("torch-xpu", python_depends=("einops", "helion", "tvm-ffi"), files=files)
    publish_fake_kernel(registry, builds={"torch-xpu": build})
    host = Host.from_json(
        {"cpu": "x86_64", "os": "linux", "torch": "2.13", "backend": "xpu", "backend_version": "2025.3"}
    )
    with pytest.raises(MissingDependencyError) as caught:
        loader(host).load(ask(version=1))
    assert set(caught.value.distributions) == {"einops", "helion", "apache-tvm-ffi"}
    assert str(caught.value).count("pip install") == 1
    cached = sum(
        path.stat().st_size for path in (tmp_path / "hf").rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert cached < 1 << 20
    assert not loader(host).availability(ask(version=1))


def metadata_with(**changes: object) -> dict[str, bytes]:
    files = fake_build()
    document = json.loads(files["metadata.json"]) | changes
    kept = {key: value for key, value in document.items() if value is not ...}
    return files | {"metadata.json": json.dumps(kept).encode()}


def test_unknown_metadata_keys_are_accepted_at_the_top_and_nested(registry, loader) -> None:  # type: ignore[no-untyped-def]
    build = metadata_with(novelty=[1], backend={"type": "cpu", "novelty": {}})
    publish_fake_kernel(registry, builds={"torch-cpu": build})
    assert loader().load(ask(version=1)).module.axpy(1, [1], [1]) == [2]


def test_a_missing_required_key_is_named_with_the_build_and_the_least_client(registry, loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, builds={"torch-cpu": metadata_with(id=..., **{"kernels-minver": "9.9.9"})})
    with pytest.raises(InvalidDocumentError) as caught:
        loader().load(ask(version=1))
    text = str(caught.value)
    assert "id" in text
    assert "torch-cpu" in text
    assert "9.9.9" in text


def test_an_override_is_used_and_shown(registry, loader, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry)
    folder = write_fake_kernel(tmp_path / "my kernel: v2")
    here = loader(KERNEL_HUB_OVERRIDES=json.dumps({"acme/axpy": str(folder)}))
    plan = here.plan(ask())
    assert "KERNEL_HUB_OVERRIDES" in plan.to_json()["override"]
    assert "override" in str(plan)
    kernel = here.load(ask())
    assert str(folder) in str(kernel.origin)
    assert "KERNEL_HUB_OVERRIDES" in str(kernel.origin)


@pytest.mark.parametrize("variable", ["KERNEL_HUB_OVERRIDES", "LOCAL_KERNELS"])
def test_a_missing_override_folder_names_variable_and_path(loader, variable: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    absent = tmp_path / "absent"
    with pytest.raises(InvalidDocumentError) as caught:
        loader(**{variable: f"acme/axpy={absent}"}).load(ask())
    assert variable in str(caught.value)
    assert str(absent) in str(caught.value)


def test_a_single_build_loads_from_a_folder_of_any_name(loader, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    build = write_fake_kernel(tmp_path / "kernel") / "build" / "torch-cpu"
    renamed = build.rename(tmp_path / "anything")
    assert loader().load_folder(ask(), renamed).module.axpy(1, [1], [1]) == [2]


def test_a_folder_without_builds_says_what_was_looked_for(loader, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidDocumentError, match=r"holds no build.*metadata\.json"):
        loader().load_folder(ask(), tmp_path / "empty")


def test_a_build_without_entry_module_is_an_empty_kernel(registry, loader) -> None:  # type: ignore[no-untyped-def]
    files = fake_build(files={"__init__.py": b""})
    document = json.loads(files.pop("metadata.json"))
    del files["__init__.py"], document["digest"]
    publish_fake_kernel(registry, builds={"torch-cpu": files | {"metadata.json": json.dumps(document).encode()}})
    with pytest.raises(EmptyKernelError, match="__init__"):
        loader().load(ask(version=1))


def test_a_registry_folder_that_is_none_is_named(settings, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "registry").mkdir()
    with pytest.raises(InvalidDocumentError, match="registry"):
        Loader(settings(), CPU).load(ask())


def test_a_bound_namespace_is_never_looked_up_elsewhere(registry, loader, start_hub, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    hub = start_hub(tmp_path / "public")
    publish_fake_kernel(hub.registry)
    with pytest.raises(RepositoryNotFoundError):
        loader(HF_ENDPOINT=hub.url).load(ask(version=1, trust_remote_code=True))
    assert hub.log.records == ()


def test_a_publisher_that_could_not_be_asked_about_is_not_called_untrusted(loader) -> None:  # type: ignore[no-untyped-def]
    answer = loader().availability(ask("stranger/axpy", version=1))
    assert not answer
    assert not isinstance(answer.error, TrustUnknownError), (
        "the source could not be read at all: no verdict about trust"
    )
    assert "trust" not in answer.reason


def test_a_golden_host_can_be_asked_about(registry, settings) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, builds=[NATIVE, "torch-rocm", "torch-metal", "torch-cpu"])
    taken = {}
    for name in ("h100", "mi300", "cpu-only-cpu-torch"):
        host = Host.from_json(json.loads((HOSTS / f"{name}.json").read_text()))
        chosen = Loader(settings(), host).plan(ask(version=1)).chosen
        taken[name] = chosen.variant.name.split("-")[-1] if chosen else None
    assert taken["mi300"] == "rocm"
    assert taken["cpu-only-cpu-torch"] == "cpu"


def test_a_plan_says_the_same_as_json_and_as_text(registry, loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, builds=["torch-cpu", NATIVE])
    plan = loader().plan(ask(version=1))
    document = json.loads(json.dumps(plan.to_json()))
    assert document["chosen"] == "torch-cpu"
    for row in document["rejected"]:
        assert row["label"] in str(plan)
    assert Host.from_json(document["host"]) == dataclasses.replace(CPU, probes=Host.from_json(document["host"]).probes)


@pytest.mark.parametrize(
    ("host", "device"), [(CPU, 3), (CPU, 0), (cuda("9.0"), 1), (cuda("9.0"), -1), (Host.from_json(CUDA_TORCH), -1)]
)
def test_a_device_that_is_not_there_is_refused_whatever_the_machine_has(  # type: ignore[no-untyped-def]
    registry, loader, tmp_path: Path, host: Host, device: int
) -> None:
    publish_fake_kernel(registry, builds=["torch-cpu", "torch-cuda"])
    for check_arch in (True, False):
        request = ask(device=device, check_arch=check_arch)
        with pytest.raises(InvalidDocumentError, match=f"device {device} is not visible; visible: "):
            loader(host).load(request)
        answer = loader(host).availability(request)
        assert not answer and answer.known and f"device {device}" in answer.reason
    with pytest.raises(InvalidDocumentError, match=f"device {device}"):
        loader(host).load_folder(ask(device=device), write_fake_kernel(tmp_path / "axpy", ["torch-cpu", "torch-cuda"]))


def test_any_device_may_be_named_where_nobody_knows_which_there_are(registry, loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, builds=["torch-cuda"])
    assert loader(Host.from_json(CUDA_TORCH)).plan(ask(device=3)).chosen is not None


def test_what_could_not_be_found_out_is_no_no(registry, loader) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry)
    assert loader().availability(ask()).answer == "yes"
    absent = loader().availability(ask("acme/absent"))
    assert absent.known and absent.answer == "no"
    dead = loader(KERNEL_HUB_REGISTRIES="acme=http://127.0.0.1:9").availability(ask())
    assert not dead and not dead.known and dead.answer == "unknown"
    offline = loader(HF_HUB_OFFLINE="1").availability(ask("other/axpy"))
    assert not offline.known and offline.answer == "unknown"


def test_an_override_for_a_misspelt_name_is_told_of(registry, loader, tmp_path: Path, caplog) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry)
    folder = write_fake_kernel(tmp_path / "folder")
    with caplog.at_level(logging.WARNING, "kernel_hub"):
        loader(KERNEL_HUB_OVERRIDES=f"acme/axpyy={folder}").plan(ask())
        assert "override for acme/axpyy is not used for acme/axpy" in caplog.text
        caplog.clear()
        loader(KERNEL_HUB_OVERRIDES=f"acme/axpy={folder}").plan(ask())
    assert "override" not in caplog.text


def test_building_is_a_way_out_where_the_sources_are_known(registry, loader, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    publish_fake_kernel(registry, builds=["torch-rocm"])
    assert "kernel-hub build" not in str(loader().plan(ask()))
    folder = write_fake_kernel(tmp_path / "axpy", ["torch-rocm"])
    for is_project in (False, True):
        with pytest.raises(NoCompatibleVariantError) as caught:
            loader().load_folder(ask(), folder)
        assert ("kernel-hub build" in caught.value.hint()) == is_project
        (folder / "build.toml").touch()
