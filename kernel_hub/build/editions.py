"""Older editions of `build.toml`, rewritten in memory to the current one.

Repository format, section (e), "older". Edition 4 is edition 5 without its number and without three of its keys; edition 3
lacks a few more and has defaults where later ones have required keys. Editions 1 and 2 differ in substance: they are
refused, with what to write instead. The file itself is never changed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_hub.build.recipe import EDITION
from kernel_hub.errors import InvalidDocumentError

_SINCE_5 = ("kernel-depends", "tpu")
_FRAMEWORKS = ("torch", "tvm-ffi", "torch-noarch")


def to_current(document: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The document as edition 5, and notes about what was rewritten.

    Args:
        document: The parsed TOML.
        name: What to call it in errors.

    Raises:
        InvalidDocumentError: If the edition is none that can be read.
    """
    general = document.get("general")
    if not isinstance(general, Mapping):
        raise InvalidDocumentError(name, "is missing or is no table", location="general")
    edition = general.get("edition")
    if edition == EDITION and not isinstance(edition, bool):
        return document, ()
    if edition is not None:
        raise InvalidDocumentError(
            name, f"{edition!r} is not an edition that this release reads", location="general.edition",
            hint=f"write edition = {EDITION}",
        )  # fmt: skip
    if "backends" not in general:
        raise InvalidDocumentError(
            name,
            "is a recipe of edition 2 or older, which is not read",
            location="general",
            hint=f"add version, license, backends and edition = {EDITION} to [general], and drop 'universal'",
        )
    if _is_edition_3(document, general):
        return _from_3(document, general, name)
    return _from_4(document, general, name)


def _is_edition_3(document: Mapping[str, Any], general: Mapping[str, Any]) -> bool:
    return "version" not in general or "license" not in general or not any(key in document for key in _FRAMEWORKS)


def _from_4(
    document: Mapping[str, Any], general: Mapping[str, Any], name: str
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    for key in _SINCE_5:
        if key in general:
            raise InvalidDocumentError(name, f"needs edition = {EDITION} in [general]", location=f"general.{key}")
    torch = document.get("torch")
    if isinstance(torch, Mapping) and isinstance(torch.get("stable-abi"), Mapping):
        raise InvalidDocumentError(
            name, f"as a table needs edition = {EDITION} in [general]", location="torch.stable-abi"
        )
    note = f"{name} has no edition and was read as edition 4; add edition = {EDITION} to [general]"
    return {**document, "general": {**general, "edition": EDITION}}, (note,)


def _from_3(
    document: Mapping[str, Any], general: Mapping[str, Any], name: str
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    if "license" not in general:
        raise InvalidDocumentError(
            name,
            "is missing",
            location="general.license",
            hint='add the kernel\'s licence, e.g. license = "Apache-2.0"',
        )
    changes = []
    upgraded: dict[str, Any] = dict(document)
    if "version" not in general:
        changes.append("version = 1")
    if not any(key in document for key in _FRAMEWORKS):
        upgraded["torch-noarch"] = {}
        changes.append("[torch-noarch]")
    current, _ = _from_4(upgraded, {"version": 1, **general}, name)
    note = f"{name} was read as edition 3; add edition = {EDITION}, {', '.join(changes)} to it"
    return current, (note,)
