"""Where a kernel's sources come from: the git commit, whether they differ from it, and the name that a build gets by that.

Repository format, section (c): `provenance`, and the unique part of `id`. Git is asked with everything switched off that
would let a repository's configuration run programs.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_hub.model.digest import Digest, DigestAlgorithm, tree_digest
from kernel_hub.model.metadata import SourceState
from kernel_hub.tree import digest_of_file, paths_of

_TIMEOUT_S = 60
_TREE_DIGITS = 7
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat")
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


@dataclass(frozen=True, slots=True)
class SourceOrigin:
    """A kernel's sources as its build names them.

    Attributes:
        unique: The part of the build's id that tells it from other builds of the kernel.
        state: The commit and whether the sources differ from it; None outside git.
    """

    unique: str
    state: SourceState | None


def origin_of(folder: Path, *, leaving_out: Iterable[Path] = ()) -> SourceOrigin:
    """Find where a kernel's sources come from.

    In git, `unique` is the start of the id of the folder's tree, with `_dirty` if anything in the folder is not as
    committed (a file that is not tracked counts: it may be compiled). Outside git it is drawn from the files' contents, so
    that the same sources always make the same build.

    Args:
        folder: The kernel's folder.
        leaving_out: Files and folders below it that are no sources, such as the output.
    """
    excluded = [path.relative_to(folder).as_posix() for path in leaving_out if path.is_relative_to(folder)]
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    tree = _git(folder, "rev-parse", "--verify", "HEAD:./")
    status = _git(
        folder, "status", "--porcelain", "--untracked-files=all", "--ignore-submodules=all", "--no-renames", "--", ".",
        ":(exclude,glob)**/__pycache__/**", *(f":(exclude,literal){path}" for path in excluded if path != "."),
    )  # fmt: skip
    if commit is None or tree is None or status is None:
        return SourceOrigin(_drawn_from(_content(folder, excluded)), None)
    dirty = bool(status)
    return SourceOrigin(tree[:_TREE_DIGITS] + ("_dirty" if dirty else ""), SourceState(commit, dirty))


def _content(folder: Path, excluded: list[str]) -> Digest:
    def counts(path: str) -> bool:
        hidden = any(part.startswith(".") or part == "__pycache__" for part in path.split("/"))
        return not hidden and not any(path == item or path.startswith(f"{item}/") for item in excluded)

    listed = {path: digest_of_file(folder / path) for path in paths_of(folder) if counts(path)}
    return tree_digest(listed.items())


def _drawn_from(digest: Digest) -> str:
    """Thirteen base32 characters, the shape that the ecosystem gives to names outside git."""
    assert digest.algorithm is DigestAlgorithm.SHA256
    return base64.b32encode(digest.value[:8]).decode("ascii").rstrip("=").lower()


def _git(folder: Path, *arguments: str) -> str | None:
    """What git answers; None if it is not here, fails, or the folder is not in a repository."""
    program = shutil.which("git")
    if program is None:
        return None
    try:
        ended = subprocess.run(
            (program, *_QUIET, "-C", str(folder), *arguments),
            # The user's own configuration says which foreign folders they trust.
            env={**_ENVIRONMENT, "HOME": str(Path.home())}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=True, timeout=_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return ended.stdout.strip()
