"""Trust files: TOML that people read, write and review.

    digest = "required"                 # or "if-present", the default

    [[allow]]                           # one of these must hold; inside one, everything
    repository = "acme/axpy"            # or: publisher = "acme"
    commit = "<commit id>"              # with repository only
    signers = ["acme-ci"]               # any of them
    added_by = "alice"
    added_on = 2026-12-02
    reason = "read it"

    [[require]]                         # all of these must hold
    publisher = "acme"                  # or repository; neither means every kernel
    signers = ["acme-ci"]

    [[signer]]
    name = "acme-ci"
    ed25519 = "<base64 of the public key>"

    [[signer]]
    name = "acme-github"
    sigstore_issuer = "https://issuer.example.org"
    sigstore_identities = ["https://example.org/acme/.github/workflows/build.yaml@refs/heads/main"]
    sigstore_repository = "https://example.org/acme/axpy"

Unknown keys are errors: a misspelt demand must not become none. Leaves out where the files lie (see `kernel_hub.settings`).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import Any

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.document import JsonObject
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.requirement import RepoId, is_commit
from kernel_hub.trust.rules import Demand, DigestPolicy, Entry, Scope, TrustRules
from kernel_hub.trust.signer import (
    BUILT_IN_SIGNERS,
    Ed25519Signer,
    Signer,
    SigstoreSigner,
    is_signer_name,
    parse_key,
)

MAX_BYTES = 1 << 20
_NAMESPACE = Pattern(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")


def parse_trust_file(content: bytes, *, name: str) -> TrustRules:
    """Read a trust file.

    Args:
        content: Its bytes.
        name: What to call it in errors and in reasons.

    Raises:
        InvalidDocumentError: Naming the key at fault.
    """
    if len(content) > MAX_BYTES:
        raise InvalidDocumentError(name, f"is longer than {MAX_BYTES} bytes")
    try:
        table = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDocumentError(name, f"is not TOML: {error}") from error
    top = JsonObject(table, name)
    top.only("allow", "require", "signer", "digest")
    return TrustRules(
        allowed=tuple(_entry(item, name) for item in top.objects("allow", default=())),
        demands=tuple(_demand(item, name) for item in top.objects("require", default=())),
        signers=_signers(top),
        digest=_digest_policy(top),
    )


def format_trust_file(rules: TrustRules) -> bytes:
    """The inverse of `parse_trust_file`; comments of a file that was read are not in it."""
    lines = [f"digest = {_text(rules.digest)}"] if rules.digest != "if-present" else []
    for signer in rules.signers:
        lines += ["", *_table("signer", _signer_values(signer))]
    for demand in rules.demands:
        lines += ["", *_table("require", {**_scope_values(demand.scope), "signers": sorted(demand.signers)})]
    for entry in rules.allowed:
        lines += ["", *_table("allow", _entry_values(entry))]
    return ("\n".join(lines).strip("\n") + "\n").encode("utf-8")


def format_entry(entry: Entry) -> str:
    """One allowance as text to append to a trust file."""
    return "\n".join(_table("allow", _entry_values(entry))) + "\n"


def _entry(item: JsonObject, name: str) -> Entry:
    item.only("publisher", "repository", "commit", "signers", "added_by", "added_on", "reason")
    entry = Entry(
        scope=_scope(item),
        signers=_names(item),
        added_by=item.line("added_by") if item.has("added_by") else "",
        added_on=_date(item, "added_on"),
        reason=item.line("reason") if item.has("reason") else "",
        defined_in=name,
    )
    if entry.scope == Scope() and not entry.signers:
        raise item.fault("", "allows everything; name a publisher, a repository or signers")
    return entry


def _demand(item: JsonObject, name: str) -> Demand:
    item.only("publisher", "repository", "signers")
    signers = _names(item)
    if not signers:
        raise item.fault("signers", "is missing")
    return Demand(_scope(item), signers, name)


def _scope(item: JsonObject) -> Scope:
    publisher, repository, commit = (item.optional_text(key) for key in ("publisher", "repository", "commit"))
    if publisher is not None and repository is not None:
        raise item.fault("publisher", "cannot stand beside 'repository'")
    if commit is not None and repository is None:
        raise item.fault("commit", "needs 'repository' beside it")
    if commit is not None and not is_commit(commit):
        raise item.fault("commit", f"{commit!r} is not a full commit id")
    if publisher is not None and not _NAMESPACE.fullmatch(publisher):
        raise item.fault("publisher", f"{publisher!r} is not the part of a repository's name before '/'")
    if repository is None:
        return Scope(publisher)
    try:
        return Scope(repository=RepoId.parse(repository), commit=commit)
    except InvalidDocumentError as error:
        raise item.fault("repository", error.problem) from error


def _names(item: JsonObject) -> frozenset[str]:
    return frozenset(item.texts("signers", default=()))


def _date(item: JsonObject, key: str) -> date | None:
    found = item.value(key)
    if found is None or (isinstance(found, date) and not isinstance(found, datetime)):
        return found
    raise item.fault(key, "is not a date like 2026-12-02 (without quotes)")


def _digest_policy(top: JsonObject) -> DigestPolicy:
    match top.optional_text("digest"):
        case None | "if-present":
            return "if-present"
        case "required":
            return "required"
        case text:
            raise top.fault("digest", f"{text!r} is neither 'if-present' nor 'required'")


def _signers(top: JsonObject) -> tuple[Signer, ...]:
    found: dict[str, Signer] = {}
    for item in top.objects("signer", default=()):
        signer = _signer(item)
        if signer.name in found or signer.name in {built_in.name for built_in in BUILT_IN_SIGNERS}:
            raise item.fault("name", f"{signer.name!r} is defined already")
        found[signer.name] = signer
    return tuple(found.values())


def _signer(item: JsonObject) -> Signer:
    item.only("name", "ed25519", "sigstore_issuer", "sigstore_identities", "sigstore_repository")
    name = item.text("name")
    if not is_signer_name(name):
        raise item.fault("name", f"{name!r} is not a name of letters, digits, '.', '_' and '-'")
    if item.has("ed25519"):
        item.only("name", "ed25519")
        try:
            return Ed25519Signer(name, parse_key(item.text("ed25519")))
        except InvalidDocumentError as error:
            raise item.fault("ed25519", error.problem) from error
    identities = item.texts("sigstore_identities")
    if not identities or not all(identities):
        raise item.fault("sigstore_identities", "names nobody")
    return SigstoreSigner(name, item.text("sigstore_issuer"), identities, item.optional_text("sigstore_repository"))


def _scope_values(scope: Scope) -> dict[str, Any]:
    repository = None if scope.repository is None else str(scope.repository)
    return {"publisher": scope.publisher, "repository": repository, "commit": scope.commit}


def _entry_values(entry: Entry) -> dict[str, Any]:
    return {
        **_scope_values(entry.scope),
        "signers": sorted(entry.signers) or None,
        "added_by": entry.added_by or None,
        "added_on": entry.added_on,
        "reason": entry.reason or None,
    }


def _signer_values(signer: Signer) -> dict[str, Any]:
    match signer:
        case Ed25519Signer(name):
            return {"name": name, "ed25519": signer.key_text}
        case SigstoreSigner(name, issuer, identities, repository):
            return {
                "name": name,
                "sigstore_issuer": issuer,
                "sigstore_identities": list(identities),
                "sigstore_repository": repository,
            }


def _table(name: str, values: Mapping[str, Any]) -> Iterator[str]:
    yield f"[[{name}]]"
    for key, value in values.items():
        match value:
            case None:
                continue
            case list():
                yield f"{key} = [{', '.join(map(_text, value))}]"
            case date():
                yield f"{key} = {value.isoformat()}"
            case _:
                yield f"{key} = {_text(str(value))}"


def _text(value: str) -> str:
    # JSON's escapes are among TOML's; the one control character that JSON leaves as it is, TOML does not.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
