"""Changing trust files: what people wrote beside a rule stays, and no other rule changes."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.trust import Entry, Scope, parse_trust_file
from kernel_hub.trust_store import allow, disallow

WRITTEN = """# Who may run code on our machines. Ask security before you change this.
digest = "required"

[[allow]]
publisher = "acme"       # our own team
reason = "ours"

# Read by bob, version by version.
[[allow]]
repository = "other/axpy"
commit = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"

[[require]]
publisher = "acme"
signers = ["ci"]

[[signer]]
name = "ci"
ed25519 = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
"""


def scopes(path: Path) -> list[str]:
    return [str(entry.scope) for entry in parse_trust_file(path.read_bytes(), name=str(path)).allowed]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "trust.toml"
    path.write_text(WRITTEN)
    return path


def test_a_file_is_made_with_the_first_entry(tmp_path: Path) -> None:
    path = tmp_path / "a" / "trust.toml"
    entry = Entry(Scope.parse("acme/axpy"), added_by="alice", added_on=date(2026, 12, 2), reason="read it")
    assert allow(path, entry)
    assert path.read_text() == (
        '[[allow]]\nrepository = "acme/axpy"\nadded_by = "alice"\nadded_on = 2026-12-02\nreason = "read it"\n'
    )


def test_an_entry_is_appended_and_everything_else_stays(file: Path) -> None:
    assert allow(file, Entry(Scope.parse("new"), frozenset({"ci"})))
    assert file.read_text() == WRITTEN + '\n[[allow]]\npublisher = "new"\nsigners = ["ci"]\n'


def test_what_is_allowed_already_is_not_added_again(file: Path) -> None:
    assert not allow(file, Entry(Scope.parse("acme"), added_by="carol"))
    assert file.read_text() == WRITTEN


def test_the_same_scope_under_another_condition_is_another_entry(file: Path) -> None:
    assert allow(file, Entry(Scope.parse("acme"), frozenset({"ci"})))
    assert scopes(file) == ["acme/*", "other/axpy@" + "0f" * 20, "acme/*"]


def test_an_unknown_signer_is_refused_and_nothing_written(file: Path) -> None:
    with pytest.raises(InvalidDocumentError, match="'who'"):
        allow(file, Entry(Scope.parse("new"), frozenset({"who"})))
    assert file.read_text() == WRITTEN


def test_removing_takes_the_entry_and_leaves_the_rest(file: Path) -> None:
    (removed,) = disallow(file, Scope.parse("acme"))
    assert removed.reason == "ours"
    text = file.read_text()
    assert text.startswith("# Who may run code on our machines.")
    assert "our own team" not in text
    assert scopes(file) == ["other/axpy@" + "0f" * 20]
    rules = parse_trust_file(file.read_bytes(), name="x")
    assert len(rules.demands) == len(rules.signers) == 1


def test_removing_what_is_not_there_changes_nothing(file: Path, tmp_path: Path) -> None:
    assert disallow(file, Scope.parse("nobody")) == ()
    assert disallow(file, Scope.parse("other/axpy")) == ()
    assert file.read_text() == WRITTEN
    assert disallow(tmp_path / "gone.toml", Scope.parse("acme")) == ()


def test_adding_and_removing_leaves_the_rules_as_they_were(file: Path) -> None:
    before = parse_trust_file(file.read_bytes(), name=str(file))
    allow(file, Entry(Scope.parse("new/kernel")))
    assert len(disallow(file, Scope.parse("new/kernel"))) == 1
    assert parse_trust_file(file.read_bytes(), name=str(file)) == before


def test_a_file_written_in_another_way_is_left_for_its_author(tmp_path: Path) -> None:
    path = tmp_path / "trust.toml"
    path.write_text('allow = [{ publisher = "acme" }, { publisher = "other" }]\n')
    with pytest.raises(InvalidDocumentError, match=r"edit it by hand|is not TOML"):
        disallow(path, Scope.parse("acme"))
    with pytest.raises(InvalidDocumentError):
        allow(path, Entry(Scope.parse("new")))
    assert scopes(path) == ["acme/*", "other/*"]


def test_text_that_only_looks_like_a_table_does_not_mislead(tmp_path: Path) -> None:
    path = tmp_path / "trust.toml"
    text = '[[allow]]\npublisher = "acme"\nreason = """\n[[allow]]\n"""\n\n[[allow]]\npublisher = "other"\n'
    path.write_text(text)
    with pytest.raises(InvalidDocumentError):
        disallow(path, Scope.parse("other"))
    assert path.read_text() == text


def test_a_file_that_is_no_trust_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "trust.toml"
    path.write_text("x = 1\n")
    for change in (lambda: allow(path, Entry(Scope.parse("acme"))), lambda: disallow(path, Scope.parse("acme"))):
        with pytest.raises(InvalidDocumentError, match="unknown key"):
            change()
    assert path.read_text() == "x = 1\n"


def test_the_files_mode_stays_and_no_temporary_file_remains(file: Path, tmp_path: Path) -> None:
    file.chmod(0o600)
    allow(file, Entry(Scope.parse("new")))
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("text", ["acme/*", "acme/axpy", "acme/axpy@" + "0f" * 20])
def test_a_scope_is_read_as_it_is_written(text: str) -> None:
    assert str(Scope.parse(text)) == text


def test_a_publisher_may_be_named_alone() -> None:
    assert Scope.parse("acme") == Scope.parse("acme/*") == Scope(publisher="acme")


@pytest.mark.parametrize(
    "text", ["", "*", "/", "a/b/c", "acme@" + "0f" * 20, "acme/axpy@main", "acme/axpy@", "acme/*@x"]
)
def test_what_is_no_scope(text: str) -> None:
    with pytest.raises(InvalidDocumentError):
        Scope.parse(text)
