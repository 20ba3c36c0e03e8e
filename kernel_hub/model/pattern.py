"""Forms of texts that cost nothing at import: expressions that are compiled when first asked, and words without one.

Compiling the expressions of every module at import took a quarter of the time that importing the loader takes, and a load
asks few of them. Leaves out what nobody asks here, such as splitting.
"""

from __future__ import annotations

import re
from typing import AnyStr, Generic

DIGITS = "0123456789"
HEX_DIGITS = DIGITS + "abcdef"
LOWER = "abcdefghijklmnopqrstuvwxyz"
ALPHANUMERIC = DIGITS + LOWER + LOWER.upper()


def is_of(text: str, signs: str) -> bool:
    """Whether a text is not empty and holds these signs only."""
    return text != "" and not text.strip(signs)


class Word:
    """Texts of certain signs.

    Args:
        first: What they may begin with.
        signs: What they may hold; what they begin and end with is among it.
        last: What they may end with; default: any of `signs`.
    """

    __slots__ = ("_first", "_last", "_signs")

    def __init__(self, first: str, signs: str, last: str | None = None) -> None:
        self._first = first
        self._signs = signs
        self._last = signs if last is None else last

    def matches(self, text: str) -> bool:
        """Whether a text is such a word."""
        return is_of(text, self._signs) and text[0] in self._first and text[-1] in self._last


class Pattern(Generic[AnyStr]):
    """As what `re.compile` gives.

    Args:
        text: The expression.
        flags: As for `re.compile`.
    """

    __slots__ = ("_compiled", "_flags", "_text")

    def __init__(self, text: AnyStr, flags: int = 0) -> None:
        self._text: AnyStr = text
        self._flags = flags
        self._compiled: re.Pattern[AnyStr] | None = None

    def fullmatch(self, text: AnyStr) -> re.Match[AnyStr] | None:
        """The match if the whole text is one."""
        return self._ready().fullmatch(text)

    def match(self, text: AnyStr) -> re.Match[AnyStr] | None:
        """The match at the text's beginning."""
        return self._ready().match(text)

    def search(self, text: AnyStr) -> re.Match[AnyStr] | None:
        """The first match anywhere."""
        return self._ready().search(text)

    def sub(self, replacement: AnyStr, text: AnyStr) -> AnyStr:
        """The text with every match replaced."""
        return self._ready().sub(replacement, text)

    def _ready(self) -> re.Pattern[AnyStr]:
        if self._compiled is None:
            self._compiled = re.compile(self._text, self._flags)
        return self._compiled
