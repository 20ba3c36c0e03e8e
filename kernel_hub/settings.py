"""Settings: the only reader of the environment and of configuration files.

Order, first found wins: arguments of a call, environment, the project's `pyproject.toml` (`[tool.kernel-hub]`, nearest
upwards from the working folder), the user's file (`$KERNEL_HUB_CONFIG`, default `$XDG_CONFIG_HOME/kernel_hub/config.toml`),
defaults. Registries are merged by namespace in that order. Trust files: the user's (`$KERNEL_HUB_TRUST`, default `trust.toml`
beside the user's file) and the project's (`kernel-hub-trust.toml` beside its `pyproject.toml`), both of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal, TypeAlias

from kernel_hub.configuration import read_file
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.value import dataclass
from kernel_hub.overrides import Override, read_overrides
from kernel_hub.places import below_home, is_file, is_there, working_folder, written_path, written_url
from kernel_hub.registries import Registry, read_registries, registry_of
from kernel_hub.trust import TrustRules

DEFAULT_ENDPOINT = "https://huggingface.co"
DEFAULT_FRESHNESS_S = 600.0
LOCK_VARIABLE = "KERNEL_HUB_LOCK"
CONFIG_VARIABLE = "KERNEL_HUB_CONFIG"
Mode: TypeAlias = Literal["online", "cached-first", "offline"]
PROJECT_TRUST_FILE = "kernel-hub-trust.toml"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the environment and configuration files decide.

    Attributes:
        endpoint: The Hub's URL for namespaces without a registry of their own.
        hub_cache: Where fetched files live (the Hugging Face cache).
        home: Our own folder beside it: index, stamps, locks.
        mode: "online" asks for what is not fresh, "cached-first" for what is not remembered, "offline" for nothing.
        telemetry: Whether requests may name this machine's versions.
        token: The Hub token if the environment sets one; otherwise huggingface_hub finds the stored one.
        freshness_s: How long a looked-up reference counts as current.
        registries: Bindings by namespace.
        overrides: Kernels taken from folders.
        verify_always: Whether every load hashes every file again.
        lock_file: The lock that the environment names.
        locked_only: Whether everything that is not locked is refused.
        trust: What the trust files say, the user's and the project's together.
        trust_file: The user's own trust file, whether or not it is there.
        folder: The working folder, absolute.
        environ: The environment that all of this was read from, for the device probes.
    """

    endpoint: str
    hub_cache: Path
    home: Path
    mode: Mode = "online"
    telemetry: bool = True
    token: str | None = None
    freshness_s: float = DEFAULT_FRESHNESS_S
    registries: Mapping[str, Registry] = field(default_factory=dict)
    overrides: tuple[Override, ...] = ()
    verify_always: bool = False
    lock_file: Path | None = None
    locked_only: bool = False
    trust: TrustRules = field(default_factory=TrustRules)
    trust_file: Path = Path("trust.toml")
    folder: Path = field(default_factory=Path.cwd)
    environ: Mapping[str, str] = field(default_factory=dict)

    def registry_of(self, namespace: str) -> Registry | None:
        """The registry that a namespace is bound to, or None if it is looked up on the Hub.

        Raises:
            InvalidDocumentError: If only another spelling of the namespace is bound.
        """
        return registry_of(self.registries, namespace)

    def override_of(self, repo: RepoId) -> Override | None:
        """The folder that stands in for a kernel, or None."""
        return next((override for override in self.overrides if override.repo == repo), None)


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """What the environment says to the builder.

    Attributes:
        compiler: The C++ compiler that `CXX` names, as written; "" if it names none.
        cuda_homes: The CUDA toolkits that `CUDA_HOME` names.
        toolkits: Where toolkits that the builder fetched lie.
        rocm_home: The installation of ROCm that `ROCM_PATH` names, or None.
        cutlass_homes: The copies of CUTLASS that `CUTLASS_HOME` names.
        offline: Whether nothing may be fetched.
        compiler_cache: The variables that a compiler's cache reads, which compilers are given.
    """

    compiler: str
    cuda_homes: tuple[Path, ...]
    toolkits: Path
    rocm_home: Path | None = None
    cutlass_homes: tuple[Path, ...] = ()
    offline: bool = False
    compiler_cache: Mapping[str, str] = field(default_factory=dict)


def load_build_settings(environ: Mapping[str, str] | None = None) -> BuildSettings:
    """Read what the environment says to the builder; no file is read.

    Args:
        environ: The environment; default: this process's.

    Raises:
        InvalidDocumentError: Naming the variable at fault.
    """
    environment = dict(os.environ if environ is None else environ)
    return BuildSettings(
        compiler=environment.get("CXX", "").strip(),
        cuda_homes=_folders(environment, "CUDA_HOME"),
        rocm_home=next(iter(_folders(environment, "ROCM_PATH")), None),
        cutlass_homes=_folders(environment, "CUTLASS_HOME"),
        toolkits=_own_home(environment) / "toolkits",
        offline=_mode(environment) == "offline",
        compiler_cache={name: text for name, text in environment.items() if name.startswith("CCACHE_")},
    )


