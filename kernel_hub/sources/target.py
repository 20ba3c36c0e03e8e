"""From what a publisher writes after `--to` to a sink: a registry folder, or the URL of a Hub.

A folder that is absent or empty becomes a registry, if that is wanted; one that holds something else is refused. A token is
sent to a Hub only if it was set for that Hub.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import url2pathname

from kernel_hub.errors import InvalidDocumentError, OfflineError
from kernel_hub.sources.directory import DirectoryRegistry
from kernel_hub.sources.hub_refusal import HUB, Place
from kernel_hub.sources.new_registry import NewRegistry

if TYPE_CHECKING:
    from kernel_hub.model.source import Sink
    from kernel_hub.settings import Settings


def open_sink(settings: Settings, target: str, *, token: str | None = None, create: bool = True) -> Sink:
    """The sink that a text names.

    Args:
        settings: The endpoint, the registries and their tokens.
        target: A folder, `file://...`, or `http(s)://...`.
        token: The token for a Hub; None takes the one that the settings have for this URL.
        create: Whether an absent or empty folder becomes a registry, with the first repository that is made in it.

    Raises:
        InvalidDocumentError: If it is neither, or the folder holds something else than a registry.
        OfflineError: If it is a URL and the network may not be used.
        SourceUnavailableError: If the folder cannot be written.
    """
    parts = urlsplit(target)
    at_folder = _folder_sink if create else DirectoryRegistry.open
    if "://" not in target:
        if not target:
            raise InvalidDocumentError("target", "is empty", hint="name a folder or the URL of a Hub")
        return at_folder(Path(target).expanduser().resolve())
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidDocumentError("target", f"{target!r} names a folder of another machine")
        return at_folder(Path(url2pathname(parts.path)))
    if parts.scheme not in ("http", "https"):
        raise InvalidDocumentError("target", f"{target!r} is neither http(s):// nor file:// nor a folder")
    if settings.mode == "offline":
        raise OfflineError(f"cannot publish to {target}: the network may not be used", hint="unset HF_HUB_OFFLINE")
    from kernel_hub.sources.hub import HubSink

    endpoint = target.rstrip("/")
    found = token or _token(settings, endpoint)
    return HubSink(endpoint, token=found, telemetry=settings.telemetry, place=_place(settings, endpoint))


def _folder_sink(path: Path) -> Sink:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        # Opens a registry, and refuses anything else.
        return DirectoryRegistry.create(path)
    return NewRegistry(path)


def _place(settings: Settings, endpoint: str) -> Place:
    if endpoint == settings.endpoint:
        return HUB
    # A registry's own token-env serves for publishing too, so either way to give a token is right.
    credentials = (
        'set a variable to a token and name it: --token-env NAME, or token-env = "NAME" where the registry is bound,'
    )
    return Place(setting=f"--to {endpoint}", credentials=credentials, is_own=True)


def _token(settings: Settings, endpoint: str) -> str | None:
    if endpoint == settings.endpoint:
        return settings.token
    variables = (registry.token_env for registry in settings.registries.values() if registry.url == endpoint)
    return next((settings.environ[name] for name in variables if name and settings.environ.get(name)), None)
