"""`kernel-hub trust`, `sign`, `new-key`, `verify`: who may run code here, and who stands behind builds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_hub.cli.command import Command, UsageError, argument

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from kernel_hub.cli.console import Console
    from kernel_hub.settings import Settings
    from kernel_hub.signatures import SignatureDemand
    from kernel_hub.trust import Entry

_ACTIONS = ("add", "remove", "list")


def _trust(arguments: Namespace, console: Console) -> int:
    from kernel_hub.settings import load_settings

    settings = load_settings()
    if arguments.action == "list":
        if arguments.scope is not None:
            raise UsageError("'kernel-hub trust list' takes no SCOPE")
        rules = settings.trust
        lines = [f"{entry.scope}  {_details(entry)}".rstrip() for entry in rules.allowed]
        lines += [
            f"{demand.scope}  must be signed by {_any(demand.signers)} ({demand.defined_in})"
            for demand in rules.demands
        ]
        console.answer("\n".join(lines) or "no trust file allows or demands anything", _rules_to_json(settings))
        return 0
    if arguments.scope is None:
        raise UsageError(f"'kernel-hub trust {arguments.action}' needs a SCOPE: org, org/name or org/name@COMMIT")
    change = _add if arguments.action == "add" else _remove
    return change(arguments, console, settings)


def _add(arguments: Namespace, console: Console, settings: Settings) -> int:
    from datetime import UTC, datetime

    from kernel_hub.trust import Entry, Scope
    from kernel_hub.trust_store import allow

    path = _file(arguments, settings)
    user = next((settings.environ[name] for name in ("USER", "LOGNAME", "USERNAME") if settings.environ.get(name)), "")
    entry = Entry(
        Scope.parse(arguments.scope),
        frozenset(arguments.signer or ()),
        added_by=user if arguments.by is None else arguments.by,
        added_on=datetime.now(UTC).date(),
        reason=arguments.reason or "",
    )
    added = allow(path, entry)
    text = f"{path} {'now allows' if added else 'allows already:'} {entry.scope}"
    console.answer(text, {"file": str(path), "added": added, "scope": str(entry.scope)})
    return 0


def _remove(arguments: Namespace, console: Console, settings: Settings) -> int:
    from kernel_hub.trust import Scope
    from kernel_hub.trust_store import disallow

    path = _file(arguments, settings)
    scope = Scope.parse(arguments.scope)
    removed = disallow(path, scope)
    text = f"{path} {'no longer allows' if removed else 'did not allow'} {scope}"
    console.answer(text, {"file": str(path), "removed": len(removed), "scope": str(scope)})
    return 0


def _file(arguments: Namespace, settings: Settings) -> Path:
    if not arguments.project:
        return settings.trust_file
    from kernel_hub.settings import PROJECT_TRUST_FILE, project_file

    project = project_file(settings.folder)
    if project is None:
        raise UsageError("--project: no pyproject.toml here or above, so there is no project")
    return project.with_name(PROJECT_TRUST_FILE)


def _details(entry: Entry) -> str:
    parts = [
        f"if signed by {_any(entry.signers)}" if entry.signers else "",
        f"by {entry.added_by}" if entry.added_by else "",
        f"on {entry.added_on.isoformat()}" if entry.added_on else "",
        entry.reason,
        f"({entry.defined_in})",
    ]
    return " ".join(part for part in parts if part)


def _any(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))


def _rules_to_json(settings: Settings) -> dict[str, Any]:
    rules = settings.trust
    return {
        "digest": rules.digest,
        "allowed": [
            {
                "scope": str(entry.scope),
                "signers": sorted(entry.signers),
                "added_by": entry.added_by,
                "added_on": entry.added_on.isoformat() if entry.added_on else None,
                "reason": entry.reason,
                "file": entry.defined_in,
            }
            for entry in rules.allowed
        ],
        "required": [
            {"scope": str(demand.scope), "signers": sorted(demand.signers), "file": demand.defined_in}
            for demand in rules.demands
        ],
        "signers": sorted(rules.known_signers()),
    }


def _new_key(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.signatures import PrivateKey
    from kernel_hub.trust import Ed25519Signer, TrustRules, format_trust_file
    from kernel_hub.trust.signer import is_signer_name

    if not is_signer_name(arguments.name):
        raise UsageError(f"--name: {arguments.name!r} is not a name of letters, digits, '.', '_' and '-'")
    path = Path(arguments.file)
    key = PrivateKey.generate()
    signer = Ed25519Signer(arguments.name, key.public)
    try:
        key.write(path)
    except FileExistsError as error:
        raise UsageError(f"{path} is there already; keys are not overwritten") from error
    lines = [f"wrote the private key to {path}; whoever verifies puts this into a trust file:", ""]
    lines.append(format_trust_file(TrustRules(signers=(signer,))).decode().rstrip())
    document = {"file": str(path), "name": signer.name, "ed25519": signer.key_text, "key_id": signer.key_id}
    console.answer("\n".join(lines), document)
    return 0


def _sign(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.model.requirement import RepoId
    from kernel_hub.signatures import PrivateKey
    from kernel_hub.signing import sign_folder

    repository = None if arguments.repo is None else str(RepoId.parse(arguments.repo))
    written = sign_folder(Path(arguments.folder), PrivateKey.read(Path(arguments.key)), repository=repository)
    text = "\n".join(f"signed: {path}" for path in written)
    console.answer(text, {"attestations": [str(path) for path in written], "repo": repository})
    return 0


def _verify(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.cli.console import error_to_json
    from kernel_hub.settings import load_settings
    from kernel_hub.signing import verify_folder

    settings = load_settings()
    results = verify_folder(
        Path(arguments.folder),
        signatures=_demand(arguments, settings),
        require_digest=settings.trust.digest == "required" or arguments.require_digest,
    )
    lines, documents = [], []
    code = 0
    for result in results:
        if result.error is not None:
            code = result.error.exit_code
            lines.append(f"{result.label}: refused: {result.error.message}")
            documents.append({"label": result.label, "verified": False, **error_to_json(result.error)})
            continue
        signed = f", signed by {', '.join(result.signed_by)}" if result.signed_by else ""
        lines.append(f"{result.label}: {'verified' if result.has_digest else 'no digest to verify'}{signed}")
        documents.append(
            {
                "label": result.label,
                "verified": True,
                "has_digest": result.has_digest,
                "signed_by": list(result.signed_by),
                "error": None,
            }
        )
    console.answer("\n".join(lines), {"builds": documents})
    return code


def _demand(arguments: Namespace, settings: Settings) -> SignatureDemand | None:
    from kernel_hub.signatures import SignatureDemand

    if not arguments.signer:
        return None
    known = settings.trust.known_signers()
    for name in arguments.signer:
        if name not in known:
            raise UsageError(f"--signer: {name!r} is not defined", hint=f"signers are {', '.join(sorted(known))}")
    ways = frozenset(frozenset({name}) for name in arguments.signer)
    return SignatureDemand(ways, known, "asked for by --signer")


TRUST = Command(
    "trust",
    "say whose kernels may run here",
    "Add an allowance to the user's trust file, remove one, or list what all trust files allow and demand. Comments in the "
    "file stay. The file is $KERNEL_HUB_TRUST, default trust.toml beside the user's configuration; with --project it is "
    "kernel-hub-trust.toml beside the nearest pyproject.toml.",
    (
        argument("action", choices=_ACTIONS, text="what to do"),
        argument(
            "scope",
            metavar="SCOPE",
            nargs="?",
            text="org for every kernel of a publisher, org/name, or org/name@COMMIT",
        ),
        argument("--reason", metavar="TEXT", text="why, for those who read the file later"),
        argument("--by", metavar="NAME", text="who decided it; default: the user's name"),
        argument(
            "--signer",
            metavar="NAME",
            action="append",
            text="allow it only if this signer signed the build; several: any of them",
        ),
        argument("--project", action="store_true", text="change the project's trust file instead of the user's"),
    ),
    _trust,
)
NEW_KEY = Command(
    "new-key",
    "make a key for signing builds",
    "Write a new Ed25519 key, readable by its owner alone, and print the lines for the trust files of those who shall "
    "believe its signatures. A file that is there is not overwritten.",
    (
        argument("file", metavar="FILE", text="where to write the private key, in PEM"),
        argument("--name", metavar="NAME", required=True, text="what trust files call the signer"),
    ),
    _new_key,
)
SIGN = Command(
    "sign",
    "sign the builds of a folder",
    "Verify every build of a folder against its own digest and write an attestation for each to attestations/, beside "
    "build/. Signatures of others over the same build stay. A build without digest is refused, because a signature would "
    "not cover its files.",
    (
        argument("folder", metavar="FOLDER", text="a kernel's folder with build/, or one build below it"),
        argument("--key", metavar="FILE", required=True, text="the private key, as 'kernel-hub new-key' writes it"),
        argument("--repo", metavar="REPO", text="org/name if the signature shall hold for this repository only"),
    ),
    _sign,
)
VERIFY = Command(
    "verify",
    "verify the builds of a folder",
    "Verify every build of a folder: its files against its digest, its metadata, its name and, with --signer, who signed it. "
    "Nothing is imported. Exits with the code of the last build that is refused.",
    (
        argument("folder", metavar="FOLDER", text="a kernel's folder with build/, a folder of builds, or one build"),
        argument(
            "--signer", metavar="NAME", action="append", text="demand this signer's signature; several: any of them"
        ),
        argument("--require-digest", action="store_true", text="refuse builds that carry no digest"),
    ),
    _verify,
)
