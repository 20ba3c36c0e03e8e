"""The page about what is defended, whose table is made from the tests: one row for each file of `tests/security`.

Such a file begins with a sentence that names the attack, and its `ENFORCED_BY` names what stands in the way.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests" / "security"
_PREFIXES = ("Attack: ", "Attack surface: ")


@dataclass(frozen=True, slots=True)
class Defence:
    """One attack with what stands in its way.

    Attributes:
        attack: A sentence.
        enforced_by: The dotted name of a function or class of the package.
        tests: How many test functions there are; parametrised ones count once.
        file: The test file's name.
    """

    attack: str
    enforced_by: str
    tests: int
    file: str


def defences() -> list[Defence]:
    """Every attack that a test file is about, in order of the files' names.

    Raises:
        ValueError: If a file does not name its attack, or names something that the package does not have.
    """
    return [defence_of(path) for path in sorted(TESTS.glob("test_*.py"))]


def defence_of(path: Path) -> Defence:
    """What one test file says of its attack.

    Raises:
        ValueError: As `defences`.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    sentence = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())
    attack = next((sentence.removeprefix(prefix) for prefix in _PREFIXES if sentence.startswith(prefix)), None)
    if attack is None:
        raise ValueError(f"{path.name}: the docstring does not begin with 'Attack: '")
    named = [
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "ENFORCED_BY" for target in node.targets)
        and isinstance(node.value, ast.Constant)
    ]
    if len(named) != 1 or not isinstance(named[0], str):
        raise ValueError(f"{path.name}: ENFORCED_BY must be one dotted name")
    _require(named[0], path)
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return Defence(attack[0].upper() + attack[1:], named[0], len(tests), path.name)


def _require(name: str, path: Path) -> None:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = inspect.getattr_static(found, part, None)
        if found is not None:
            return
        break
    raise ValueError(f"{path.name}: ENFORCED_BY names {name}, which is not there")


def page() -> str:
    """docs/explanation/threat-model.md."""
    rows = "\n".join(
        f"| {defence.attack} | `{defence.enforced_by}` | [{defence.tests}](../../tests/security/{defence.file}) |"
        for defence in defences()
    )
    return f"""# What is defended, and what is not

<!-- The table is generated from tests/security by docs/generate.py. -->

Loading a kernel runs somebody's code with all the rights of the process. Two questions decide whether that may happen, and
they are kept apart: *who* stands behind the code (trust), and *whether these bytes are theirs* (verification). "Not trusted",
"not what was published" and "could not be checked" are three different errors, and a network that fails is none of them.

## In which order

1. **Trust**, before anything of the kernel is fetched: the caller's word, the namespace's binding, the trust files, the
   publisher's standing at the source. A name that came from data (`get_kernel(..., named_by="data")`) is allowed by a list only.
2. **Signature**, if a rule demands one: over the exact bytes of `metadata.json`, before verification parses them. Choosing
   between builds reads metadata earlier, with the same bounded, strict reader; nothing is imported on its word.
3. **Paths**: regular files and the cache's own links; nothing that leaves the build, no pipes, no devices.
4. **Bytes**: every file against the digest in the metadata, against the source's listing, and against the lock.
5. **Identity**: version, backend and architectures are those that were asked for and chosen.
6. **Import**: only files that were verified exist for Python; sources are digested once more as they are read, bytecode is
   neither read nor written, and modules have names that no other kernel and no library has.

## What stands in the way of what

| attack | enforced by | tests |
|---|---|---|
{rows}

## What each source of truth is worth

| if an attacker controls | a digest in the metadata | the source's listing | a lock | a signature |
|---|---|---|---|---|
| the files in the cache | seen, unless metadata is changed with them | seen | seen | seen |
| the cache and what we remember beside it | seen, unless metadata is changed with them | not seen | seen | seen |
| the connection to the source | not seen | not seen (TLS is what protects it) | seen | seen |
| the repository on the source | not seen | not seen | seen for what was locked before | seen |
| the signer's key | not seen | not seen | seen for what was locked before | not seen |

## What is not defended

- **The kernel itself.** Once it is trusted and intact it may do anything that the process may. There is no sandbox.
- **Other users who may write into your home or your cache while a kernel is loading.** Python sources are digested as they are
  run and native libraries must have the size, times and inode that they had when they were verified, but a library is opened by
  its path after that. Stamps that other users could have written are not believed.
- **A write within one tick of the filesystem's clock** after verification that keeps a file's size: its stamp still holds.
  `KERNEL_HUB_VERIFY=always` reads every file on every load.
- **An old build that was signed.** A signature has no date; whoever controls the repository can serve an older signed build of
  the same version. A lock fixes the commit.
- **A trust file of a project that you enter.** It is believed like the rest of the project's configuration. It can allow, but
  it can not take back what your own file demands.
- **Building somebody's sources.** A recipe's flags reach the compiler, which they can have read files and load plugins, and
  checking a build imports it. Build what you would also run.
- **What the kernel's code reads by itself**: other files, other packages, the network.
- **Denial of service by the source**: sizes of documents are bounded and waiting is bounded, but a source may refuse to serve.
"""
