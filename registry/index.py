"""What the registry holds, as a page: made from the kernels' recipes, sources and results (docs/generate.py writes it)."""

from __future__ import annotations

import ast
from pathlib import Path

from kernel_hub.build.card import public_names
from kernel_hub.build.measured import Measurement, read_results
from kernel_hub.build.project import open_project, python_folder
from kernel_hub.build.recipe import NoarchFramework, Recipe
from registry.publish import kernels

_ELEMENT_TYPES = "ELEMENT_TYPES"


def page() -> str:
    """registry/README.md."""
    parts = [_kernel(folder) for folder in kernels()]
    return f"""# Our kernels

<!-- Generated from the folders of this registry by docs/generate.py. -->

Each folder is one kernel in the ecosystem's source layout. One command builds all of them and publishes every build:

```sh
python -m registry.publish --to ../kernels --allow-dirty
```

{"".join(parts).rstrip()}
"""


def _kernel(folder: Path) -> str:
    project = open_project(folder)
    first = project.first
    package = python_folder(folder, first)
    functions, _ = public_names(package)
    builds = ", ".join(build for recipe in project.recipes.values() for build in _builds(recipe))
    calls = ", ".join(f"`{name}`" for name in functions if not name[0].isupper())
    return f"""## [{first.name}]({folder.name}/CARD.md)

| version | operations | element types | builds |
|---|---|---|---|
| {first.version} | {calls} | {", ".join(_element_types(package))} | {builds} |

{_best(folder)}
"""


def _builds(recipe: Recipe) -> list[str]:
    if isinstance(recipe.framework, NoarchFramework):
        return [f"{backend.value} (Triton)" for backend in recipe.backends]
    return [f"{backend.value} (native)" for backend in recipe.backends]


def _element_types(package: Path) -> list[str]:
    """What `ELEMENT_TYPES` of the kernel's `validation.py` names, read without running it."""
    for node in ast.parse((package / "validation.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == _ELEMENT_TYPES for t in node.targets
        ):
            return [item.attr for item in getattr(node.value, "elts", ()) if isinstance(item, ast.Attribute)]
    raise ValueError(f"{package}/validation.py has no {_ELEMENT_TYPES}")


def _best(folder: Path) -> str:
    lines = []
    for measured in read_results(folder):
        lines += [f"Best on {measured.machine}:", "", "| of | type | problem | rate | times faster than |"]
        lines.append("|---|---|---|---|---|")
        best: dict[tuple[str, str], Measurement] = {}
        for row in measured.rows:
            key = (row.problem.split("_")[0], row.element_type)
            if key not in best or row.rate_per_s > best[key].rate_per_s:
                best[key] = row
        for (work, element_type), row in best.items():
            rivals = ", ".join(f"{ratio:.2f} `{name}`" for name, ratio in row.ratios)
            lines.append(f"| {work} | {element_type} | `{row.problem}` | {row.rate} | {rivals} |")
        lines.append("")
    return "\n".join(lines) or "Nothing was measured yet.\n"
