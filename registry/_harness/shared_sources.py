"""Sources that two kernels share, and the check that their copies are equal.

A build takes nothing from outside its kernel's folder, so what `paged-attention` shares with `flash-attn` lies in both.
The copy in `flash-attn` is the one to edit; `python -m registry._harness.shared_sources --sync` writes the other.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

REGISTRY = Path(__file__).resolve().parents[1]

NATIVE = (
    "capability.cpp",
    "capability.h",
    "compute.h",
    "decode_block.h",
    "elements.h",
    "forward.cpp",
    "forward.h",
    "forward_rows.h",
    "kernel_interface.h",
    "pack.h",
    "parallel.h",
    "vector_avx2.h",
    "vector_avx512.h",
    "vector_portable.h",
)
PYTHON = ("errors.py", "kvcache.py", "operands.py", "validation.py")

PAIRS = [(f"flash-attn/csrc/{name}", f"paged-attention/csrc/{name}") for name in NATIVE] + [
    (f"flash-attn/torch-ext/flash_attn/{name}", f"paged-attention/torch-ext/paged_attention/{name}") for name in PYTHON
]


def differing(registry: Path = REGISTRY) -> list[tuple[Path, Path]]:
    """Return the (source, copy) pairs that are not equal; a missing copy is not."""
    pairs = [(registry / source, registry / copy) for source, copy in PAIRS]
    return [(source, copy) for source, copy in pairs if not copy.is_file() or source.read_bytes() != copy.read_bytes()]


def synchronise(registry: Path = REGISTRY) -> list[Path]:
    """Overwrite the copies that differ and return them."""
    changed = differing(registry)
    for source, copy in changed:
        copy.write_bytes(source.read_bytes())
    return [copy for _, copy in changed]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sync", action="store_true", help="overwrite the copies")
    if parser.parse_args().sync:
        for copy in synchronise():
            print(copy.relative_to(REGISTRY))
        return 0
    pairs = differing()
    for source, copy in pairs:
        print(f"{copy.relative_to(REGISTRY)} differs from {source.relative_to(REGISTRY)}", file=sys.stderr)
    return 1 if pairs else 0


if __name__ == "__main__":
    sys.exit(main())