def load_settings(environ: Mapping[str, str] | None = None, folder: Path | None = None) -> Settings:
    """Read the settings.

    Args:
        environ: The environment; default: this process's.
        folder: The working folder to look upwards from for a project; default: the current one.

    Raises:
        InvalidDocumentError: Naming the variable, or the file and key, at fault.
    """
    environment = dict(os.environ if environ is None else environ)
    here = working_folder() if folder is None else folder
    hf_home = _hf_home(environment)
    hub_cache = _folder(environment, "KERNELS_CACHE") or _folder(environment, "HF_HUB_CACHE") or hf_home / "hub"
    return Settings(
        endpoint=_endpoint(environment),
        hub_cache=hub_cache,
        home=_own_home(environment),
        mode=_mode(environment),
        telemetry=not (_flag(environment, "HF_HUB_DISABLE_TELEMETRY") or _flag(environment, "DO_NOT_TRACK")),
        token=environment.get("HF_TOKEN") or environment.get("HUGGING_FACE_HUB_TOKEN") or None,
        freshness_s=_seconds(environment, "KERNEL_HUB_FRESHNESS", DEFAULT_FRESHNESS_S),
        registries=read_registries(
            environment.get("KERNEL_HUB_REGISTRIES", ""), here, project_file(here), _config_file(environment)
        ),
        overrides=read_overrides(environment, here),
        verify_always=environment.get("KERNEL_HUB_VERIFY", "").strip().lower() == "always",
        lock_file=(here / lock).absolute() if (lock := _folder(environment, LOCK_VARIABLE)) else None,
        locked_only=_flag(environment, "KERNEL_HUB_LOCKED"),
        trust=_trust_rules(environment, here),
        trust_file=_own_file(environment, "KERNEL_HUB_TRUST", "trust.toml"),
        folder=here.absolute(),
        environ=environment,
    )


def _hf_home(environment: Mapping[str, str]) -> Path:
    return _folder(environment, "HF_HOME") or _cache_home(environment) / "huggingface"


def _own_home(environment: Mapping[str, str]) -> Path:
    return _folder(environment, "KERNEL_HUB_HOME") or _hf_home(environment) / "kernel_hub"


def _cache_home(environment: Mapping[str, str]) -> Path:
    return _folder(environment, "XDG_CACHE_HOME") or below_home(".cache", instead="HF_HOME")


def _folder(environment: Mapping[str, str], variable: str) -> Path | None:
    """The path that a variable names, or None."""
    text = environment.get(variable)
    return written_path(text, variable) if text else None


def _folders(environment: Mapping[str, str], variable: str) -> tuple[Path, ...]:
    """The paths that a variable names, one after the other."""
    texts = environment.get(variable, "").split(os.pathsep)
    return tuple(written_path(text, variable).absolute() for text in texts if text)


def _endpoint(environment: Mapping[str, str]) -> str:
    text = (environment.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    parts = written_url(text, "HF_ENDPOINT")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InvalidDocumentError("HF_ENDPOINT", f"{text!r} is not an http(s) URL")
    return text


def _flag(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "").strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise InvalidDocumentError(name, f"{text!r} is neither true nor false", hint="set it to 1 or 0")


def _mode(environment: Mapping[str, str]) -> Mode:
    if _flag(environment, "HF_HUB_OFFLINE"):
        return "offline"
    text = environment.get("KERNEL_HUB_MODE", "").strip().lower()
    match text:
        case "" | "online":
            return "online"
        case "cached-first" | "offline":
            return text
        case _:
            raise InvalidDocumentError("KERNEL_HUB_MODE", f"{text!r} is none of online, cached-first, offline")


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InvalidDocumentError(name, f"{text!r} is not a number of seconds")
    return value


def project_file(here: Path) -> Path | None:
    """The nearest `pyproject.toml`, upwards from a folder."""
    for folder in (here, *here.parents):
        candidate = folder / "pyproject.toml"
        if is_file(candidate):
            return candidate
    return None


def _config_file(environment: Mapping[str, str]) -> Path:
    path = _own_file(environment, CONFIG_VARIABLE, "config.toml")
    if environment.get(CONFIG_VARIABLE) and not is_there(path):
        raise InvalidDocumentError(
            CONFIG_VARIABLE,
            f"names {path}, which does not exist or cannot be read",
            hint="correct the path, or unset the variable",
        )
    return path


def _own_file(environment: Mapping[str, str], variable: str, name: str) -> Path:
    """A file of the user's: the one that a variable names, or the usual one."""
    named = _folder(environment, variable)
    if named is not None:
        return named
    configuration = _folder(environment, "XDG_CONFIG_HOME")
    if configuration is None:
        try:
            configuration = below_home(".config", instead="XDG_CONFIG_HOME")
        except InvalidDocumentError:
            # Who has no home folder has no file there either; the place is only named, in hints.
            configuration = Path("/nonexistent")
    return configuration / "kernel_hub" / name


def _trust_rules(environment: Mapping[str, str], here: Path) -> TrustRules:
    project = project_file(here)
    paths = [_own_file(environment, "KERNEL_HUB_TRUST", "trust.toml")]
    paths += [project.with_name(PROJECT_TRUST_FILE)] if project else []
    files = [path for path in paths if is_file(path)]
    if not files:
        return TrustRules()
    # Imported here, because most loads find no such file.
    from kernel_hub.trust import merged, parse_trust_file

    return merged([parse_trust_file(read_file(path), name=str(path)) for path in files])
