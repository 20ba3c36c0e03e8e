"""Documents are read strictly, and every fault says where it lies."""

from __future__ import annotations

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.document import JsonObject, load_json, load_json_value


def fault(content: bytes, *, limit_bytes: int = 1000) -> InvalidDocumentError:
    with pytest.raises(InvalidDocumentError) as caught:
        load_json(content, name="doc", limit_bytes=limit_bytes)
    return caught.value


def read(content: bytes) -> JsonObject:
    return load_json(content, name="doc", limit_bytes=1000)


def test_a_document_of_exactly_the_limit_is_read() -> None:
    assert load_json_value(b'"ab"', name="doc", limit_bytes=4) == "ab"
    assert fault(b'"ab" ', limit_bytes=4).problem == "is longer than 4 bytes"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"{} {}", "is not JSON"),
        (b"{'a': 1}", "is not JSON"),
        (b"\xff{}", "is not UTF-8"),
        (b'{"a": "\xed\xa0\x80"}', "is not UTF-8"),
        (b"\xef\xbb\xbf{}", "is not JSON"),
        (b'{"a": 1, "a": 1}', "the key 'a' stands twice"),
        (b'{"b": {"a": 1, "a": 1}}', "the key 'a' stands twice"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair"),
        (b'{"\\udfff": 1}', "half of a surrogate pair"),
        (b"[]", "is a list, not an object"),
        (b"null", "is null, not an object"),
        (b"1", "is a number, not an object"),
    ],
)
def test_what_is_no_document_says_why(content: bytes, problem: str) -> None:
    assert problem in fault(content).problem


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_deep_nesting_is_a_fault_and_not_a_crash(content: bytes) -> None:
    assert "is not JSON" in fault(content, limit_bytes=1 << 20).problem


def test_a_syntax_fault_names_line_and_column() -> None:
    assert fault(b'{\n  "a": ?\n}').location == "line 2 column 8"


def test_whole_surrogate_pairs_are_a_character() -> None:
    assert read(b'{"a": "\\ud83d\\ude00"}').text("a") == "\U0001f600"


def test_faults_name_the_path_of_the_key() -> None:
    top = read(b'{"a": {"b": [{"c": 1}]}}')
    (item,) = top.object("a").objects("b")
    with pytest.raises(InvalidDocumentError) as caught:
        item.text("c")
    assert (caught.value.document, caught.value.location) == ("doc", "a.b[0].c")
    assert str(caught.value) == "doc: a.b[0].c: is a number, not a text"


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("text", b"1"),
        ("text", b"[]"),
        ("text", b'""'),
        ("text", b"null"),
        ("line", b"1"),
        ("optional_text", b"1"),
        ("whole", b"1.0"),
        ("whole", b"-1"),
        ("whole", b"true"),
        ("whole", b'"1"'),
        ("whole", b"4294967296"),
        ("flag", b"1"),
        ("flag", b'"true"'),
        ("texts", b'"a"'),
        ("texts", b'["a", 1]'),
        ("object", b"[]"),
        ("optional_object", b"1"),
        ("objects", b"{}"),
        ("objects", b"[1]"),
    ],
)
def test_a_value_of_another_type_is_refused(method: str, value: bytes) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        getattr(read(b'{"k": %s}' % value), method)("k")
    assert caught.value.location.startswith("k")


@pytest.mark.parametrize("method", ["text", "line", "whole", "flag", "texts", "object", "objects"])
def test_a_missing_key_is_named(method: str) -> None:
    with pytest.raises(InvalidDocumentError, match="doc: k: is missing"):
        getattr(read(b"{}"), method)("k")


def test_values_of_the_right_type_are_read() -> None:
    top = read(b'{"t": "x", "e": "", "w": 0, "f": false, "l": ["", "b"], "o": {"i": 1}, "n": null}')
    assert (top.text("t"), top.line("e"), top.whole("w"), top.flag("f"), top.texts("l")) == (
        "x",
        "",
        0,
        False,
        ("", "b"),
    )
    assert (top.optional_text("n"), top.optional_object("n"), top.optional_text("gone")) == (None, None, None)
    assert top.object("o").whole("i") == 1
    assert (top.texts("gone", default=("d",)), top.objects("gone", default=())) == (("d",), ())
    assert not top.has("n")


def test_keys_outside_the_allowed_ones_are_refused() -> None:
    with pytest.raises(InvalidDocumentError, match="doc: b: unknown key"):
        read(b'{"a": 1, "b": 2}').only("a")
    read(b'{"a": 1}').only("a", "b")
