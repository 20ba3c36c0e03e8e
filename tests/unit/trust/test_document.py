"""Trust files: read strictly, because a misspelt demand must not become none."""

from __future__ import annotations

from datetime import date

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.requirement import RepoId
from kernel_hub.trust import (
    BUILT_IN_SIGNERS,
    Demand,
    Ed25519Signer,
    Entry,
    Scope,
    SigstoreSigner,
    TrustRules,
    format_entry,
    format_trust_file,
    parse_trust_file,
)

KEY = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
COMMIT = "0f" * 20
DOCUMENT = f"""
digest = "required"

[[allow]]
publisher = "acme"
added_by = "alice"
added_on = 2026-12-02
reason = "our own team"

[[allow]]
repository = "other/axpy"
commit = "{COMMIT}"
signers = ["ci", "kernels-community"]

[[require]]
publisher = "acme"
signers = ["ci"]

[[require]]
signers = ["ci", "github"]

[[signer]]
name = "ci"
ed25519 = "{KEY}"

[[signer]]
name = "github"
sigstore_issuer = "https://issuer.example.org"
sigstore_identities = ["https://example.org/a", "bob@example.org"]
sigstore_repository = "https://example.org/acme/axpy"
"""
RULES = TrustRules(
    allowed=(
        Entry(Scope(publisher="acme"), frozenset(), "alice", date(2026, 12, 2), "our own team", "trust.toml"),
        Entry(
            Scope(repository=RepoId("other", "axpy"), commit=COMMIT),
            frozenset({"ci", "kernels-community"}),
            defined_in="trust.toml",
        ),
    ),
    demands=(
        Demand(Scope(publisher="acme"), frozenset({"ci"}), "trust.toml"),
        Demand(Scope(), frozenset({"ci", "github"}), "trust.toml"),
    ),
    signers=(
        Ed25519Signer("ci", bytes(32)),
        SigstoreSigner(
            "github",
            "https://issuer.example.org",
            ("https://example.org/a", "bob@example.org"),
            "https://example.org/acme/axpy",
        ),
    ),
    digest="required",
)


def parse(text: str) -> TrustRules:
    return parse_trust_file(text.encode(), name="trust.toml")


def test_every_key_is_read() -> None:
    assert parse(DOCUMENT) == RULES


def test_writing_is_the_inverse_of_reading() -> None:
    assert parse_trust_file(format_trust_file(RULES), name="trust.toml") == RULES
    assert format_trust_file(parse(DOCUMENT)) == format_trust_file(RULES)


def test_an_empty_file_is_no_rule() -> None:
    assert parse("") == TrustRules()
    assert parse(format_trust_file(TrustRules()).decode()) == TrustRules()


def test_an_entry_can_be_appended_to_a_file_that_people_wrote() -> None:
    entry = Entry(
        Scope(repository=RepoId("a", "b")), added_by="bob", reason='said "yes"\n\x7f\\ ü', defined_in="trust.toml"
    )
    text = f"# ours\n{DOCUMENT}\n{format_entry(entry)}"
    assert parse(text).allowed == (*RULES.allowed, entry)


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("x = 1", "x"),
        ("allow = 1", "allow"),
        ("[allow]", "allow"),
        ('digest = "always"', "digest"),
        ("digest = true", "digest"),
        ("[[allow]]", "allow[0]"),
        ("[[allow]]\nsigners = []", "allow[0]"),
        ('[[allow]]\npublisher = ""', "allow[0].publisher"),
        ('[[allow]]\npublisher = "*"', "allow[0].publisher"),
        ('[[allow]]\npublisher = "acme/axpy"', "allow[0].publisher"),
        ('[[allow]]\nrepository = "acme"', "allow[0].repository"),
        ('[[allow]]\npublisher = "a"\nrepository = "a/b"', "allow[0].publisher"),
        (f'[[allow]]\npublisher = "a"\ncommit = "{COMMIT}"', "allow[0].commit"),
        ('[[allow]]\nrepository = "a/b"\ncommit = "main"', "allow[0].commit"),
        ('[[allow]]\nrepository = "a/b"\ncommit = "0f0f0f0"', "allow[0].commit"),
        ('[[allow]]\npublisher = "a"\nsigner = "ci"', "allow[0].signer"),
        ('[[allow]]\npublisher = "a"\nsigners = "ci"', "allow[0].signers"),
        ('[[allow]]\npublisher = "a"\nadded_on = "2026-12-02"', "allow[0].added_on"),
        ('[[allow]]\npublisher = "a"\nadded_on = 2026-12-02T10:00:00Z', "allow[0].added_on"),
        ('[[require]]\npublisher = "a"', "require[0].signers"),
        ('[[require]]\nsigners = ["ci"]\nreason = "x"', "require[0].reason"),
        ("[[signer]]", "signer[0].name"),
        ('[[signer]]\nname = "a b"\ned25519 = ""', "signer[0].name"),
        ('[[signer]]\nname = "a"\ned25519 = "AAAA"', "signer[0].ed25519"),
        ('[[signer]]\nname = "a"\ned25519 = "?"', "signer[0].ed25519"),
        (f'[[signer]]\nname = "a"\ned25519 = "{KEY}"\nsigstore_issuer = "x"', "signer[0].sigstore_issuer"),
        (f'[[signer]]\nname = "kernels-community"\ned25519 = "{KEY}"', "signer[0].name"),
        (f'[[signer]]\nname = "a"\ned25519 = "{KEY}"\n[[signer]]\nname = "a"\ned25519 = "{KEY}"', "signer[1].name"),
        ('[[signer]]\nname = "a"\nsigstore_issuer = "x"', "signer[0].sigstore_identities"),
        ('[[signer]]\nname = "a"\nsigstore_issuer = "x"\nsigstore_identities = [""]', "signer[0].sigstore_identities"),
        ('[[signer]]\nname = "a"\nsigstore_identities = ["x"]', "signer[0].sigstore_issuer"),
    ],
)
def test_a_fault_is_located(text: str, location: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        parse(text)
    assert (caught.value.document, caught.value.location) == ("trust.toml", location)


@pytest.mark.parametrize(
    "content", [b"[[allow", b"\xff", b"x = 1\nx = 2", b"a" * ((1 << 20) + 1), b"x = " + b"[" * 10000]
)
def test_what_is_no_toml_is_a_typed_error(content: bytes) -> None:
    with pytest.raises(InvalidDocumentError, match=r"trust\.toml"):
        parse_trust_file(content, name="trust.toml")


def test_the_built_in_signers_are_those_of_the_ecosystems_client() -> None:
    from kernels.verify import DEFAULT_POLICIES

    (peers,) = DEFAULT_POLICIES
    (ours,) = BUILT_IN_SIGNERS
    assert isinstance(ours, SigstoreSigner)
    assert ours.source_repository == f"https://github.com/{peers.repo_id}"
    assert sorted(ours.identities) == sorted(peers.signer_uris)
    assert ours.issuer == "https://token.actions.githubusercontent.com"
