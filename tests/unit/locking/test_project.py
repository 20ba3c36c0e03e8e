"""What a project declares, and editing it in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.locking.project import add_declaration, find_project, read_project, remove_declaration
from kernel_hub.model.lock import Declaration, wish_text
from kernel_hub.model.requirement import RepoId, Requirement
from kernel_hub.model.target import Target

PEER_PROJECT = Path(__file__).parents[2] / "vectors" / "repo-format" / "pyproject.toml"


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def declared(folder: Path) -> dict[str, tuple[str, list[str]]]:
    return {
        str(item.requirement.repo): (wish_text(item.requirement.wish), [str(target) for target in item.targets])
        for item in read_project(folder).declared
    }


def test_every_form_of_a_declaration_is_read(tmp_path: Path) -> None:
    text = """
[tool.kernel-hub.dependencies]
"acme/g" = "*"
"acme/f" = { revision = "v3" }
"acme/e" = { revision = "main" }
"acme/d" = { version = 2, targets = ["linux-x86_64-cu128-torch2.13", "linux-aarch64"] }
"acme/c" = ">=1, <3"
"acme/b" = 1
"acme/a" = "1"
"""
    assert declared(project(tmp_path, text)) == {
        "acme/a": ("v1", []),
        "acme/b": ("v1", []),
        "acme/c": ("<3,>=1", []),
        "acme/d": ("v2", ["linux-aarch64", "linux-x86_64-cu128-torch2.13"]),
        "acme/e": ("main", []),
        "acme/f": ("v3", []),
        "acme/g": ("*", []),
    }


def test_the_ecosystems_table_is_read_as_it_is(tmp_path: Path) -> None:
    folder = project(tmp_path, PEER_PROJECT.read_text(encoding="utf-8"))
    assert declared(folder) == {"acme/axpy": ("v1", [])}


def test_both_tables_are_read_and_ours_adds_targets(tmp_path: Path) -> None:
    text = '[tool.kernels.dependencies]\n"acme/a" = 1\n"acme/b" = 2\n'
    text += '[tool.kernel-hub.dependencies]\n"acme/a" = { version = 1, targets = ["linux-x86_64"] }\n'
    assert declared(project(tmp_path, text)) == {"acme/a": ("v1", ["linux-x86_64"]), "acme/b": ("v2", [])}


@pytest.mark.parametrize("text", ["", "[project]\nname = 'x'\n", "[tool.kernel-hub]\n"])
def test_a_project_without_the_tables_declares_nothing(tmp_path: Path, text: str) -> None:
    found = read_project(project(tmp_path, text))
    assert (found.declared, found.declares_own) == ((), False)


@pytest.mark.parametrize(
    ("line", "location", "problem"),
    [
        ('"acme/a" = "main"', "tool.kernel-hub.dependencies.acme/a", "neither a whole number"),
        ('"acme/a" = true', "tool.kernel-hub.dependencies.acme/a", "whole number"),
        ('"acme/a" = 1.5', "tool.kernel-hub.dependencies.acme/a", "neither a whole number nor a text"),
        ('"acme/a" = []', "tool.kernel-hub.dependencies.acme/a", "neither a whole number nor a text"),
        ('"acme/a" = -1', "tool.kernel-hub.dependencies.acme/a", "whole number"),
        ('"acme" = 1', "tool.kernel-hub.dependencies.acme", "org/name"),
        ('"acme/a@v1" = 1', "tool.kernel-hub.dependencies.acme/a@v1", "letters, digits"),
        (
            '"acme/a" = { version = 1, revision = "main" }',
            "tool.kernel-hub.dependencies.acme/a",
            "version and revision",
        ),
        ('"acme/a" = { version = "*", revision = "main" }', "tool.kernel-hub.dependencies.acme/a", "both a version"),
        ('"acme/a" = { revision = 1 }', "tool.kernel-hub.dependencies.acme/a", "not a text"),
        ('"acme/a" = { branch = "main" }', "tool.kernel-hub.dependencies.acme/a", "unknown key 'branch'"),
        ('"acme/a" = { version = 1, targets = "x" }', "tool.kernel-hub.dependencies.acme/a", "list of texts"),
        ('"acme/a" = { version = 1, targets = ["x"] }', "tool.kernel-hub.dependencies.acme/a", "operating system"),
    ],
)
def test_a_malformed_declaration_names_its_key(tmp_path: Path, line: str, location: str, problem: str) -> None:
    folder = project(tmp_path, f"[tool.kernel-hub.dependencies]\n{line}\n")
    with pytest.raises(InvalidDocumentError) as caught:
        read_project(folder)
    assert (caught.value.location, problem in caught.value.problem) == (location, True), caught.value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[tool.kernels.dependencies]\n"acme/a" = "1"\n', "not a whole number"),
        ("[tool.kernel-hub]\ndependencies = 1\n", "is not a table"),
        ("[tool.kernel-hub\n", "not TOML"),
        ('[tool.kernels.dependencies]\n"a/a" = 1\n[tool.kernel-hub.dependencies]\n"a/a" = 2\n', "asks for v2, but"),
    ],
)
def test_a_malformed_project_file_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidDocumentError, match=problem):
        read_project(project(tmp_path, text))


def test_a_folder_without_project_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocumentError, match=r"pyproject\.toml: cannot be read"):
        read_project(tmp_path)


def test_the_nearest_project_upwards_is_found(tmp_path: Path) -> None:
    inner = project(tmp_path, "") / "src" / "app"
    inner.mkdir(parents=True)
    assert find_project(inner) == tmp_path


def requirement(text: str) -> Declaration:
    return Declaration(Requirement.parse(text))


def test_adding_keeps_comments_order_and_mode(tmp_path: Path) -> None:
    text = """# about the project
