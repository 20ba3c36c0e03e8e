"""`kernel-hub publish`: from builds to a published kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_hub.cli.command import Command, UsageError, argument, token_in
from kernel_hub.cli.console import size_text
from kernel_hub.cli.following import binding_lines, loading_line

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from kernel_hub.build.publish import PublishReport
    from kernel_hub.build.recipe import Home
    from kernel_hub.cli.console import Console


def _run(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.cli.check import require_builder

    require_builder()
    from kernel_hub.build.publish import publish
    from kernel_hub.model.requirement import RepoId
    from kernel_hub.settings import load_settings
    from kernel_hub.signatures import PrivateKey
    from kernel_hub.sources.target import open_sink

    settings = load_settings()
    folder = Path(arguments.folder)
    home = _home(folder)
    repo = RepoId.parse(arguments.repo) if arguments.repo is not None else home.repo
    if repo is None:
        hint = "give --repo org/name, or repo-id in [general.hub] of build.toml"
        raise UsageError("the name to publish under is not known", hint=hint)
    token = token_in(settings, arguments.token_env)
    report = publish(
        folder,
        open_sink(settings, arguments.to, token=token),
        repo,
        branch=arguments.branch if arguments.branch is not None else home.branch,
        private=arguments.private,
        allow_dirty=arguments.allow_dirty,
        dry_run=arguments.dry_run,
        propose=arguments.create_pr,
        key=None if arguments.sign is None else PrivateKey.read(Path(arguments.sign)),
    )
    lines = [_text(report)]
    if report.commit and report.proposal is None:
        bound = settings.registries.get(repo.namespace)
        is_found = settings.endpoint if bound is None else bound.url
        if is_found in (report.target, Path(report.target).absolute().as_uri()):
            lines.append("to load it:")
        else:
            lines.extend(binding_lines([repo.namespace], report.target, token_env=arguments.token_env))
        lines.append(loading_line(str(repo), version=report.version, branch=report.branch))
    console.answer("\n".join(lines), _to_json(report))
    return 0


def _home(folder: Path) -> Home:
    """What the recipe says of where the kernel is published, if the folder is a kernel's with its sources."""
    from kernel_hub.build.project import open_project
    from kernel_hub.build.recipe import Home

    return open_project(folder).first.home if (folder / "build.toml").is_file() else Home()


def _text(report: PublishReport) -> str:
    commit = f" ({report.commit[:12]})" if report.commit else ""
    lines = [f"{report.repo}@{report.branch}{commit} at {report.target}: {report.status.value}"]
    lines.extend(f"  build: {label}" for label in report.labels)
    lines.append(
        f"  files: {len(report.added)} sent ({size_text(report.sent_bytes)}), {report.unchanged} there already"
    )
    lines.extend(f"  removed: {path}" for path in report.deleted)
    lines.append(f"  card: {'written' if report.card else 'left as it is'}")
    if report.proposal is not None:
        where = f": {report.proposal.url}" if report.proposal.url else ""
        lines.append(f"  proposal {report.proposal.number}{where} (revision refs/pr/{report.proposal.number})")
    lines.extend(f"  note: {note}" for note in report.notes)
    return "\n".join(lines)


def _to_json(report: PublishReport) -> dict[str, Any]:
    return {
        "status": report.status.value,
        "repo": str(report.repo),
        "target": report.target,
        "version": report.version,
        "branch": report.branch,
        "commit": report.commit,
        "labels": list(report.labels),
        "added": list(report.added),
        "deleted": list(report.deleted),
        "unchanged": report.unchanged,
        "card": report.card,
        "sent_bytes": report.sent_bytes,
        "proposal": None if report.proposal is None else {"number": report.proposal.number, "url": report.proposal.url},
        "notes": list(report.notes),
    }


PUBLISH = Command(
    "publish",
    "publish builds to a registry folder or a Hub",
    "Publish the builds of a folder in one commit on the branch of the kernel's version, and the card on main; builds that "
    "are too large for one commit go into several, each of whole builds. Every "
    "build is verified against its own digest before anything is sent. Other builds on the branch stay. A target folder "
    "that is absent or empty becomes a registry; one that holds something else is refused. A Hub is sent the token that "
    "was set for it: HF_TOKEN for the endpoint in HF_ENDPOINT, a registry's own, or the one named by --token-env.",
    (
        argument("folder", metavar="FOLDER", text="a kernel's folder with build/, a folder of builds, or one build"),
        argument(
            "--to", metavar="TARGET", required=True, text="a registry folder, its file:// URL, or the URL of a Hub"
        ),
        argument(
            "--repo", metavar="REPO", text="org/name; default: repo-id in [general.hub] of the folder's build.toml"
        ),
        argument("--branch", metavar="NAME", text="the branch of the builds; default: v<version>"),
        argument("--private", action="store_true", text="make a repository that is created private"),
        argument(
            "--create-pr", action="store_true", text="propose the builds (a pull request) instead of publishing them"
        ),
        argument(
            "--sign",
            metavar="FILE",
            text="sign every build with this private key, as 'kernel-hub sign --repo' does, and publish the attestations",
        ),
        argument("--allow-dirty", action="store_true", text="publish builds of sources that were not committed"),
        argument("--dry-run", action="store_true", text="change nothing, only say what would be"),
        argument("--token-env", metavar="NAME", text="the variable that holds the token for the Hub"),
    ),
    _run,
)
