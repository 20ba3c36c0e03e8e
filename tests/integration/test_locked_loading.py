"""Locked loading as whole processes meet it: made here, brought there, loaded without any network, refused when it differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.model.commit import StoredFile
from kernel_hub.model.metadata import AtVersion
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.hub import HubServer

PROJECT = Path(__file__).parents[2]
CPU = "torch-stable-abi211-cpu-x86_64-linux"
CUDA = "torch-stable-abi211-cu128-x86_64-linux"
ARM = "torch-stable-abi211-cpu-aarch64-linux"
NEWER = {"_k.abi3.so": CPU.encode(), "new.py": b""}
HOST = {"cpu": "x86_64", "os": "linux", "torch": "2.13.0", "cxx11_abi": True, "backend": "cpu", "devices": []}

# A process in which torch is not to be had, and no connection to be made.
NO_TORCH = "import sys; sys.modules['torch'] = None\n"
NO_NETWORK = """
import socket
def _refuse(*arguments, **options):
    raise OSError("there is no network in this test")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = _refuse
"""
AS_HOST = f"""
import kernel_hub.api
from kernel_hub.model.host import Host
kernel_hub.api.this_host = lambda settings: Host.from_json({HOST!r})
"""
REPORT = """
import json
from kernel_hub.errors import KernelHubError
def attempt(call):
    try:
        module = call()
    except KernelHubError as error:
        print(json.dumps({"error": type(error).__name__, "message": error.message, "hint": error.hint(),
                          "violations": [str(item) for item in getattr(error, "violations", ())],
                          "missing": list(getattr(error, "missing", ()))}))
    else:
        print(json.dumps({"origin": module.origin(), "sum": module.axpy(2, [1], [3]),
                          "commit": module.__kernel_hub__.origin.pin.commit}))