[project]
name = "app"   # its name

[tool.kernel-hub.dependencies]  # kernels
"zoo/z" = "1" # keep me
"""
    path = project(tmp_path, text) / "pyproject.toml"
    path.chmod(0o640)
    add_declaration(tmp_path, requirement("acme/a@v2"))
    add_declaration(tmp_path, requirement("acme/b@>=1,<3"))
    add_declaration(tmp_path, requirement("acme/c"))
    add_declaration(tmp_path, requirement("acme/d@main"))
    add_declaration(tmp_path, Declaration(requirement("acme/e@v1").requirement, (Target.parse("linux-x86_64"),)))
    assert path.read_text(encoding="utf-8") == text + (
        '"acme/a" = "2"\n"acme/b" = "<3,>=1"\n"acme/c" = "*"\n"acme/d" = {revision = "main"}\n'
        '"acme/e" = {version = "1", targets = ["linux-x86_64"]}\n'
    )
    assert path.stat().st_mode & 0o777 == 0o640


def test_adding_again_changes_only_that_line(tmp_path: Path) -> None:
    folder = project(tmp_path, '[tool.kernel-hub.dependencies]\n"acme/a" = "1"\n"acme/b" = "1"\n')
    add_declaration(folder, requirement("acme/a@v2"))
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    assert text == '[tool.kernel-hub.dependencies]\n"acme/a" = "2"\n"acme/b" = "1"\n'


def test_adding_makes_the_table_and_moves_a_kernel_out_of_the_ecosystems(tmp_path: Path) -> None:
    folder = project(tmp_path, '[tool.kernels.dependencies]\n"acme/a" = 1\n"acme/b" = 1\n')
    add_declaration(folder, requirement("acme/a@v2"))
    assert declared(folder) == {"acme/a": ("v2", []), "acme/b": ("v1", [])}


def test_removing_takes_out_one_kernel_and_says_whether_it_was_there(tmp_path: Path) -> None:
    text = '[tool.kernels.dependencies]\n"acme/b" = 1 # b\n[tool.kernel-hub.dependencies]\n"acme/a" = 1 # a\n'
    folder = project(tmp_path, text)
    assert remove_declaration(folder, RepoId.parse("acme/a"))
    assert declared(folder) == {"acme/b": ("v1", [])}
    assert remove_declaration(folder, RepoId.parse("acme/b"))
    before = (folder / "pyproject.toml").read_bytes()
    assert not remove_declaration(folder, RepoId.parse("acme/c"))
    assert (folder / "pyproject.toml").read_bytes() == before


def test_a_malformed_file_is_left_as_it_is(tmp_path: Path) -> None:
    folder = project(tmp_path, "[tool.kernel-hub.dependencies]\n'acme/a' = 'x y'\n")
    before = (folder / "pyproject.toml").read_bytes()
    with pytest.raises(InvalidDocumentError):
        add_declaration(folder, requirement("acme/b@v1"))
    assert (folder / "pyproject.toml").read_bytes() == before
