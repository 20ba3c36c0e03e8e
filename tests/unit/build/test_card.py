"""Rendering a kernel's card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.build.card import PLAIN_CARD, Card, public_names, render_card
from kernel_hub.build.measured import Measured, Measurement
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.metadata import Metadata

CARD = Card("acme/axpy", 2, "mit", ("axpy", "add"), ("Axpy",), True, None, "https://example.org/axpy.git")
BUILT = replace(
    CARD,
    builds={"torch-cuda": Metadata("axpy", "_axpy_cuda_abc", 2, "mit", BackendKind.CUDA)},
    measured=(Measured("a CPU", (Measurement("p", "float32", "flop", 2e9),)),),
)
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


def test_what_the_author_does_not_say_comes_after_the_text() -> None:
    assert render_card("# Title\n\ntext\n", BUILT).decode() == (
        FRONT + "# Title\n\ntext\n"
        "\n## Usage\n\n"
        '```python\nfrom kernel_hub import get_kernel\n\nkernel = get_kernel("acme/axpy", version=2)\n```\n'
        "\n## Functions\n\n- `axpy`\n- `add`\n"
        "\n## Layers\n\n- `Axpy`\n"
        "\n## Builds\n\n| backend | framework | system | build |\n| --- | --- | --- | --- |\n"
        "| CUDA | any torch | any | `torch-cuda` |\n"
        "\n## Provenance\n\n- `torch-cuda`: sources and builder not stated\n"
        "\n## Measured\n\nOn a CPU:\n\n| problem | type | rate |\n| --- | --- | --- |\n| `p` | `float32` | 2 GFLOP/s |\n"
    )


@pytest.mark.parametrize(
    ("variable", "title"),
    [
        ("usage", "Usage"),
        ("functions", "Functions"),
        ("layers", "Layers"),
        ("compatibility", "Builds"),
        ("provenance", "Provenance"),
        ("benchmarks", "Measured"),
    ],
)
def test_a_variable_that_the_template_asks_for_is_said_only_there(variable: str, title: str) -> None:
    text = render_card(f"before {{{{ {variable} }}}} after", BUILT).decode()
    assert f"## {title}\n" not in text
    assert text.count("\n## ") == 5
    unused = render_card(f"{{% if {variable} %}}{{% endif %}}", BUILT).decode()
    assert unused.count("\n## ") == 5


def test_a_heading_of_the_authors_or_a_call_that_is_shown_is_left_at_that() -> None:
    text = render_card('## builds ##\n\nMany.\n\n```python\nget_kernel("acme/axpy")\n```\n', BUILT).decode()
    assert "torch-cuda` |" not in text
    assert "## Usage" not in text
    assert text.count("\n## ") == 4 + 1


def test_our_variables_are_texts_that_may_be_empty() -> None:
    template = "{{ compatibility }}|{{ provenance }}|{{ benchmarks }}"
    assert render_card(template, CARD).decode() == FRONT + "||"


def test_a_text_that_can_be_no_name_is_not_offered(tmp_path: Path) -> None:
    init = "__all__ = ['a', '`](http://x)', 'b\\n# c', '<i>', 'layers|', '']"
    assert public_names(package(tmp_path, init)) == (("a",), ())
