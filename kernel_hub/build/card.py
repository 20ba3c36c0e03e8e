"""The card of a kernel: `CARD.md`, a Jinja template, rendered to the README.md of the repository's branch `main`.

Repository format, section (g). The template comes with the kernel's sources, so it is rendered in Jinja's sandbox, with no
other templates to load. The variables are the ecosystem's, read from the Python sources without running them, and our own:
`usage`, `compatibility`, `provenance` and `benchmarks`, Markdown that is made from the builds.

After the author's text comes what it does not say itself: each of these, and the functions and layers, is a section of its
own unless the template asks for the variable or has a heading of the section's name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_hub.build.card_sections import builds_table, measured_tables, provenance_list, shown
from kernel_hub.build.measured import Measured
from kernel_hub.errors import InvalidDocumentError, ToolchainError
from kernel_hub.model.metadata import Metadata

MAX_BYTES = 1 << 20
_MAX_SOURCE_BYTES = 16 << 20
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+)$", re.MULTILINE)
_LIBRARY = "library_name: kernels"
PLAIN_CARD = """\
# {{ repo_id }}

{% if functions %}Functions of version {{ version }}:

{% for function in functions %}- `{{ function }}`
{% endfor %}{% endif %}{% if layers %}
Layers: {{ layers | join(", ") }}
{% endif %}
```python
from kernel_hub import get_kernel

kernel = get_kernel("{{ repo_id }}", version={{ version }})
```

License: {{ license }}
"""


@dataclass(frozen=True, slots=True)
class Card:
    """What a card's template may ask for.

    Attributes:
        repo_id: The repository.
        version: The kernel's major version.
        license: Its licence, in lower case.
        functions: The public functions.
        layers: The classes of its module `layers`.
        has_benchmark: Whether a benchmark is published with it.
        upstream: The git repository it was taken from.
        source: The git repository of its sources.
        builds: The builds of the version, each with its metadata or None if that can't be read; without any, nothing is
            added to the author's text.
        measured: What its benchmarks found.
    """

    repo_id: str
    version: int
    license: str
    functions: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    has_benchmark: bool = False
    upstream: str | None = None
    source: str | None = None
    builds: Mapping[str, Metadata | None] = field(default_factory=dict)
    measured: tuple[Measured, ...] = ()

    @property
    def made(self) -> dict[str, str]:
        """The variables of our own."""
        call = f'get_kernel("{self.repo_id}", version={self.version})'
        return {
            "usage": f"```python\nfrom kernel_hub import get_kernel\n\nkernel = {call}\n```\n",
            "compatibility": builds_table(self.builds),
            "provenance": provenance_list(self.builds),
            "benchmarks": measured_tables(self.measured),
        }


def render_card(template: str, card: Card) -> bytes:
    """The text of README.md.

    The front matter that the Hub needs to know a kernel by is added where the template has none.

    Raises:
        InvalidDocumentError: If the template is malformed, or does what a template may not.
        ToolchainError: If Jinja is not installed.
    """
    try:
        from jinja2 import TemplateError
        from jinja2.meta import find_undeclared_variables
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ToolchainError("rendering the card needs Jinja", hint='pip install "kernel-hub[build]"') from error
    # The result is Markdown, where HTML's escapes would be shown as they are.
    environment = ImmutableSandboxedEnvironment(autoescape=False, keep_trailing_newline=True)
    variables = {
        "repo_id": card.repo_id,
        "version": card.version,
        "license": card.license,
        "functions": list(card.functions),
        "layers": list(card.layers),
        "has_benchmark": card.has_benchmark,
        "upstream": card.upstream,
        "source": card.source,
    } | card.made
    try:
        used = find_undeclared_variables(environment.parse(template))
        text = environment.from_string(template).render(variables)
    except (TemplateError, ArithmeticError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidDocumentError("CARD.md", f"cannot be rendered: {error}") from error
    added = _sections(text, used, card) if card.builds else ""
    return _with_front_matter(f"{text.rstrip()}\n{added}" if added else text, card).encode("utf-8")


def _sections(text: str, used: Iterable[str], card: Card) -> str:
    """What the author's text leaves to be said."""
    parts = {
        "Usage": ("usage", card.made["usage"]),
        "Functions": ("functions", _items(card.functions)),
        "Layers": ("layers", _items(card.layers)),
        "Builds": ("compatibility", card.made["compatibility"]),
        "Provenance": ("provenance", card.made["provenance"]),
        "Measured": ("benchmarks", card.made["benchmarks"]),
    }
    said = {heading.strip(" #").lower() for heading in _HEADING.findall(text)}
    # Whoever shows the call shows how it is used.
    left_out = {*used, *(["usage"] if "get_kernel(" in text else [])}
    return "".join(
        f"\n## {title}\n\n{content}"
        for title, (variable, content) in parts.items()
        if content and variable not in left_out and title.lower() not in said
    )


def _items(names: Iterable[str]) -> str:
    return "".join(f"- {shown(name)}\n" for name in names)


def public_names(package: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Functions and layers that a kernel's Python package offers, read without running it.

    Functions are the texts in `__all__` of `__init__.py` but "layers"; layers are the public classes of the module
    `layers`, if `__all__` offers it. A text that can't be a name in Python is none, and would only be a way into the card.
    """
    offered = tuple(name for name in _all_of(package / "__init__.py") if name.isidentifier())
    functions = tuple(name for name in offered if name != "layers")
    if "layers" not in offered:
        return functions, ()
    for path in (package / "layers" / "__init__.py", package / "layers.py"):
        tree = _parsed(path)
        if tree is not None:
            names = (node.name for node in tree.body if isinstance(node, ast.ClassDef))
            return functions, tuple(name for name in names if not name.startswith("_"))
    return functions, ()


def _all_of(path: Path) -> tuple[str, ...]:
    tree = _parsed(path)
    found: list[str] = []
    for node in tree.body if tree else ():
        targets: Iterable[ast.expr] = ()
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = (node.target,)
        value = getattr(node, "value", None)
        named = any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)
        if named and isinstance(value, ast.List | ast.Tuple):
            texts = (item.value for item in value.elts if isinstance(item, ast.Constant))
            found += [text for text in texts if isinstance(text, str)]
    return tuple(found)


def _parsed(path: Path) -> ast.Module | None:
    """The syntax tree of a Python file; None if it is not there or can't be read, which is not the card's business."""
    try:
        with path.open("rb") as file:
            return ast.parse(file.read(_MAX_SOURCE_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _with_front_matter(text: str, card: Card) -> str:
    head, found, rest = text.partition("\n")
    if head.strip() != "---" or not found:
        return f"---\n{_LIBRARY}\nlicense: {card.license}\n---\n\n{text}"
    block = rest.split("\n---", 1)[0]
    if any(line.startswith("library_name:") for line in block.splitlines()):
        return text
    return f"---\n{_LIBRARY}\n{rest}"
