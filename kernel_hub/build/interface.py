"""What a kernel offers to its callers, as a value: functions and layers with their parameters. Pure.

The record is the file `api.json` at a version branch's root, our own, beside `build/` and never in it. Annotations are left
out, since callers do not depend on them; defaults are kept as Python text.

Leaves out: reading sources (see `kernel_hub.build.interface_reader`) and judging changes (`kernel_hub.build.interface_changes`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from kernel_hub.model.document import JsonObject, load_json

FILE_NAME = "api.json"
FORMAT = 1
MAX_BYTES = 4 << 20


class Kind(StrEnum):
    """How a parameter is given, as `inspect.Parameter` names it."""

    POSITIONAL_ONLY = "positional-only"
    EITHER = "positional-or-keyword"
    VAR_POSITIONAL = "var-positional"
    KEYWORD_ONLY = "keyword-only"
    VAR_KEYWORD = "var-keyword"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter.

    Attributes:
        name: Its name, without stars.
        kind: How it is given.
        default: The text of its default; None if it has none.
    """

    name: str
    kind: Kind = Kind.EITHER
    default: str | None = None


Parameters: TypeAlias = tuple[Parameter, ...] | None
"""None: what is offered is there, and its parameters can't be told from its sources."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A class of the module `layers`.

    Attributes:
        init: What it is made with.
        forward: What it is called with.
    """

    init: Parameters
    forward: Parameters


@dataclass(frozen=True, slots=True)
class ApiRecord:
    """What a kernel offers.

    Attributes:
        name: The kernel's name.
        version: Its major version.
        functions: What `__all__` names but "layers", with its parameters; for a class those that it is made with.
        layers: The public classes of the module `layers`, if `__all__` names that.
    """

    name: str
    version: int
    functions: Mapping[str, Parameters]
    layers: Mapping[str, Layer]

    @classmethod
    def parse(cls, content: bytes, *, name: str = FILE_NAME) -> ApiRecord:
        """Read the bytes of a record.

        Raises:
            InvalidDocumentError: Naming the key at fault.
        """
        top = load_json(content, name=name, limit_bytes=MAX_BYTES)
        if top.whole("format") != FORMAT:
            raise top.fault("format", f"is not {FORMAT}, which this release reads")
        functions, layers = top.object("functions"), top.object("layers")
        return cls(
            name=top.text("name"),
            version=top.whole("version"),
            functions={key: _parameters(functions, key) for key in functions.names()},
            layers={key: _layer(layers.object(key)) for key in layers.names()},
        )

    def format(self) -> bytes:
        """The bytes of the record, sorted; `parse` is its inverse."""
        document = {
            "format": FORMAT,
            "name": self.name,
            "version": self.version,
            "functions": {key: _to_json(self.functions[key]) for key in sorted(self.functions)},
            "layers": {
                key: {"init": _to_json(self.layers[key].init), "forward": _to_json(self.layers[key].forward)}
                for key in sorted(self.layers)
            },
        }
        return json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8") + b"\n"


def _to_json(parameters: Parameters) -> list[dict[str, Any]] | None:
    if parameters is None:
        return None
    return [
        {"name": item.name, "kind": item.kind.value} | ({} if item.default is None else {"default": item.default})
        for item in parameters
    ]


def _layer(value: JsonObject) -> Layer:
    return Layer(_parameters(value, "init"), _parameters(value, "forward"))


def _parameters(value: JsonObject, key: str) -> Parameters:
    return tuple(map(_parameter, value.objects(key))) if value.has(key) else None


def _parameter(value: JsonObject) -> Parameter:
    text = value.text("kind")
    if text not in set(Kind):
        raise value.fault("kind", f"{text!r} is none of {', '.join(Kind)}")
    return Parameter(value.text("name"), Kind(text), value.optional_text("default"))
