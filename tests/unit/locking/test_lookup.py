"""Which lock applies to a call."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from kernel_hub.errors import InvalidDocumentError, NotLockedError
from kernel_hub.locking.lookup import Caller, calling_code, find_pin, importing
from kernel_hub.locking.reading import read_lock
from kernel_hub.model.digest import Digest
from kernel_hub.model.lock import Lock, LockedBuild, LockedKernel
from kernel_hub.model.lock_peer import PeerLock, format_peer_lock
from kernel_hub.model.lock_pin import LockedPin
from kernel_hub.model.lock_text import format_lock
from kernel_hub.model.requirement import ExactVersion, RepoId, Requirement
from kernel_hub.settings import Settings, load_settings

ANY = Requirement.parse("acme/axpy")


def lock(digit: str, *repos: str) -> Lock:
    """A lock whose commits consist of one digit."""
    build = LockedBuild("torch-cpu", (), 1, Digest.of(b""))
    return Lock(
        (),
        tuple(
            LockedKernel(RepoId.parse(repo), digit * 40, 1, (ExactVersion(1),), (build,))
            for repo in repos or ("acme/axpy",)
        ),
    )


def put(folder: Path, digit: str, *repos: str, name: str = "kernel-hub.lock") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(format_lock(lock(digit, *repos)))
    return folder / name


def settings(folder: Path, **environ: str) -> Settings:
    folder.mkdir(parents=True, exist_ok=True)
    return load_settings({"HF_HOME": str(folder), "HOME": str(folder)} | environ, folder)


def found(pin: LockedPin | None) -> str | None:
    return None if pin is None else pin.pin.commit[0]


def installed(site: Path, digit: str, *, name: str = "app", place: str = "kernel-hub.lock") -> Caller:
    """A distribution with a lock in its metadata, and the code in it that asks."""
    metadata = site / f"{name}-1.0.dist-info"
    put((metadata / place).parent, digit, name=Path(place).name)
    (metadata / "RECORD").write_text(f"{name}/__init__.py,,\n{name}/sub/model.py,sha256=x,1\n")
    return Caller(f"{name}.sub.model", str(site / name / "sub" / "model.py"))


@pytest.mark.parametrize(
    ("module", "file", "root", "inside"),
    [
        ("app.sub.model", "site/app/sub/model.py", "site", "app/sub/model.py"),
        ("app", "site/app/__init__.py", "site", "app/__init__.py"),
        ("app", "site/app.py", "site", "app.py"),
        ("app.__main__", "site/app/__main__.py", "site", "app/__main__.py"),
        ("__main__", "here/script.py", "here", "script.py"),
    ],
)
def test_the_place_of_a_caller_is_where_its_package_is_imported_from(
    tmp_path: Path, module: str, file: str, root: str, inside: str
) -> None:
    assert Caller(module, str(tmp_path / file)).place == (tmp_path / root, inside)


def test_code_without_a_file_has_no_place() -> None:
    assert Caller("__main__", None).place is None


def test_the_caller_is_the_nearest_code_outside_of_the_package() -> None:
    package = ModuleType("lookup_package.inner")
    exec(
        "def ask(find):\n    return again(find)\ndef again(find):\n    return find('lookup_package')\n",
        package.__dict__,
    )
    assert package.__dict__["ask"](calling_code) == Caller(__name__, __file__)


def test_the_project_of_the_working_folder_is_found_upwards(tmp_path: Path) -> None:
    put(tmp_path / "project", "1")
    (tmp_path / "project" / "pyproject.toml").touch()
    inner = tmp_path / "project" / "src" / "app"
    assert found(find_pin(settings(inner), ANY)) == "1"
    assert found(find_pin(settings(tmp_path / "project"), ANY)) == "1"
    assert found(find_pin(settings(tmp_path), ANY)) is None


def test_a_stray_file_above_is_not_a_projects_lock(tmp_path: Path) -> None:
    put(tmp_path / "shared", "1")
    assert found(find_pin(settings(tmp_path / "shared" / "work"), ANY)) is None
    assert found(find_pin(settings(tmp_path / "shared"), ANY)) == "1"


def test_a_file_that_the_call_names_is_the_only_one_asked(tmp_path: Path) -> None:
    named = put(tmp_path, "2", "acme/other", name="named.lock")
    put(tmp_path / "project", "1")
    here = settings(tmp_path / "project", KERNEL_HUB_LOCK=str(put(tmp_path, "3", name="variable.lock")))
    assert found(find_pin(here, ANY, lock_file=named)) is None
    assert found(find_pin(here, Requirement.parse("acme/other"), lock_file=named)) == "2"
    with pytest.raises(NotLockedError, match=r"named\.lock \(named by the call\) does not hold acme/axpy"):
        find_pin(here, ANY, lock_file=named, required=True)


def test_the_lock_of_the_environment_comes_before_every_other_place(tmp_path: Path) -> None:
    put(tmp_path / "project", "1")
    caller = installed(tmp_path / "site-packages", "2")
    here = settings(tmp_path / "project", KERNEL_HUB_LOCK=str(put(tmp_path, "3", "acme/other", name="other.lock")))
    assert found(find_pin(here, ANY, caller=caller)) is None
    assert found(find_pin(here, Requirement.parse("acme/other"), caller=caller)) == "3"


@pytest.mark.parametrize("place", ["kernel-hub.lock", "extra_metadata/kernel-hub.lock"])
def test_the_metadata_of_the_callers_distribution_comes_before_the_working_folder(tmp_path: Path, place: str) -> None:
    put(tmp_path / "project", "1")
    here = settings(tmp_path / "project")
    caller = installed(tmp_path / "site-packages", "2", place=place)
    assert found(find_pin(here, ANY, caller=caller)) == "2"
    stranger = Caller("other.model", str(tmp_path / "site-packages" / "other" / "model.py"))
    assert found(find_pin(here, ANY, caller=stranger)) == "1"


def test_a_lock_that_does_not_hold_the_kernel_leaves_it_to_the_next(tmp_path: Path) -> None:
    put(tmp_path / "project", "1", "acme/moe")
    caller = installed(tmp_path / "site-packages", "2")
    assert found(find_pin(settings(tmp_path / "project"), Requirement.parse("acme/moe"), caller=caller)) == "1"


def test_the_ecosystems_lock_in_the_metadata_is_read_too(tmp_path: Path) -> None:
    caller = installed(tmp_path / "site-packages", "2", place="kernels.lock")
    (path,) = (tmp_path / "site-packages").glob("*.dist-info/kernels.lock")
    path.write_bytes(format_peer_lock(lock("4")))
    pin = find_pin(settings(tmp_path / "empty"), ANY, caller=caller)
    assert found(pin) == "4" and pin is not None
    assert isinstance(pin.found.lock, PeerLock) and pin.allows("any-label")


def test_code_that_is_not_installed_takes_the_lock_of_its_own_project(tmp_path: Path) -> None:
    put(tmp_path / "library", "1")
    (tmp_path / "library" / "pyproject.toml").touch()
    put(tmp_path / "working", "2")
    caller = Caller("lib.model", str(tmp_path / "library" / "src" / "lib" / "model.py"))
    assert found(find_pin(settings(tmp_path / "working"), ANY, caller=caller)) == "1"


def test_installed_code_does_not_take_the_lock_of_the_project_around_its_environment(tmp_path: Path) -> None:
    put(tmp_path / "project", "1")
    (tmp_path / "project" / "pyproject.toml").touch()
    site = tmp_path / "project" / ".venv" / "lib" / "site-packages"
    caller = Caller("lib.model", str(site / "lib" / "model.py"))
    assert found(find_pin(settings(tmp_path / "elsewhere"), ANY, caller=caller)) is None


def test_while_a_locked_kernel_is_imported_its_lock_applies(tmp_path: Path) -> None:
    named = put(tmp_path, "2", "acme/axpy", "acme/core", name="named.lock")
    here = settings(tmp_path / "empty")
    core = Requirement.parse("acme/core@v1")
    assert found(find_pin(here, core)) is None
    with importing(find_pin(here, ANY, lock_file=named)):
        assert found(find_pin(here, core)) == "2"
        with importing(None):
            assert found(find_pin(here, core)) == "2"
    assert found(find_pin(here, core)) is None


def test_when_only_locked_kernels_may_be_loaded_the_error_says_where_was_looked(tmp_path: Path) -> None:
    here = settings(tmp_path / "empty", KERNEL_HUB_LOCKED="1")
    with pytest.raises(NotLockedError, match=r"no lock was found from .* KERNEL_HUB_LOCKED"):
        find_pin(here, ANY)
    put(tmp_path / "empty", "1")
    assert found(find_pin(here, ANY)) == "1"
    with pytest.raises(NotLockedError, match="holds acme/axpy at v1 only"):
        find_pin(here, Requirement.parse("acme/axpy@v2"))


def test_another_version_than_the_locked_one_is_loaded_unlocked_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "project", "1")
    here = settings(tmp_path / "project")
    assert find_pin(here, Requirement.parse("acme/axpy@v2")) is None
    assert "holds acme/axpy at v1 only; acme/axpy@v2 is loaded unlocked" in caplog.text
    caplog.clear()
    assert find_pin(here, Requirement.parse("acme/strange@v2")) is None
    assert not caplog.records


@pytest.mark.parametrize("content", [b"format = 9\n", b"nonsense", b"[{]", b'[{"repo_id": 1}]', b"\xff"])
def test_a_lock_that_cannot_be_read_is_an_error_and_not_a_missing_one(tmp_path: Path, content: bytes) -> None:
    path = put(tmp_path / "project", "1")
    path.write_bytes(content)
    with pytest.raises(InvalidDocumentError, match=r"kernel-hub\.lock"):
        find_pin(settings(tmp_path / "project"), ANY)


def test_a_lock_that_changed_is_read_again(tmp_path: Path) -> None:
    path = put(tmp_path, "1")
    first = read_lock(path).lock
    path.write_bytes(format_lock(lock("2", "acme/axpy", "acme/more")))
    assert read_lock(path).lock != first


def test_an_absent_lock_of_the_environment_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocumentError, match=r"KERNEL_HUB_LOCK: the lock .*nowhere"):
        find_pin(settings(tmp_path, KERNEL_HUB_LOCK="nowhere"), ANY)
