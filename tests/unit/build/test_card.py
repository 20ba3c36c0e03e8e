"""Rendering a kernel's card."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.build.card import PLAIN_CARD, Card, public_names, render_card
from kernel_hub.errors import InvalidDocumentError

CARD = Card("acme/axpy", 2, "mit", ("axpy", "add"), ("Axpy",), True, None, "https://example.org/axpy.git")
FRONT = "---\nlibrary_name: kernels\nlicense: mit\n---\n\n"


def test_every_variable_of_the_format_is_there() -> None:
    names = "repo_id version license functions layers has_benchmark upstream source".split()  # noqa: SIM905
    template = "|".join(f"{{{{ {name} }}}}" for name in names)
    assert render_card(template, CARD).decode() == (
        FRONT + "acme/axpy|2|mit|['axpy', 'add']|['Axpy']|True|None|https://example.org/axpy.git"
    )


def test_front_matter_is_added_only_where_it_is_missing() -> None:
    assert render_card("text", CARD).decode() == FRONT + "text"
    assert render_card("---\nlibrary_name: kernels\n---\ntext", CARD) == b"---\nlibrary_name: kernels\n---\ntext"
    assert render_card("---\ntags: [a]\n---\ntext", CARD) == b"---\nlibrary_name: kernels\ntags: [a]\n---\ntext"


def test_the_plain_card_lists_what_there_is() -> None:
    text = render_card(PLAIN_CARD, CARD).decode()
    assert "- `axpy`\n- `add`\n" in text
    assert "Layers: Axpy" in text
    assert "Layers" not in render_card(PLAIN_CARD, Card("acme/axpy", 2, "mit")).decode()


@pytest.mark.parametrize(
    "template",
    [
        "{{ unclosed",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ functions.append('x') }}",
        "{{ ''.__class__.__base__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ 1 // 0 }}",
        "{% for i in range(10**9) %}{% endfor %}",
    ],
)
def test_a_template_that_is_broken_or_reaches_out_is_an_error(template: str) -> None:
    with pytest.raises(InvalidDocumentError, match=r"CARD\.md: cannot be rendered"):
        render_card(template, CARD)


def package(folder: Path, init: str, layers: str | None = None, *, nested: bool = False) -> Path:
    (folder / "__init__.py").write_text(init)
    if layers is not None:
        path = folder / "layers" / "__init__.py" if nested else folder / "layers.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(layers)
    return folder


def test_functions_are_what_is_offered_but_layers(tmp_path: Path) -> None:
    init = "__all__ = ['a', 'layers']\n__all__ += ['b']\nraise SystemExit('never run')\n"
    assert public_names(package(tmp_path, init)) == (("a", "b"), ())


@pytest.mark.parametrize("nested", [False, True])
def test_layers_are_the_public_classes_of_their_module(tmp_path: Path, nested: bool) -> None:
    layers = "class First: pass\nclass _Hidden: pass\nclass Second(First): pass\ndef f(): pass\n"
    folder = package(tmp_path, "__all__ = ('layers',)", layers, nested=nested)
    assert public_names(folder) == ((), ("First", "Second"))


def test_layers_that_are_not_offered_are_not_listed(tmp_path: Path) -> None:
    assert public_names(package(tmp_path, "__all__ = ['a']", "class First: pass")) == (("a",), ())


@pytest.mark.parametrize("init", ["", "__all__ = make()", "__all__ = [name]", "def broken(:", "x: int"])
def test_what_cannot_be_read_offers_nothing(tmp_path: Path, init: str) -> None:
    assert public_names(package(tmp_path, init)) == ((), ())
