"""One warm load by commit, or what a first request needs, in a fresh process and part by part.

    in_parts.py call REPO COMMIT PROJECT
    in_parts.py http

As in `load_once`, torch is there before the clock starts. The answer is one line of JSON: nanoseconds by part.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Where a stage of the loader is looked up when it is called.
STAGES = {
    "settings": "kernel_hub.api:load_settings",
    "machine": "kernel_hub.api:detect",
    "choice": "kernel_hub.planner:Planner.plan",
    "artifact": "kernel_hub.loader:fetch",
    "verification": "kernel_hub.loader:verify",
    "import": "kernel_hub.loader:import_artifact",
}


def main(action: str, *arguments: str) -> None:
    """Measure, then say so."""
    import torch

    gc.collect()
    taken_ns = _call(torch, *arguments) if action == "call" else _http()
    print(json.dumps(taken_ns), flush=True)


def _call(torch: Any, repo: str, commit: str, project: str) -> dict[str, int]:
    from kernel_hub import get_kernel

    taken_ns: dict[str, int] = {}
    for part, place in STAGES.items():
        _watch(part, place, taken_ns)
    begin_ns = time.perf_counter_ns()
    get_kernel(repo, revision=commit)
    taken_ns["whole"] = time.perf_counter_ns() - begin_ns
    settings = importlib.import_module("kernel_hub.settings")
    taken_ns["settings of a project"] = _timed(lambda: settings.load_settings(folder=Path(project)))
    taken_ns["operators"] = _timed(torch._C._dispatch_get_all_op_names)
    return taken_ns


def _http() -> dict[str, int]:
    importlib.import_module("kernel_hub.api")
    library = _timed(lambda: importlib.import_module("huggingface_hub.utils._http"))
    session = importlib.import_module("huggingface_hub.utils").get_session
    return {"library": library, "session": _timed(session)}


def _watch(part: str, place: str, taken_ns: dict[str, int]) -> None:
    module, _, path = place.partition(":")
    owner, _, name = path.rpartition(".")
    holder: Any = importlib.import_module(module)
    if owner:
        holder = getattr(holder, owner)
    call = getattr(holder, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        begin_ns = time.perf_counter_ns()
        try:
            return call(*args, **kwargs)
        finally:
            taken_ns[part] = taken_ns.get(part, 0) + time.perf_counter_ns() - begin_ns

    setattr(holder, name, watched)


def _timed(call: Callable[[], object]) -> int:
    begin_ns = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - begin_ns


if __name__ == "__main__":
    main(*sys.argv[1:])
