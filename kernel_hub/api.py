"""The public functions. Each parses its arguments, reads the settings, and hands one request to a `Loader`.

Keywords follow the ecosystem's, so that changing the import is enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from types import ModuleType

from kernel_hub import importer
from kernel_hub.detect import detect
from kernel_hub.errors import KernelHubError
from kernel_hub.importer import LoadedKernel
from kernel_hub.loader import Loader
from kernel_hub.locking.lookup import calling_code
from kernel_hub.model.host import Host
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.places import written_path
from kernel_hub.plan import Availability, Plan, Request
from kernel_hub.settings import Settings, load_settings
from kernel_hub.sources.hub_progress import TerminalProgress
from kernel_hub.trust import NamedBy

# What the device probes look at; another value of one of these is another host.
_DEVICE_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "ROCR_VISIBLE_DEVICES",
    "ASCEND_HOME_PATH",
    "LD_LIBRARY_PATH",
)


def get_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    backend: str | None = None,
    trust_remote_code: bool | Sequence[str] = False,
    user_agent: str | Mapping[str, str] | None = None,
    check_arch: bool = True,
    device: int | None = None,
    refresh: bool = False,
    named_by: NamedBy = "code",
) -> ModuleType:
    """Load a kernel: resolved, matched to this machine, fetched, verified, imported.

    If a lock applies and holds the kernel, what it holds is loaded, and nothing else (see docs/reference/lock-file.md).

    Args:
        repo_id: `org/name`, `org/name@v1`, `org/name@>=1,<3` or `org/name@<revision>`.
        version: A kernel version (`1`) or specifiers (`">=1,<3"`). Without version and revision, and without a lock, the
            newest version is taken; which one it was is logged and stands in `loaded_kernels()`.
        revision: A branch, tag or commit instead of a version.
        backend: `"cpu"`, `"cuda"`, ...; default: what torch here was built for, or the CPU if no GPU is visible.
        trust_remote_code: True to run code of any publisher, or the repositories to run code of.
        user_agent: Text to add to the user agent of requests.
        check_arch: Whether GPU architectures take part in choosing the build.
        device: Index of the only GPU that must be able to run it; default: every visible one.
        refresh: Look references up again although they are fresh.
        named_by: "data" if the name came from data that others may write, such as a model's configuration. Then a
            publisher's reputation and a blanket `trust_remote_code=True` are not enough; only lists allow it.

    Returns:
        The kernel's module; its `__kernel_hub__` is the `LoadedKernel` record.

    Raises:
        KernelHubError: Of the stage that failed; its `hint()` says what to do.
    """
    request = _request(repo_id, version, revision, backend, trust_remote_code, user_agent, check_arch, device, refresh)
    return _loader().load(replace(request, named_by=named_by)).module


def get_locked_kernel(
    repo_id: str,
    *,
    lockfile: str | PathLike[str] | None = None,
    backend: str | None = None,
    trust_remote_code: bool | Sequence[str] = False,
    user_agent: str | Mapping[str, str] | None = None,
    check_arch: bool = True,
    device: int | None = None,
) -> ModuleType:
    """As `get_kernel`, and refuse a kernel that no lock holds.

    Args:
        repo_id: `org/name`, or with the version or revision that must be locked.
        lockfile: The lock, in our format or either of the ecosystem's; default: the one that applies to the caller.
        backend, trust_remote_code, user_agent, check_arch, device: As for `get_kernel`.

    Raises:
        NotLockedError: If the kernel is not locked.
        KernelHubError: Of the stage that failed.
    """
    request = _request(repo_id, None, None, backend, trust_remote_code, user_agent, check_arch, device, False)
    return _loader().load(_locked(request, lockfile)).module


def load_kernel(
    repo_id: str,
    *,
    lockfile: str | PathLike[str] | None = None,
    backend: str | None = None,
    trust_remote_code: bool | Sequence[str] = False,
    check_arch: bool = True,
    device: int | None = None,
) -> ModuleType:
    """As `get_locked_kernel`, from what is here already: the network is never used.

    Bring it here with `kernel-hub sync`.

    Args:
        repo_id, lockfile, backend, trust_remote_code, check_arch, device: As for `get_locked_kernel`.

    Raises:
        NotLockedError: If the kernel is not locked.
        KernelHubError: Of the stage that failed.
    """
    request = _request(repo_id, None, None, backend, trust_remote_code, None, check_arch, device, False)
    settings = replace(load_settings(), mode="offline")
    return Loader(settings, this_host(settings)).load(_locked(request, lockfile)).module


def has_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    backend: str | None = None,
    trust_remote_code: bool | Sequence[str] = False,
    check_arch: bool = True,
    device: int | None = None,
) -> Availability:
    """Whether `get_kernel` with the same arguments would find a build that may run here.

    Returns:
        A value that is true or false; `reason` says why it is false.

    Raises:
        InvalidDocumentError: Only if the arguments themselves are malformed.
    """
    request = _request(repo_id, version, revision, backend, trust_remote_code, None, check_arch, device, False)
    try:
        loader = _loader()
    except KernelHubError as error:
        return Availability(False, error.message, error)
    return loader.availability(request)


def explain(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    backend: str | None = None,
    trust_remote_code: bool | Sequence[str] = False,
    check_arch: bool = True,
    device: int | None = None,
    host: Host | None = None,
) -> Plan:
    """What `get_kernel` would do, without doing it: every build with its verdict, the one taken, and why.

    Args:
        repo_id, version, revision, backend, trust_remote_code, check_arch, device: As for `get_kernel`.
        host: Another machine to ask about; default: this one.

    Raises:
        KernelHubError: If the kernel cannot be resolved or its source cannot be read.
    """
    request = _request(repo_id, version, revision, backend, trust_remote_code, None, check_arch, device, False)
    return _loader(host).plan(request)


def get_local_kernel(
    repo_path: str | PathLike[str],
    *,
    backend: str | None = None,
    check_arch: bool = True,
    device: int | None = None,
    trust_remote_code: bool | Sequence[str] = False,
    user_agent: str | Mapping[str, str] | None = None,
) -> ModuleType:
    """Load a kernel from a folder: a project with builds below `build/`, a folder of builds, or one build.

    Args:
        repo_path: The folder.
        backend, check_arch, device: As for `get_kernel`.
        trust_remote_code, user_agent: Accepted for the ecosystem's signature; a folder needs neither.

    Raises:
        KernelHubError: Of the stage that failed.
    """
    del trust_remote_code, user_agent
    folder = written_path(Path(repo_path), "local path")
    request = Request(_LOCAL, backend=backend, check_arch=check_arch, device=device)
    return _loader().load_folder(request, folder).module


def loaded_kernels() -> tuple[LoadedKernel, ...]:
    """Every kernel that this process has loaded, in order of loading."""
    return importer.loaded_kernels()


_LOCAL = Requirement(RepoId("local", "folder"))


def _request(
    repo_id: str,
    version: int | str | None,
    revision: str | None,
    backend: str | None,
    trust_remote_code: bool | Sequence[str],
    user_agent: str | Mapping[str, str] | None,
    check_arch: bool,
    device: int | None,
    refresh: bool,
) -> Request:
    return Request(
        Requirement.parse(repo_id, version=version, revision=revision),
        backend=backend,
        device=device,
        trust_remote_code=trust_remote_code,
        check_arch=check_arch,
        user_agent=user_agent,
        refresh=refresh,
        caller=calling_code("kernel_hub"),
    )


def _locked(request: Request, lockfile: str | PathLike[str] | None) -> Request:
    path = None if lockfile is None else written_path(Path(lockfile), "lockfile").absolute()
    return replace(request, locked=True, lock_file=path)


def _loader(host: Host | None = None) -> Loader:
    settings = load_settings()
    return Loader(settings, host or this_host(settings), progress=TerminalProgress())


def this_host(settings: Settings) -> Host:
    """The machine this process runs on, detected once per set of visible devices."""
    environ = settings.environ
    return _detected(tuple((name, environ[name]) for name in _DEVICE_VARIABLES if name in environ))


@lru_cache(maxsize=8)
def _detected(environ: tuple[tuple[str, str], ...]) -> Host:
    return detect(environ=dict(environ))
