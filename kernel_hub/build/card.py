"""The card of a kernel: `CARD.md`, a Jinja template, rendered to the README.md of the repository's branch `main`.

Repository format, section (g). The template comes with the kernel's sources, so it is rendered in Jinja's sandbox, with no
other templates to load. The variables are the ecosystem's; they are read from the Python sources without running them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.errors import InvalidDocumentError, ToolchainError

MAX_BYTES = 1 << 20
_MAX_SOURCE_BYTES = 16 << 20
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
    """

    repo_id: str
    version: int
    license: str
    functions: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    has_benchmark: bool = False
    upstream: str | None = None
    source: str | None = None


def render_card(template: str, card: Card) -> bytes:
    """The text of README.md.

    The front matter that the Hub needs to know a kernel by is added where the template has none.

    Raises:
        InvalidDocumentError: If the template is malformed, or does what a template may not.
        ToolchainError: If Jinja is not installed.
    """
    try:
        from jinja2 import TemplateError
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
    }
    try:
        text = environment.from_string(template).render(variables)
    except (TemplateError, ArithmeticError, TypeError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidDocumentError("CARD.md", f"cannot be rendered: {error}") from error
    return _with_front_matter(text, card).encode("utf-8")


def public_names(package: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Functions and layers that a kernel's Python package offers, read without running it.

    Functions are the texts in `__all__` of `__init__.py` but "layers"; layers are the public classes of the module
    `layers`, if `__all__` offers it.
    """
    offered = _all_of(package / "__init__.py")
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
