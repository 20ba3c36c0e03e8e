"""`kernel-hub mirror`, `bundle`, `unbundle`: what a lock needs, for machines that do not reach its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_hub.cli.command import Command, UsageError, argument, token_in
from kernel_hub.cli.console import counted, size_text
from kernel_hub.cli.following import binding_lines
from kernel_hub.cli.locks import LOCK, PROJECT, lock_of

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

    from kernel_hub.cli.console import Console
    from kernel_hub.locking.make import Connect
    from kernel_hub.locking.sync import Syncer
    from kernel_hub.model.lock import Lock
    from kernel_hub.settings import Settings

_TOKEN = argument("--token-env", metavar="VARIABLE", text="the environment variable that holds the server's token")


def _opened(arguments: Namespace, console: Console) -> tuple[Path, Lock, Settings, Connect, Syncer]:
    from kernel_hub.locking.sync import Syncer
    from kernel_hub.locking.workspace import connector
    from kernel_hub.settings import load_settings

    path, lock = lock_of(arguments)
    settings = load_settings(folder=path.parent)
    connect = connector(settings, refresh=False)
    return path, lock, settings, connect, Syncer(settings, lock, path, connect, progress=console.progress())


def _mirror(arguments: Namespace, console: Console) -> int:
    from kernel_hub.locking.mirror import copy_lock, open_mirror

    _, lock, settings, connect, syncer = _opened(arguments, console)
    mirror = open_mirror(settings, arguments.to, token=token_in(settings, arguments.token_env))
    copied = list(copy_lock(lock, syncer, connect, mirror))
    lines = [
        f"{item.kernel}: {item.files} files, {size_text(item.size_bytes)}, of which {size_text(item.sent_bytes)} were new"
        for item in copied
    ]
    lines.extend(_bindings(lock, mirror.name))
    console.answer("\n".join(lines), {"target": mirror.name, "kernels": [item.to_json() for item in copied]})
    return 0


def _bundle(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.locking.archive import write_archive
    from kernel_hub.locking.mirror import bring

    archive = Path(arguments.to).expanduser().resolve()
    if archive.exists() and not arguments.force:
        raise UsageError(f"--to: {archive} is there already", hint="name another file, or replace it with --force")
    _, lock, _, connect, syncer = _opened(arguments, console)
    size_bytes = write_archive(archive, lock, list(bring(lock, syncer, connect)))
    count = len(lock.kernels)
    console.answer(
        f"{archive}: {counted(count, 'kernel')}, {size_text(size_bytes)}",
        {"archive": str(archive), "kernels": count, "size_bytes": size_bytes},
    )
    return 0


def _unbundle(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    from kernel_hub.errors import InvalidDocumentError
    from kernel_hub.locking.files import replace_whole
    from kernel_hub.locking.unpack import DEFAULT_LIMIT_BYTES, read_archive
    from kernel_hub.locking.workspace import lock_at
    from kernel_hub.model.lock_names import OWN
    from kernel_hub.model.lock_text import format_lock
    from kernel_hub.sources.directory import DirectoryRegistry

    archive, folder = Path(arguments.archive).expanduser(), Path(arguments.to).expanduser().resolve()
    expected = lock_at(Path(arguments.lock).expanduser().absolute()) if arguments.lock else None
    limit_bytes = DEFAULT_LIMIT_BYTES if arguments.limit_gib is None else arguments.limit_gib << 30
    try:
        file = archive.open("rb")
    except OSError as error:
        raise InvalidDocumentError(str(archive), f"cannot be read: {error.strerror}") from error
    with file:
        found = read_archive(
            file, DirectoryRegistry.create(folder), name=str(archive), expected=expected, limit_bytes=limit_bytes
        )
    replace_whole(folder / OWN, format_lock(found.lock))
    lines = [
        f"{folder}: {counted(len(found.lock.kernels), 'kernel')}, {size_text(found.size_bytes)}; the lock lies beside them",
        *_bindings(found.lock, str(folder)),
    ]
    console.answer(
        "\n".join(lines),
        {
            "registry": str(folder),
            "lock": str(folder / OWN),
            "kernels": len(found.lock.kernels),
            "size_bytes": found.size_bytes,
        },
    )
    return 0


def _bindings(lock: Lock, place: str) -> list[str]:
    return binding_lines((kernel.repo.namespace for kernel in lock.kernels), place)


MIRROR = Command(
    "mirror",
    "copy what the lock needs to a registry of your own",
    "Fetches every locked build, verifies it against the lock, and copies it with its commit id to a registry folder or "
    "a server started with 'kernel-hub serve'. The same lock then loads from there.",
    (
        PROJECT,
        LOCK,
        argument("--to", metavar="TARGET", required=True, text="a folder, or the URL of a server"),
        _TOKEN,
    ),
    _mirror,
)
BUNDLE = Command(
    "bundle",
    "pack what the lock needs into one file",
    "Fetches every locked build, verifies it against the lock, and writes one archive for a machine without network. "
    "The same lock makes the same bytes.",
    (
        PROJECT,
        LOCK,
        argument("--to", metavar="FILE", required=True, text="the archive"),
        argument("--force", action="store_true", text="replace the archive if it is there"),
    ),
    _bundle,
)
UNBUNDLE = Command(
    "unbundle",
    "unpack such a file into a registry folder",
    "Reads an archive as if an enemy had made it, holds every build in it to the lock, and puts them into a registry "
    "folder. Exits with 6 if a build in it is not what the lock holds, and with 5 if bytes are not what they are named by.",
    (
        argument("archive", metavar="FILE", text="the archive"),
        argument("--to", metavar="FOLDER", required=True, text="the registry folder; made if absent"),
        argument("--lock", metavar="FILE", text="the lock that it must have been made from; default: the one in it"),
        argument("--limit-gib", metavar="N", type=int, text="how much is unpacked at most, in GiB; default: 256"),
    ),
    _unbundle,
)
