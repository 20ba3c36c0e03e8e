"""Reading JSON documents strictly: bounded size, UTF-8, no duplicate keys, and errors that name the path of the fault."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kernel_hub.errors import InvalidDocumentError


class _DuplicateKeyError(ValueError):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(key)
        found[key] = value
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def load_json_value(content: bytes, *, name: str, limit_bytes: int) -> Any:
    """Parse JSON bytes.

    Args:
        content: The document.
        name: What to call it in errors.
        limit_bytes: The longest document that is accepted.

    Raises:
        InvalidDocumentError: If it is too long, not UTF-8, not JSON, nested too deep, or repeats a key.
    """
    if len(content) > limit_bytes:
        raise InvalidDocumentError(name, f"is longer than {limit_bytes} bytes")
    try:
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
        if b"\\u" in content:
            # Half of a surrogate pair can be escaped, but it is no text that could be written or compared.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except UnicodeEncodeError as error:
        raise InvalidDocumentError(name, "escapes half of a surrogate pair, which is no character") from error
    except UnicodeDecodeError as error:
        raise InvalidDocumentError(name, f"is not UTF-8 (byte {error.start})") from error
    except _DuplicateKeyError as error:
        raise InvalidDocumentError(name, f"the key {str(error)!r} stands twice") from error
    except json.JSONDecodeError as error:
        raise InvalidDocumentError(
            name, f"is not JSON: {error.msg}", location=f"line {error.lineno} column {error.colno}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidDocumentError(name, f"is not JSON: {str(error) or 'nested too deep'}") from error


def load_json(content: bytes, *, name: str, limit_bytes: int) -> JsonObject:
    """Parse JSON bytes that must hold an object; see `load_json_value`."""
    value = load_json_value(content, name=name, limit_bytes=limit_bytes)
    if not isinstance(value, Mapping):
        raise InvalidDocumentError(name, f"is {_kind(value)}, not an object")
    return JsonObject(value, name)


class JsonObject:
    """An object of a document, read key by key with types; errors carry the document's name and the key's path."""

    def __init__(self, value: Mapping[str, Any], document: str, path: str = "") -> None:
        self._value = value
        self._document = document
        self._path = path

    def fault(self, key: str, problem: str) -> InvalidDocumentError:
        """An error about one key of this object ("" for the object itself)."""
        return InvalidDocumentError(self._document, problem, location=self._at(key))

    def has(self, key: str) -> bool:
        return self._value.get(key) is not None

    def value(self, key: str) -> Any:
        """Whatever stands there, unchecked; None if nothing does."""
        return self._value.get(key)

    def names(self) -> Iterable[str]:
        return self._value.keys()

    def only(self, *allowed: str) -> None:
        """Refuse any key that is not in `allowed`."""
        for key in self._value:
            if key not in allowed:
                import difflib

                close = difflib.get_close_matches(key, allowed, n=1)
                hint = f"did you mean {close[0]!r}?" if close else ""
                raise InvalidDocumentError(self._document, "unknown key", location=self._at(key), hint=hint)

    def text(self, key: str) -> str:
        value = self._need(key)
        if not isinstance(value, str) or not value:
            raise self.fault(key, f"is {_kind(value)}, not a text")
        return value

    def line(self, key: str) -> str:
        """Like `text`, but may be empty."""
        return "" if self._value.get(key) == "" else self.text(key)

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if self.has(key) else None

    def whole(self, key: str) -> int:
        value = self._need(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
            raise self.fault(key, f"{value!r} is not a whole number from 0")
        return value

    def size(self, key: str) -> int:
        """A length in bytes, which may be larger than what `whole` allows."""
        value = self._need(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
            raise self.fault(key, f"{value!r} is not a length in bytes")
        return value

    def flag(self, key: str) -> bool:
        value = self._need(key)
        if not isinstance(value, bool):
            raise self.fault(key, f"is {_kind(value)}, not true or false")
        return value

    def texts(self, key: str, *, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        if default is not None and not self.has(key):
            return default
        value = self._list(key)
        for index, item in enumerate(value):
            if not isinstance(item, str):
                raise self.fault(f"{key}[{index}]", f"is {_kind(item)}, not a text")
        return tuple(value)

    def object(self, key: str) -> JsonObject:
        value = self._need(key)
        if not isinstance(value, Mapping):
            raise self.fault(key, f"is {_kind(value)}, not an object")
        return JsonObject(value, self._document, self._at(key))

    def optional_object(self, key: str) -> JsonObject | None:
        return self.object(key) if self.has(key) else None

    def objects(self, key: str, *, default: tuple[JsonObject, ...] | None = None) -> tuple[JsonObject, ...]:
        if default is not None and not self.has(key):
            return default
        found = []
        for index, item in enumerate(self._list(key)):
            if not isinstance(item, Mapping):
                raise self.fault(f"{key}[{index}]", f"is {_kind(item)}, not an object")
            found.append(JsonObject(item, self._document, f"{self._at(key)}[{index}]"))
        return tuple(found)

    def _list(self, key: str) -> list[Any]:
        value = self._need(key)
        if not isinstance(value, list):
            raise self.fault(key, f"is {_kind(value)}, not a list")
        return value

    def _need(self, key: str) -> Any:
        value = self._value.get(key)
        if value is None:
            raise self.fault(key, "is missing")
        return value

    def _at(self, key: str) -> str:
        if not key:
            return self._path
        return f"{self._path}.{key}" if self._path else key


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case str():
            return "an empty text" if not value else "a text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"
