"""`kernel-hub host`: what this machine is and how each fact was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_hub.cli.command import Command

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

    from kernel_hub.cli.console import Console
    from kernel_hub.model.host import Host


def _run(_arguments: Namespace, console: Console) -> int:
    from kernel_hub.api import this_host
    from kernel_hub.settings import load_settings

    host = this_host(load_settings())
    console.answer(facts_text(host), host.to_json())
    return 0


def facts_text(host: Host) -> str:
    """Each fact of a machine in a line, and below it how it was found."""
    facts = {key: value for key, value in host.to_json().items() if key not in ("probes", "backend_version")}
    facts["backend"] = str(host.backend) if host.backend else None
    facts["devices"] = None if host.devices is None else [str(device) for device in host.devices]
    rows = [(name, _value(value), host.probes.get(name, "")) for name, value in facts.items()]
    widest = max(len(name) for name, _, _ in rows)
    lines = []
    for name, value, how in rows:
        lines.append(f"{name:<{widest}}  {value}")
        if how:
            lines.append(f"{'':<{widest}}    {how}")
    return "\n".join(lines)


def _value(value: object) -> str:
    match value:
        case None:
            return "unknown"
        case bool():
            return "yes" if value else "no"
        case list():
            return _listed(value) or "none"
        case _:
            return str(value)


def _listed(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in values)


HOST = Command(
    "host",
    "show this machine as builds are matched to it",
    "Print each fact that decides which builds fit, with the way it was found. With --json, print the file that "
    "explain, has, info and select take with --host, so that they answer for this machine anywhere else.",
    (),
    _run,
)