"""


def python(code: str, environ: dict[str, str], folder: Path, *, prelude: str = "") -> list[dict[str, Any]]:
    """What a process reports that runs `code` in a folder."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", prelude + AS_HOST + REPORT + code],
        cwd=folder,
        env=environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def command(
    words: list[str], environ: dict[str, str], folder: Path, *, prelude: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    code = prelude + "import sys; from kernel_hub.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words],
        cwd=folder,
        env=environ | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[tool.kernel-hub.dependencies]\n"acme/axpy" = "1"\n')
    return folder


@pytest.fixture
def hub(hub_server: HubServer) -> HubServer:
    hub_server.registry.set_publisher("acme", True)
    needs = (AtVersion(RepoId("acme", "core"), 1),)
    publish_fake_kernel(
        hub_server.registry, "acme/core", builds={label: fake_build(label, name="core") for label in (CPU, CUDA)}
    )
    builds = {
        label: fake_build(label, kernel_depends=needs, files={"_k.abi3.so": label.encode()})
        for label in (CPU, CUDA, ARM)
    }
    publish_fake_kernel(hub_server.registry, "acme/axpy", builds=builds)
    return hub_server


def test_a_kernel_locked_without_torch_and_synced_elsewhere_loads_without_network(
    hub: HubServer, project: Path, tmp_path: Path
) -> None:
    """Scenario S2."""
    locker, elsewhere = hub.child_environment(tmp_path / "locker"), hub.child_environment(tmp_path / "elsewhere")
    targets = ["--target", "linux-x86_64-cpu-torch2.13", "--target", "linux-x86_64-cu128-torch2.13"]
    locked = command(["lock", *targets], locker, project, prelude=NO_TORCH)
    assert locked.returncode == 0, locked.stderr
    assert not [record for record in hub.log.records if record.path.endswith(".so")]

    synced = command(["sync", "--target", "linux-x86_64-cpu-torch2.13", "--json"], elsewhere, project, prelude=NO_TORCH)
    assert synced.returncode == 0, synced.stderr
    builds = json.loads(synced.stdout)["builds"]
    assert [(item["kernel"], item["label"], item["note"]) for item in builds] == [
        ("acme/axpy", CPU, ""),
        ("acme/core", CPU, ""),
    ]

    loading = """
import kernel_hub
attempt(lambda: kernel_hub.get_kernel("acme/axpy"))
attempt(lambda: kernel_hub.get_kernel("acme/axpy", version=1))
attempt(lambda: kernel_hub.get_locked_kernel("acme/axpy"))
attempt(lambda: kernel_hub.load_kernel("acme/axpy", lockfile="kernel-hub.lock"))
"""
    before = len(hub.log.records)
    commit = hub.registry.refs(RepoId("acme", "axpy")).branches["v1"]
    for more in ({}, {"HF_HUB_OFFLINE": "1"}, {"KERNEL_HUB_LOCKED": "1"}):
        loaded = python(loading, elsewhere | more, project, prelude=NO_NETWORK)
        assert loaded == [{"origin": f"axpy v1 {CPU}", "sum": [5], "commit": commit}] * 4, more
    assert len(hub.log.records) == before

    (Path(builds[0]["folder"]) / "_math.py").resolve().unlink()
    (Path(builds[0]["folder"]) / "_math.py").unlink()
    for more in ({}, {"HF_HUB_OFFLINE": "1"}):
        for answer in python(loading, elsewhere | more, project, prelude=NO_NETWORK):
            assert answer["error"] == "IncompleteArtifactError"
            assert "_math.py" in answer["message"] and CPU in answer["message"] and "acme/axpy" in answer["message"]
            assert answer["missing"] == ["_math.py"]
            assert "kernel-hub sync" in answer["hint"]
    repaired = command(["sync", "--target", "linux-x86_64-cpu-torch2.13"], elsewhere, project)
    assert repaired.returncode == 0, repaired.stderr
    assert python(loading, elsewhere, project, prelude=NO_NETWORK)[0]["sum"] == [5]


LOAD = 'import kernel_hub\nattempt(lambda: kernel_hub.get_kernel("acme/axpy"))\n'


def test_a_moved_branch_does_not_change_what_a_locked_project_loads(
    hub: HubServer, project: Path, tmp_path: Path
) -> None:
    environ = hub.child_environment(tmp_path / "home")
    assert command(["lock"], environ, project).returncode == 0
    locked = hub.registry.refs(RepoId("acme", "axpy")).branches["v1"]
    publish_fake_kernel(hub.registry, "acme/axpy", builds={CPU: fake_build(CPU, files=NEWER)})
    publish_fake_kernel(hub.registry, "acme/axpy", version=2)
    (loaded,) = python(LOAD, environ, project)
    assert loaded["commit"] == locked
    (unlocked,) = python(LOAD, hub.child_environment(tmp_path / "elsewhere"), tmp_path)
    assert unlocked["commit"] == hub.registry.refs(RepoId("acme", "axpy")).branches["v2"]


def test_only_what_is_locked_loads_when_nothing_else_may(hub: HubServer, project: Path, tmp_path: Path) -> None:
    environ = hub.child_environment(tmp_path / "home", KERNEL_HUB_LOCKED="1")
    assert command(["lock"], environ, project).returncode == 0
    (tmp_path / "folder").mkdir()
    code = """
import kernel_hub
attempt(lambda: kernel_hub.get_kernel("acme/axpy"))
attempt(lambda: kernel_hub.get_kernel("acme/axpy", version=2))
attempt(lambda: kernel_hub.get_kernel("acme/axpy", revision="main"))
attempt(lambda: kernel_hub.get_kernel("acme/other"))
attempt(lambda: kernel_hub.get_local_kernel("."))
print(json.dumps({"available": bool(kernel_hub.has_kernel("acme/other"))}))
"""
    answers = python(code, environ, project)
    assert answers[0]["sum"] == [5]
    assert [answer["error"] for answer in answers[1:5]] == ["NotLockedError"] * 4
    assert "holds acme/axpy at v1 only" in answers[1]["message"] and "KERNEL_HUB_LOCKED" in answers[1]["message"]
    assert "kernel-hub add acme/other" in answers[3]["hint"]
    assert answers[5] == {"available": False}
    (override,) = python(LOAD, environ | {"KERNEL_HUB_OVERRIDES": f"acme/axpy={tmp_path / 'folder'}"}, project)
    assert override["error"] == "NotLockedError" and "KERNEL_HUB_OVERRIDES" in override["message"]
    (unlocked,) = python(LOAD, environ, tmp_path)
    assert unlocked["error"] == "NotLockedError" and "no lock was found" in unlocked["message"]


def test_a_lock_is_found_by_variable_and_by_argument_before_the_project(
    hub: HubServer, project: Path, tmp_path: Path
) -> None:
    environ = hub.child_environment(tmp_path / "home")
    assert command(["lock"], environ, project).returncode == 0
    first = hub.registry.refs(RepoId("acme", "axpy")).branches["v1"]
    other = tmp_path / "other.lock"
    (project / "kernel-hub.lock").rename(other)
    second = publish_fake_kernel(hub.registry, "acme/axpy", builds={CPU: fake_build(CPU, files=NEWER)})
    assert command(["lock"], environ, project).returncode == 0
    code = f"""
import kernel_hub
attempt(lambda: kernel_hub.get_kernel("acme/axpy"))
attempt(lambda: kernel_hub.get_locked_kernel("acme/axpy", lockfile={str(other)!r}))
attempt(lambda: kernel_hub.get_locked_kernel("acme/axpy", lockfile="nowhere.lock"))
"""
    named = python(code, environ | {"KERNEL_HUB_LOCK": os.path.relpath(other, project)}, project)
    plain = python(code, environ, project)
    assert [answer["commit"] for answer in named[:2]] == [first, first]
    assert [answer["commit"] for answer in plain[:2]] == [second, first]
    assert "nowhere.lock" in plain[2]["message"]
    (missing,) = python(LOAD, environ | {"KERNEL_HUB_LOCK": "absent.lock"}, project)
    assert "KERNEL_HUB_LOCK" in missing["message"] and "absent.lock" in missing["message"]


def test_a_broken_lock_stops_loading_and_is_named(hub: HubServer, project: Path, tmp_path: Path) -> None:
    environ = hub.child_environment(tmp_path / "home")
    assert command(["lock"], environ, project).returncode == 0
    path = project / "kernel-hub.lock"
    path.write_bytes(path.read_bytes().replace(b"version = 1", b"<<<<<<< ours\nversion = 1", 1))
    (answer,) = python(LOAD, environ, project)
    assert answer["error"] == "InvalidDocumentError"
    assert "kernel-hub.lock" in answer["message"] and "line 10" in answer["message"]


def test_a_source_that_serves_other_bytes_under_the_locked_commit_is_refused(
    hub: HubServer, project: Path, tmp_path: Path
) -> None:
    """A mirror may keep the commit id and replace the build: whole, consistent, and signed off by its own manifest."""
    environ = hub.child_environment(tmp_path / "home")
    assert command(["lock"], environ, project).returncode == 0
    commit = hub.registry.refs(RepoId("acme", "axpy")).branches["v1"]
    evil = fake_build(CPU, files={"_math.py": b"def axpy(a, x, y): return [6]\ndef origin(): return 'evil'\n"})
    (answer,) = python(LOAD, environ | mirror_with(hub, tmp_path / "evil", commit, evil), project)
    assert answer["error"] == "DigestMismatchError"
    assert "metadata.json: changed (expected build digest sha256:" in answer["violations"][0]
    assert "kernel-hub.lock" in answer["message"] and CPU in answer["message"]
    assert "nothing was imported" in answer["hint"]


def test_the_same_mirror_with_the_same_bytes_loads(hub: HubServer, project: Path, tmp_path: Path) -> None:
    environ = hub.child_environment(tmp_path / "home")
    assert command(["lock"], environ, project).returncode == 0
    commit = hub.registry.refs(RepoId("acme", "axpy")).branches["v1"]
    needs = (AtVersion(RepoId("acme", "core"), 1),)
    same = fake_build(CPU, kernel_depends=needs, files={"_k.abi3.so": CPU.encode()})
    (answer,) = python(LOAD, environ | mirror_with(hub, tmp_path / "same", commit, same), project)
    assert answer["commit"] == commit


def mirror_with(hub: HubServer, folder: Path, commit: str, files: dict[str, bytes]) -> dict[str, str]:
    """Bind the namespace to a mirror of the Hub that has these files as its one build of `acme/axpy` at a commit."""
    mirror = DirectoryRegistry.create(folder)
    core = RepoId("acme", "core")
    upstream = hub.registry.load(core, hub.registry.refs(core).branches["v1"])
    for file in upstream.files:
        mirror.store(hub.registry.read(core, upstream.id, file.path, limit_bytes=1 << 20))
    axpy = [StoredFile.of(f"build/{CPU}/{path}", mirror.store(content)) for path, content in files.items()]
    for repo, id, stored in ((core, upstream.id, upstream.files), (RepoId("acme", "axpy"), commit, axpy)):
        mirror.create_repo(repo)
        mirror.import_commit(repo, id, stored, message="mirrored", time_s=0)
    return {"KERNEL_HUB_REGISTRIES": f"acme={folder.as_uri()}"}


def test_the_lock_does_not_make_a_publisher_trusted(hub: HubServer, project: Path, tmp_path: Path) -> None:
    """Scenario S19 with a lock: it says what is loaded, not that it may run."""
    environ = hub.child_environment(tmp_path / "home")
    assert command(["lock"], environ, project).returncode == 0
    hub.registry.set_publisher("acme", False)
    code = """
import kernel_hub
attempt(lambda: kernel_hub.get_locked_kernel("acme/axpy"))
attempt(lambda: kernel_hub.get_locked_kernel("acme/axpy", trust_remote_code=["acme/axpy", "acme/core"]))
attempt(lambda: kernel_hub.get_locked_kernel("acme/axpy", trust_remote_code=["acme/axpy"]))
"""
    refused, allowed, other = python(code, environ, project)
    assert refused["error"] == other["error"] == "UntrustedPublisherError"
    assert "acme/axpy" in refused["hint"] and "acme/core" in other["hint"]
    assert allowed["sum"] == [5]
    synced = command(["sync", "--target", "linux-x86_64-cpu-torch2.13"], environ, project)
    assert synced.returncode == 0 and "not a trusted publisher" in synced.stderr
    offline = environ | {"HF_HUB_OFFLINE": "1"}
    refused, allowed, _ = python(code, offline, project, prelude=NO_NETWORK)
    assert refused["error"] == "UntrustedPublisherError"
    assert allowed["sum"] == [5]


def test_a_publisher_that_could_not_be_asked_about_is_not_called_untrusted(
    hub: HubServer, project: Path, tmp_path: Path
) -> None:
    environ = hub.child_environment(tmp_path / "home")
    assert command(["lock"], environ, project).returncode == 0
    code = 'import kernel_hub\nattempt(lambda: kernel_hub.get_locked_kernel("acme/axpy"))\n'
    (answer,) = python(code, environ, project, prelude=NO_NETWORK)
    assert answer["error"] == "TrustUnknownError"


def test_a_locked_version_without_a_fitting_build_names_a_version_that_has_one(
    hub: HubServer, project: Path, tmp_path: Path
) -> None:
    """Scenario S6 with a lock, offline too."""
    for version, label in [(3, ARM), (4, CPU), (5, ARM)]:
        publish_fake_kernel(
            hub.registry, "acme/axpy", version=version, builds={label: fake_build(label, version=version)}
        )
    (project / "pyproject.toml").write_text('[tool.kernel-hub.dependencies]\n"acme/axpy" = "3"\n')
    environ = hub.child_environment(tmp_path / "home")
    assert command(["lock"], environ, project).returncode == 0
    answers = python(LOAD, environ, project)
    answers += python(LOAD, environ | {"HF_HUB_OFFLINE": "1"}, project, prelude=NO_NETWORK)
    for answer in answers:
        assert answer["error"] == "NoCompatibleVariantError"
        assert "version 4" in answer["hint"] and CPU in answer["hint"] and "kernel-hub lock" in answer["hint"]
    (project / "pyproject.toml").write_text('[tool.kernel-hub.dependencies]\n"acme/axpy" = ">=3,<6"\n')
    assert command(["lock", "--target", "linux-x86_64-cpu"], environ, project).returncode == 0
    (loaded,) = python(LOAD, environ, project)
    assert loaded["origin"] == f"axpy v4 {CPU}"


def test_locks_that_the_ecosystem_wrote_are_loaded(hub: HubServer, project: Path, tmp_path: Path) -> None:
    environ = hub.child_environment(tmp_path / "home")
    (project / "pyproject.toml").write_text('[tool.kernels.dependencies]\n"acme/axpy" = 1\n')
    code = """
import sys
from pathlib import Path
from kernels.cli import main
sys.argv = ["kernels", "lock", "."]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=environ | {"KERNELS_CACHE": str(tmp_path / "peer")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    locked = hub.registry.refs(RepoId("acme", "axpy")).branches["v1"]
    assert locked in (project / "kernels.lock").read_text()
    publish_fake_kernel(hub.registry, "acme/axpy", builds={CPU: fake_build(CPU, files=NEWER)})
    code = 'import kernel_hub\nattempt(lambda: kernel_hub.get_locked_kernel("acme/axpy", lockfile="kernels.lock"))\n'
    (loaded,) = python(code, environ, project)
    assert loaded["commit"] == locked


def test_the_digests_of_the_ecosystems_older_locks_are_checked(hub: HubServer, project: Path, tmp_path: Path) -> None:
    environ = hub.child_environment(tmp_path / "home")
    assert command(["lock"], environ, project).returncode == 0
    written = command(["export", "--format", "kernels-old", "--output", "kernels.lock"], environ, project)
    assert written.returncode == 0, written.stderr
    code = 'import kernel_hub\nattempt(lambda: kernel_hub.get_locked_kernel("acme/axpy", lockfile="kernels.lock"))\n'
    assert python(code, environ, project)[0]["sum"] == [5]
    path = project / "kernels.lock"
    entries = json.loads(path.read_text())
    assert entries[0]["repo_id"] == "acme/axpy"
    entries[0]["variants"][CPU]["hash"] = "sha256-" + "0" * 64
    path.write_text(json.dumps(entries))
    (refused,) = python(code, environ, project)
    assert refused["error"] == "DigestMismatchError"
    assert "sha256-000" in refused["violations"][0] and CPU in refused["violations"][0]


def test_the_ecosystem_loads_what_we_exported(hub: HubServer, project: Path, tmp_path: Path) -> None:
    pure = {"torch-cpu": fake_build("torch-cpu", name="pure")}
    locked = publish_fake_kernel(hub.registry, "acme/pure", builds=pure)
    environ = hub.child_environment(tmp_path / "home")
    (project / "pyproject.toml").write_text('[tool.kernel-hub.dependencies]\n"acme/pure" = ">=1"\n')
    assert command(["lock"], environ, project).returncode == 0
    assert command(["export", "--output", "kernels.lock"], environ, project).returncode == 0
    publish_fake_kernel(hub.registry, "acme/pure", builds={"torch-cpu": fake_build("torch-cpu", files={"n.py": b""})})
    code = """
from pathlib import Path
from kernels import get_locked_kernel
module = get_locked_kernel("acme/pure", lockfile=Path("kernels.lock"))
print(module.__file__, module.axpy(2, [1], [3]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=environ | {"KERNELS_CACHE": str(tmp_path / "peer")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert locked in done.stdout and done.stdout.rstrip().endswith("[5]")


def test_a_dependency_is_loaded_as_locked_wherever_the_lock_lies(hub: HubServer, project: Path, tmp_path: Path) -> None:
    environ = hub.child_environment(tmp_path / "home")
    assert command(["lock"], environ, project).returncode == 0
    core = RepoId("acme", "core")
    locked = hub.registry.refs(core).branches["v1"]
    newer = {CPU: fake_build(CPU, name="core", files={"new.py": b""})}
    assert publish_fake_kernel(hub.registry, core, builds=newer) != locked
    code = f"""
import kernel_hub
attempt(lambda: kernel_hub.get_locked_kernel("acme/axpy", lockfile={str(project / "kernel-hub.lock")!r}))
print(json.dumps({{kernel.name: kernel.origin.pin.commit for kernel in kernel_hub.loaded_kernels()}}))
"""
    (tmp_path / "elsewhere").mkdir()
    loaded, commits = python(code, environ, tmp_path / "elsewhere")
    assert loaded["sum"] == [5]
    assert commits == {"acme/axpy": loaded["commit"], "acme/core": locked}
