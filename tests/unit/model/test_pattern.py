"""Words accept what the expressions accept that describe them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_hub.model.pattern import ALPHANUMERIC, DIGITS, HEX_DIGITS, LOWER, Pattern, Word, is_of

WORDS = {
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?": Word(ALPHANUMERIC, f"{ALPHANUMERIC}._-", last=f"{ALPHANUMERIC}_"),
    r"[A-Za-z0-9_][A-Za-z0-9._/+-]*": Word(f"{ALPHANUMERIC}_", f"{ALPHANUMERIC}._/+-"),
    r"[a-z](?:[-a-z0-9]*[a-z0-9])?": Word(LOWER, f"{LOWER}{DIGITS}-", last=f"{LOWER}{DIGITS}"),
}
TEXTS = st.text(st.sampled_from("aZ0.-_/+ \n\0é٣")) | st.text()


@pytest.mark.parametrize("expression", WORDS)
@given(text=TEXTS)
def test_a_word_is_what_its_expression_says(expression: str, text: str) -> None:
    assert WORDS[expression].matches(text) is (re.fullmatch(expression, text) is not None)


@given(text=st.text(st.sampled_from("0aFg\n")))
def test_a_text_is_of_signs_if_it_holds_no_other(text: str) -> None:
    assert is_of(text, HEX_DIGITS) is (re.fullmatch("[0-9a-f]+", text) is not None)


@given(text=TEXTS)
def test_a_pattern_finds_what_a_compiled_expression_finds(text: str) -> None:
    pattern, compiled = Pattern("[a-z]+", re.IGNORECASE), re.compile("[a-z]+", re.IGNORECASE)
    for method in ("fullmatch", "match", "search"):
        ours, standard = getattr(pattern, method)(text), getattr(compiled, method)(text)
        assert (ours and ours.span()) == (standard and standard.span())
    assert pattern.sub("-", text) == compiled.sub("-", text)
