"""What a check found: which rule, where, what, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """The rules of a check; the text is how reports name them."""

    METADATA = "metadata"
    LABEL = "label"
    DIGEST = "digest"
    FILES = "files"
    ENTRY = "entry-module"
    BYTECODE = "bytecode"
    PUBLIC_NAMES = "public-names"
    SYNTAX = "python-syntax"
    SELF_IMPORT = "self-import"
    FOREIGN_IMPORT = "foreign-import"
    OPERATOR_NAME = "operator-name"
    LIBRARY = "library"
    PROCESSOR = "processor"
    SYMBOL_VERSION = "symbol-version"
    UNDEFINED_SYMBOL = "undefined-symbol"
    TORCH_ABI = "torch-abi"
    PYTHON_ABI = "python-abi"
    NEEDED = "needed-library"
    RUN_PATH = "run-path"
    UNIQUE_SYMBOL = "unique-symbol"
    STACK = "executable-stack"
    ARCHS = "architectures"
    IMPORT = "import"
    INTERFACE = "public-interface"


# A build with these loads, and the ecosystem's builder makes it; whoever builds is told, whoever checks is refused.
BUILDS_ANYWAY = frozenset({Rule.PUBLIC_NAMES, Rule.SYNTAX, Rule.FOREIGN_IMPORT, Rule.BYTECODE})
# Not part of what is published.
PUBLISHES_ANYWAY = frozenset({Rule.BYTECODE})


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A breach of a rule.

    Attributes:
        rule: Which one.
        path: The file, relative to the build.
        subject: The symbol, key or module at fault; "" for the whole file.
        problem: What is wrong.
        fix: What to do about it.
        line: Where in the file; 0 if that has no meaning.
    """

    rule: Rule
    path: str
    subject: str
    problem: str
    fix: str
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        subject = f" {self.subject}" if self.subject else ""
        return f"{place}:{subject} {self.problem} [{self.rule}]; {self.fix}"
