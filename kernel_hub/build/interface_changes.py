"""Which changes of what a kernel offers break its callers. Pure.

Within a version, every call that worked must work and mean the same. So a function or parameter may be added where no call
that is written already is touched by it, and nothing may go, move, get another name or default, or become required.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernel_hub.build.interface import ApiRecord, Kind, Parameter, Parameters

_RAISE = "or raise general.version in build.toml"
_POSITIONAL = (Kind.POSITIONAL_ONLY, Kind.EITHER)


@dataclass(frozen=True, slots=True)
class Breach:
    """A change that breaks callers.

    Attributes:
        subject: The function, and the parameter in parentheses, e.g. "axpy(alpha)".
        problem: What became of it.
        fix: What to do about it.
    """

    subject: str
    problem: str
    fix: str


def breaches(old: ApiRecord, new: ApiRecord) -> tuple[Breach, ...]:
    """Every change from `old` to `new` that breaks callers, in order of what is offered.

    Nothing is one between different versions: a version stands for what it offers.
    """
    return () if old.version != new.version else tuple(_all(old, new))


def _all(old: ApiRecord, new: ApiRecord) -> Iterator[Breach]:
    for name in sorted(old.functions):
        if name not in new.functions:
            yield _gone(name)
        else:
            yield from _changed(name, old.functions[name], new.functions[name])
    for name in sorted(old.layers):
        full = f"layers.{name}"
        if name not in new.layers:
            yield _gone(full)
        else:
            yield from _changed(full, old.layers[name].init, new.layers[name].init)
            yield from _changed(f"{full}.forward", old.layers[name].forward, new.layers[name].forward)


def _gone(name: str) -> Breach:
    return Breach(name, "is no longer offered", f"keep it, {_RAISE}")


def _changed(name: str, old: Parameters, new: Parameters) -> Iterator[Breach]:
    if old is None:
        return
    if new is None:
        yield Breach(
            name, "has parameters that its sources no longer tell", f"define it with def in the sources, {_RAISE}"
        )
        return
    yield from _positional(name, old, new)
    yield from _by_name(name, old, new)
    yield from _stars(name, old, new)
    yield from _required(name, old, new)


def _positional(name: str, old: tuple[Parameter, ...], new: tuple[Parameter, ...]) -> Iterator[Breach]:
    before = [item for item in old if item.kind in _POSITIONAL]
    after = [item for item in new if item.kind in _POSITIONAL]
    names = {item.name: item for item in new}
    for index, item in enumerate(before):
        subject = f"{name}({item.name})"
        other = after[index] if index < len(after) else None
        if item.kind is Kind.POSITIONAL_ONLY:
            if other is None:
                yield Breach(subject, "is no longer taken by position", f"keep it where it is, {_RAISE}")
            else:
                yield from _default(subject, item, other)
        elif other is not None and other.name == item.name:
            if other.kind is Kind.POSITIONAL_ONLY:
                yield Breach(subject, "is no longer taken by name", f"move it behind the '/', {_RAISE}")
            yield from _default(subject, item, other)
        elif item.name not in names or names[item.name].kind in (Kind.VAR_POSITIONAL, Kind.VAR_KEYWORD):
            yield Breach(subject, "was removed or renamed", f"keep it where it is under that name, {_RAISE}")
        elif names[item.name].kind is Kind.KEYWORD_ONLY:
            yield Breach(subject, "is no longer taken by position", f"keep it before the '*', {_RAISE}")
        else:
            yield Breach(subject, "was moved", f"keep the order, with new parameters at the end, {_RAISE}")


def _by_name(name: str, old: tuple[Parameter, ...], new: tuple[Parameter, ...]) -> Iterator[Breach]:
    names = {item.name: item for item in new if item.kind in (Kind.EITHER, Kind.KEYWORD_ONLY)}
    for item in old:
        if item.kind is not Kind.KEYWORD_ONLY:
            continue
        subject = f"{name}({item.name})"
        if item.name not in names:
            yield Breach(subject, "was removed or renamed", f"keep it under that name, {_RAISE}")
        else:
            yield from _default(subject, item, names[item.name])


def _default(subject: str, old: Parameter, new: Parameter) -> Iterator[Breach]:
    if old.default is None or old.default == new.default:
        return
    if new.default is None:
        yield Breach(subject, "has become required", f"give it the default {old.default} again, {_RAISE}")
    else:
        problem = f"has the default {new.default}, and had {old.default}"
        yield Breach(subject, problem, f"keep the default {old.default}, {_RAISE}")


def _stars(name: str, old: tuple[Parameter, ...], new: tuple[Parameter, ...]) -> Iterator[Breach]:
    kinds = {item.kind for item in new}
    for item in old:
        star = {Kind.VAR_POSITIONAL: "*", Kind.VAR_KEYWORD: "**"}.get(item.kind)
        if star is None:
            continue
        subject = f"{name}({star}{item.name})"
        if item.kind not in kinds:
            yield Breach(subject, "is gone, so calls with further arguments fail", f"keep it, {_RAISE}")
            continue
        # A name of its own for what was taken by `**` is how such parameters come to be written down, and no harm.
        taken = _names(new, _POSITIONAL)[len(_names(old, _POSITIONAL)) :] if item.kind is Kind.VAR_POSITIONAL else []
        for word in taken:
            yield Breach(
                f"{name}({word})", f"is new, and takes what callers gave through {star}{item.name}",
                f"take it out of {star}{item.name} inside the function, {_RAISE}",
            )  # fmt: skip


def _names(parameters: tuple[Parameter, ...], kinds: tuple[Kind, ...]) -> list[str]:
    return [item.name for item in parameters if item.kind in kinds]


def _required(name: str, old: tuple[Parameter, ...], new: tuple[Parameter, ...]) -> Iterator[Breach]:
    known = {item.name for item in old}
    positions = len(_names(old, _POSITIONAL))
    place = 0
    for item in new:
        is_positional = item.kind in _POSITIONAL
        replaces = is_positional and place < positions
        place += is_positional
        is_new = item.name not in known and not replaces
        if is_new and item.default is None and item.kind in (*_POSITIONAL, Kind.KEYWORD_ONLY):
            yield Breach(f"{name}({item.name})", "is new and required", f"give it a default, {_RAISE}")
