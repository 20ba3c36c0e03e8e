"""A result as Markdown tables, and which goals it meets. Everything that is said of a number comes from the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

OURS = "kernel_hub"
PEER = "kernels"

_KERNELS = {
    "small": "one build of a few files",
    "variants": "the same beside 40 compiled builds for other machines",
    "python": "a kernel of hundreds of Python files",
    "bundled": "the same with the bundle that `publish` writes beside such a build",
}


_STAGES = {
    "settings": "reading the settings",
    "machine": "describing the machine",
    "choice": "the remembered listing, trust, and choosing a build",
    "artifact": "looking whether every file is here",
    "verification": "verification, with what a stamp saves",
    "import": "importing the kernel",
}
_PACKAGES = {
    OURS: "kernel_hub",
    "packaging": "packaging, for versions",
    "others": "Python's own, as far as torch has not imported them",
}


def tables(result: Mapping[str, Any]) -> str:
    """The whole result."""
    sections = (
        ("Goals", _goals(result)),
        ("Import, in a fresh process", _imports(result)),
        ("Load, in a fresh process with torch imported", _loads(result)),
        ("Six processes at once, cold", _crowds(result)),
        ("Own time of a warm load by commit", _own(result)),
        ("Where the time goes", _parts(result)),
        ("Verification", _verifying(result)),
    )
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in sections if text)


def goals(result: Mapping[str, Any]) -> Iterator[tuple[str, str, float, bool]]:
    """Each goal: what, how far, the measured number, and whether it is met."""
    imports = {row["statement"]: row for row in result["imports"]}
    bare = imports["import {}"]["ratio"]["median"]
    yield "`import kernel_hub`, times faster than `import kernels`", "at least 10", bare, bare >= 10
    cold = _row(result, kernel="small", cache="cold", wish="version", delay_ms=50)["ratio"]["median"]
    yield "cold load at 50 ms a request, times faster", "at least 2.5", cold, cold >= 2.5
    own = result["own_time"][OURS]["own_ms"]["median"]
    yield "own time of a warm load by commit, import of kernel_hub included, ms", "below 5", own, own < 5
    call = result["own_time"][OURS]["own_call_ms"]["median"]
    yield "the same without the import, ms", "below 5", call, call < 5
    for row in result["verifying"]:
        rate = row["ratio"]["median"]
        yield f"verification against hashlib, {row['build']}", "at least 0.8", rate, rate >= 0.8


def machine(result: Mapping[str, Any]) -> str:
    """Where and with what it was measured, as one paragraph."""
    seen = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in seen["versions"].items())
    load = seen["load_average"]
    return (
        f"Measured on {result['date']}: {seen['cpus']} CPUs ({seen['cpu']}), {seen['system']}, {versions}. "
        f"One-minute load average {load['before']:.2g} before and {load['after']:.2g} after "
        f"(the benchmark itself is part of it)."
    )


def kernels(result: Mapping[str, Any]) -> str:
    """What the measured kernels are, as one sentence."""
    measured = {row["kernel"] for row in result["loads"]}
    return "; ".join(f"`{name}` is {text}" for name, text in _KERNELS.items() if name in measured) + "."


def _goals(result: Mapping[str, Any]) -> str:
    rows = [(what, wanted, f"{found:.3g}", "met" if met else "missed") for what, wanted, found, met in goals(result)]
    return _table(("goal", "wanted", "measured", ""), rows)


def _imports(result: Mapping[str, Any]) -> str:
    rows = []
    for row in result["imports"]:
        ours, theirs = row["statement"].format(OURS), row["statement"].format(PEER)
        rows.append((f"`{ours}` / `{theirs}`", _ms(row[OURS]), _ms(row[PEER]), _times(row["ratio"])))
    return _table(("statements", f"{OURS}, ms", f"{PEER}, ms", "ratio"), rows)


def _loads(result: Mapping[str, Any]) -> str:
    head = ("kernel", "files", "cache", "by", "delay, ms", f"{OURS}, ms", f"{PEER}, ms", "ratio", "call alone, ratio")
    rows = []
    for row in result["loads"]:
        rows.append(
            (
                row["kernel"],
                str(row["files"]),
                row["cache"],
                row["wish"],
                str(row["delay_ms"]),
                _ms(row[OURS]["whole_ms"]),
                _ms(row[PEER]["whole_ms"]),
                _times(row["ratio"]),
                _times(row["call_ratio"]),
                _asked(row[OURS]),
                _asked(row[PEER]),
            )
        )
    return _table((*head, f"requests, {OURS}", f"requests, {PEER}"), rows)


def _crowds(result: Mapping[str, Any]) -> str:
    rows = [
        (
            str(row["delay_ms"]),
            _ms(row[OURS]["wall_ms"]),
            _ms(row[PEER]["wall_ms"]),
            _times(row["ratio"]),
            _count(row[OURS]["requests"]),
            _count(row[PEER]["requests"]),
        )
        for row in result["crowds"]
    ]
    head = ("delay, ms", f"{OURS}, ms", f"{PEER}, ms", "ratio", f"requests, {OURS}", f"requests, {PEER}")
    return _table(head, rows)


def _own(result: Mapping[str, Any]) -> str:
    own = result["own_time"]
    rows = [
        (
            client,
            *(_ms(own[client][part]) for part in ("own_ms", "import_ms", "own_call_ms", "own_cpu_ms")),
            ", ".join(own[client]["http_libraries"]) or "none",
        )
        for client in (OURS, PEER)
    ]
    head = ("client", "import and call, ms", "import, ms", "call, ms", "CPU time, ms", "HTTP libraries")
    table = _table(head, rows)
    return f"{table}\n\nThe kernel's body itself, taken off above, takes {_ms(own['body_ms'])} ms."


def _parts(result: Mapping[str, Any]) -> str:
    """Empty for a result of before there were parts."""
    if "parts" not in result:
        return ""
    parts = result["parts"]
    call, http = parts["call"], parts["http"]
    warm = [(what, _ms(call[part])) for part, what in _STAGES.items()]
    rest = call["whole"]["median"] - sum(call[part]["median"] for part in _STAGES)
    warm += [("the rest", _short(rest)), ("the whole call", _ms(call["whole"]))]
    imports = [
        (f"{what} ({parts['modules'][package]} modules)", _ms(parts["imports"][package]))
        for package, what in _PACKAGES.items()
        if package in parts["imports"]
    ]
    cold = _row(result, kernel="small", cache="cold", wish="version", delay_ms=50)[OURS]
    series, whole = cold["series"]["median"], cold["whole_ms"]["median"]
    chain = [
        ("import of kernel_hub", _ms(cold["import_ms"])),
        ("import of the HTTP library of huggingface_hub", _ms(http["library"])),
        ("its session: more imports, and the certificates of the system", _ms(http["session"])),
        (f"{series:.0f} round trips in series, at 50 ms", _short(series * 50)),
    ]
    known = cold["import_ms"]["median"] + http["library"]["median"] + http["session"]["median"] + series * 50
    chain += [("the rest: answers on both sides, writing, and all of the above", _short(whole - known))]
    chain += [("the whole cold load by version", _ms(cold["whole_ms"]))]
    return "\n\n".join(
        (
            "A warm call by commit, stage by stage:",
            _table(("stage", "ms"), warm),
            f"A kernel that registers operators has torch name all of its own first, which takes "
            f"{_ms(call['operators'])} ms of its import. A `pyproject.toml` in the working folder is read with the settings: for "
            f"this project's, {_ms(call['settings of a project'])} ms.",
            "The import of `from kernel_hub import get_kernel` after torch, by package, as `-X importtime` counts it:",
            _table(("package", "ms"), imports),
            "The first row of cold loads at 50 ms above, with what was measured apart taken from the whole:",
            _table(("part", "ms"), chain),
        )
    )


def _verifying(result: Mapping[str, Any]) -> str:
    rows = [
        (
            row["build"],
            _count(row["verify_mb_per_s"]),
            _count(row["hashlib_mb_per_s"]),
            _times(row["ratio"]),
            _times(row["same_digests_ratio"]) if "same_digests_ratio" in row else "",
        )
        for row in result["verifying"]
    ]
    head = ("build", "verify, MB/s", "hashlib, MB/s", "ratio")
    if all(row[-1] for row in rows):
        return _table((*head, "ratio if hashlib makes the source's ids, too"), rows)
    return _table(head, [row[:-1] for row in rows])


def _row(result: Mapping[str, Any], **wanted: object) -> Mapping[str, Any]:
    return next(row for row in result["loads"] if all(row[key] == value for key, value in wanted.items()))


def _ms(spread: Mapping[str, float]) -> str:
    return f"{_short(spread['median'])} ({_short(spread['low'])} to {_short(spread['high'])})"


def _times(spread: Mapping[str, float]) -> str:
    return f"**{spread['median']:.2f}** ({spread['low']:.2f} to {spread['high']:.2f})"


def _count(spread: Mapping[str, float]) -> str:
    return f"{spread['median']:.0f}"


def _asked(figures: Mapping[str, Any]) -> str:
    return f"{_count(figures['requests'])}, {_count(figures['series'])} in series"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
