"""Write the reference pages that are generated from the code. `--check` only compares.

python docs/generate.py [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from threat_model import page as threat_model_page

from kernel_hub.cli.reference import page as cli_page
from kernel_hub.select import DECISION_TABLE, RANKING

PAGES = Path(__file__).parent


def selection_page() -> str:
    """docs/reference/selection.md."""
    rules = "\n".join(
        f"| {number} | {rule.reason.value} | {rule.applies_to} | {rule.rejects} |"
        for number, rule in enumerate(DECISION_TABLE, start=1)
    )
    ranks = "\n".join(f"{number}. {text}" for number, text in enumerate(RANKING, start=1))
    return f"""# How a build is selected

<!-- Generated from kernel_hub/select.py by docs/generate.py. -->

A kernel's builds are the folders below `build/` of one commit; each folder's name (its label) says what it runs on.
`kernel-hub explain org/name` shows every build with its verdict on this machine, or with `--host FILE` on another one.

## By label

For a compiled build, the first row that matches rejects it; a build that no row rejects is accepted.

| # | axis | applies to | rejects when |
|---|---|---|---|
{rules}

A build without compiled code (`torch-<backend>`) is accepted if `<backend>` is the host's backend, whether torch is
installed or not; `torch-universal` always. On CANN both `torch-cann` and `torch-npu` are taken.

A folder whose name is no label is listed too: "not understood", or "needs a newer kernel_hub" if it has the shape of a
label with a part that this release does not know.

## Order of the accepted

Best first:

{ranks}

Builds that are still equal are ordered by GPU code (machine code for every device, then PTX, then architectures that were
not understood) and then by the label's text, so the order never depends on the listing.

## By GPU architecture

Architectures stand in a build's `metadata.json`. They are read before anything large is downloaded, and only for builds
that were accepted by label. Every visible device must be able to run the build, or the one named by `device=`.

| text | runs on |
|---|---|
| `M.m` | devices of the same major version with minor version at least m |
| `M.ma` | exactly device M.m |
| `M.mf` | devices of the same major version with minor version at least m |
| `...+PTX` | also every device that is not older than M.m (the driver compiles it on first use) |
| `gfx...` | exactly that target |
| anything else | allowed, with a note |

## Which backend a machine has

The one that the installed torch was built for, except that a machine where GPUs were looked for and none was found takes
CPU builds. `backend="cuda"` (or another name) asks for that backend whether a device is visible or not.
"""


def performance_page() -> str:
    """docs/explanation/performance.md."""
    # The benchmarks lie beside the package, not in it.
    sys.path.insert(0, str(PAGES.parent))
    from benchmarks.loader import report

    result = json.loads((PAGES.parent / "benchmarks" / "results" / "loader.json").read_text(encoding="utf-8"))
    own = result["own_time"]["kernel_hub"]
    return f"""# How fast loading is

<!-- Generated from benchmarks/results/loader.json by docs/generate.py. -->

Loading is measured beside Hugging Face's `kernels`, in one run on one machine: in each round both clients do the same thing
once, in an order that turns around, and a ratio is taken within a round. Above 1, kernel_hub is faster. A figure is a median
with its quartiles; with fewer than four rounds, the least and the greatest. Before anything is timed, and after every load, it
is checked that both loaded the same bytes and computed the same; otherwise nothing is reported.

The Hub is `kernel-hub serve`'s application in a process of its own on the same machine. "Delay" is waited out there before
every answer, and stands for the network. Every load is a process of its own, in which torch is imported (and its garbage
collected) before the clock starts; the time is that of importing the client and of its one call. "In series" is the longest
chain of requests that had to wait for one another. "Stale" is a warm cache whose references are older than the freshness time.
kernel_hub is lazy: a bare `import kernel_hub` imports next to nothing, and what the first call needs is imported with it. So
the second line of the import table is the one that a program sees.

{report.kernels(result)}

{report.machine(result)} Other work on the machine makes every figure larger and wider, and ratios less so.

```sh
python -m benchmarks.loader --out benchmarks/results/loader.json && python docs/generate.py
```

{report.tables(result)}

Of the own time of a warm load by commit, {own["import_ms"]["median"]:.3g} ms are the import of kernel_hub's modules, and
{own["own_call_ms"]["median"]:.3g} ms the call. Nothing is asked, and no HTTP library is imported. A cold load also pays for
huggingface_hub's HTTP library, as the peer does in its own import, and for as many round trips as the table says are in
series. A build of small files whose source names them as git does needs two digests of each, of which plain hashlib makes one.
"""


def registry_page() -> str:
    """registry/README.md."""
    # The kernels lie beside the package, not in it.
    sys.path.insert(0, str(PAGES.parent))
    from registry import index

    return index.page()


PAGES_BY_NAME = {
    "../registry/README.md": registry_page,
    "explanation/performance.md": performance_page,
    "explanation/threat-model.md": threat_model_page,
    "reference/cli.md": cli_page,
    "reference/selection.md": selection_page,
}


def main(arguments: list[str]) -> int:
    """Write or compare the pages; 1 if `--check` finds one out of date."""
    stale = []
    for name, make in PAGES_BY_NAME.items():
        path = PAGES / name
        content = make()
        if "--check" in arguments:
            if not path.exists() or path.read_text(encoding="utf-8") != content:
                stale.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    for name in stale:
        print(f"docs/{name} is out of date: run python docs/generate.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
