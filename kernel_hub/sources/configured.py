"""From settings to the source and cache of a namespace.

A namespace that is bound to a registry is looked up there and nowhere else, and its files are cached apart from the Hub's:
whatever another server once served under that name can never be loaded for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kernel_hub.cache import Cache
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.index import Index
from kernel_hub.model.digest import Digest
from kernel_hub.model.value import dataclass
from kernel_hub.sources.late import LateHub
from kernel_hub.sources.wrappers import CachedSource

if TYPE_CHECKING:
    from pathlib import Path

    from kernel_hub.model.source import Source
    from kernel_hub.registries import Registry
    from kernel_hub.settings import Settings
    from kernel_hub.sources.hub_refusal import Place
    from kernel_hub.sources.hub_source import HubSource


@dataclass(frozen=True, slots=True)
class Connection:
    """A source with the cache that belongs to it.

    Attributes:
        source: Where the namespace's kernels are read from.
        cache: Where their files are kept.
        bound_in: The setting that binds the namespace to a registry; None for the Hub.
    """

    source: CachedSource
    cache: Cache
    bound_in: str | None


def connect(
    settings: Settings,
    namespace: str,
    *,
    host_facts: Mapping[str, str],
    user_agent: str | Mapping[str, str] | None = None,
    refresh: bool = False,
) -> Connection:
    """The source and cache of a namespace.

    Args:
        settings: Registries, endpoint, caches, offline, freshness.
        namespace: The part of a repository's name before '/'.
        host_facts: Versions that requests may name, unless telemetry is off.
        user_agent: The caller's addition to the user agent.
        refresh: Whether remembered references count as stale.

    Raises:
        InvalidDocumentError: If a registry folder is none.
    """
    registry = settings.registry_of(namespace)
    url = settings.endpoint if registry is None else registry.url
    cache = Cache(settings.hub_cache if registry is None else settings.home / "registries" / _folder_name(url))
    inner = _inner(settings, registry, host_facts, user_agent)
    is_folder = registry is not None and registry.folder is not None
    source = CachedSource(
        inner,
        cache,
        Index(settings.home / "index"),
        key=_folder_name(url),
        name=url,
        # A folder on this disk needs no network and answers at once.
        mode="online" if is_folder else settings.mode,
        freshness_s=0.0 if refresh or is_folder else settings.freshness_s,
    )
    return Connection(source, cache, registry.defined_in if registry else None)


def ask_directly(settings: Settings, namespace: str) -> Source | None:
    """The source of a namespace without what is remembered of it; None if it may not be asked.

    For questions about what is there now.

    Raises:
        InvalidDocumentError: If a registry folder is none.
    """
    registry = settings.registry_of(namespace)
    if settings.mode == "offline" and (registry is None or registry.folder is None):
        return None
    return _inner(settings, registry, {}, None)


def _inner(
    settings: Settings,
    registry: Registry | None,
    host_facts: Mapping[str, str],
    user_agent: str | Mapping[str, str] | None,
) -> Source:
    if registry is not None and registry.folder is not None:
        return _opened(registry, registry.folder)
    url = settings.endpoint if registry is None else registry.url

    def make() -> HubSource:
        from kernel_hub.sources.hub_headers import names_token
        from kernel_hub.sources.hub_source import HubSource

        return HubSource(
            url,
            token=_token(settings, registry),
            user_agent=user_agent,
            telemetry=settings.telemetry,
            host_facts=host_facts,
            place=_place(settings, registry),
            environ_names_token=names_token(settings.environ),
        )

    # A URL with credentials is refused at once, because even without a question it would stand in messages.
    return make() if "@" in urlsplit(url).netloc else LateHub(url, make)


def _opened(registry: Registry, folder: Path) -> Source:
    from kernel_hub.sources.directory import DirectoryRegistry
    from kernel_hub.sources.registry_store import MARKER

    try:
        if folder.is_dir():
            return DirectoryRegistry.open(folder)
        problem = f"{folder} is not a folder" if folder.exists() else f"the folder {folder} does not exist"
        hint = ""
    except InvalidDocumentError as error:
        problem, hint = error.message, error.hint()
    if not (folder / MARKER).is_file():
        made = f"kernel-hub publish --to {folder}, or kernel-hub serve {folder} --create"
        hint = f"correct the path, or make a registry there: {made}"
    raise InvalidDocumentError(registry.defined_in, problem, location=registry.namespace, hint=hint)


def _place(settings: Settings, registry: Registry | None) -> Place:
    from kernel_hub.sources.hub_refusal import Place

    if registry is None:
        return Place(unbound_at=settings.endpoint)
    return Place(setting=registry.defined_in, credentials=_credentials(settings, registry), is_own=True)


def _credentials(settings: Settings, registry: Registry) -> str:
    name = registry.token_env
    if name is not None:
        state = "holds the token that is sent" if settings.environ.get(name) else "is not set"
        return f"put a token into {name} (named by token-env in {registry.defined_in}; it {state})"
    return (
        f"name the variable that holds a token, in {registry.defined_in}: "
        f'{{ url = "{registry.url}", token-env = "NAME" }} (in JSON: {{"{registry.namespace}": {{"url": "{registry.url}", '
        f'"token-env": "NAME"}}}}), and set it to that of someone,'
    )


def _token(settings: Settings, registry: Registry | None) -> str | None:
    if registry is None:
        return settings.token
    return settings.environ.get(registry.token_env) if registry.token_env else None


def _folder_name(url: str) -> str:
    """A folder name for a URL: readable, and different for different URLs."""
    parts = urlsplit(url)
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", parts.netloc + parts.path).strip("-.")[-60:]
    return f"{readable or 'registry'}-{Digest.of(url.encode()).hex[:12]}"
