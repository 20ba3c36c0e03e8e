"""One load in a fresh process: torch first, then the clock, then the client's import and its one call.

    load_once.py CLIENT REPO version|revision VALUE [wait] [without-torch]

`body` as the client imports the build's folder REPO with Python's own import system: what any loader must pay.
With `wait`, the load starts when a line arrives on stdin. The answer is one line of JSON.
"""

from __future__ import annotations

import sys
import time
from types import ModuleType
from typing import Any


def main(client: str, repo: str, kind: str, value: str, *options: str) -> None:
    """Load, then say how long it took and what was loaded."""
    # Whoever loads a kernel has torch already, so its import counts for nobody.
    import gc
    import importlib.util

    if "without-torch" not in options:
        import torch  # noqa: F401
    # Torch leaves so many objects that the next full collection takes tens of milliseconds. It would hit whichever client
    # happens to make the object that sets it off, so it takes place now.
    gc.collect()

    wish: dict[str, Any] = {kind: int(value) if kind == "version" else value}
    if "wait" in options:
        print("ready", flush=True)
        sys.stdin.readline()
    begin_cpu_ns = time.process_time_ns()
    begin_ns = time.perf_counter_ns()
    if client == "kernel_hub":
        from kernel_hub import get_kernel

        imported_ns = time.perf_counter_ns()
        module = get_kernel(repo, **wish)
    elif client == "kernels":
        from kernels import get_kernel

        imported_ns = time.perf_counter_ns()
        module = get_kernel(repo, **wish)
    else:
        imported_ns = begin_ns
        spec = importlib.util.spec_from_file_location("body_of_the_kernel", f"{repo}/__init__.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    end_ns = time.perf_counter_ns()
    cpu_ns = time.process_time_ns() - begin_cpu_ns
    _answer(module, {"import_ns": imported_ns - begin_ns, "call_ns": end_ns - imported_ns, "cpu_ns": cpu_ns})


def _answer(module: ModuleType, times: dict[str, int]) -> None:
    http = sorted({"huggingface_hub", "httpx", "httpx2", "requests"} & set(sys.modules))
    # Imported after the clock has stopped, because a client that needs them must pay for them itself.
    import hashlib
    import json
    from pathlib import Path

    folder = Path(str(module.__file__)).parent
    content = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
            content.update(path.read_bytes())
    answer = {
        **times,
        "result": {"axpy": module.axpy(2.0, [1.0, 2.0], [10.0, 20.0]), "origin": module.origin()},
        "folder": str(folder),
        "content": content.hexdigest(),
        "http_libraries": http,
    }
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
