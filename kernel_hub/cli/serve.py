"""`kernel-hub serve`: the Hub's HTTP API over a registry folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_hub.cli.command import Command, UsageError, argument, needing, token_in
from kernel_hub.cli.following import binding_lines

if TYPE_CHECKING:
    from argparse import Namespace

    from kernel_hub.cli.console import Console

_LAST_PORT = 65535


def _run(arguments: Namespace, console: Console) -> int:
    from pathlib import Path

    with needing("serve"):
        from kernel_hub.server.exchange import Site
        from kernel_hub.server.http import RequestRecord, serve
    from kernel_hub.settings import load_settings
    from kernel_hub.sources.directory import DirectoryRegistry

    if not 0 <= arguments.port <= _LAST_PORT:
        raise UsageError(f"--port: {arguments.port} is not a port; ports are 0 to {_LAST_PORT}")
    folder = Path(arguments.folder).expanduser().resolve()
    site = Site(token=token_in(load_settings(), arguments.token_env), private=arguments.private)

    def say_ready(url: str) -> None:
        namespaces = sorted({repo.namespace for repo in DirectoryRegistry.open(folder).repos()})
        token_env = arguments.token_env if arguments.private else None
        lines = [f"serving {folder} at {url}", *binding_lines(namespaces or ["ORG"], url, token_env=token_env)]
        console.answer("\n".join(lines), {"folder": str(folder), "url": url, "namespaces": namespaces})
        console.flush()

    def say_request(record: RequestRecord) -> None:
        query = f"?{record.query}" if record.query else ""
        console.notice(f"{record.status} {record.method} {record.path}{query} ({record.sent_bytes} bytes)")

    serve(
        folder,
        arguments.host,
        arguments.port,
        site=site,
        allow_remote=arguments.allow_remote,
        create=arguments.create,
        on_request=say_request if arguments.verbose else None,
        on_ready=say_ready,
    )
    return 0


SERVE = Command(
    "serve",
    "serve a registry folder as a Hub",
    "Serve a registry folder over HTTP as the Hub serves kernels, until interrupted, so that HF_ENDPOINT or a namespace "
    "bound to a registry can point at it. Prints the URL once it listens. There is no TLS; put a proxy in front to "
    "serve other machines. With --verbose, every request is reported.",
    (
        argument("folder", metavar="DIR", text="the registry folder"),
        argument("--create", action="store_true", text="make the registry if the folder is absent or empty"),
        argument("--host", metavar="ADDRESS", default="127.0.0.1", text="the address to listen on; default: 127.0.0.1"),
        argument("--port", metavar="N", type=int, default=8000, text="the port, 0 for a free one; default: 8000"),
        argument("--allow-remote", action="store_true", text="allow an address that other machines can reach"),
        argument(
            "--token-env", metavar="NAME", text="the variable with the token that writing needs; default: none needed"
        ),
        argument("--private", action="store_true", text="reading needs the token too"),
    ),
    _run,
)
