"""Compiles this kernel's Triton functions for every chip and prints one JSON object a line. A script: see test_aot.py."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from registry._harness import aot

PACKAGE = Path(__file__).resolve().parents[1] / "torch-ext" / "paged_attention"
ABSENT = {"slopes_pointer", "sinks_pointer"}
FLOATS = ("scale_log2", "softcap_log2")
POINTERS = {
    "lse_pointer": "*fp32",
    "parts_pointer": "*fp32",
    "part_lse_pointer": "*fp32",
    "first_lse_pointer": "*fp32",
    "second_lse_pointer": "*fp32",
    "q_starts_pointer": "*i32",
    "k_begins_pointer": "*i32",
    "k_lens_pointer": "*i32",
    "pages_pointer": "*i32",
    "slots_pointer": "*i64",
    "pairs_pointer": "*i64",
}


def triton_modules() -> tuple[ModuleType, ModuleType]:
    """Import the two modules with kernels alone: compiling needs no operator."""
    package = ModuleType("paged_attention_sources")
    package.__path__ = [str(PACKAGE)]
    sys.modules[package.__name__] = package
    return tuple(importlib.import_module(f"{package.__name__}.{name}") for name in ("triton_attend", "triton_caches"))


def types_of(function: Any) -> dict[str, str]:
    """Return Triton types by what the parameters are called."""
    types = {}
    for name in function.arg_names:
        if name.isupper() or name in ABSENT:
            continue
        if name.endswith("_pointer"):
            types[name] = POINTERS.get(name, "*bf16")
        else:
            types[name] = "fp32" if name in FLOATS else "i32"
    return types


def compile_one(function: Any, name: str, chip: aot.Chip, constants: dict[str, Any], warps: int, stages: int) -> None:
    given = {key: value for key, value in constants.items() if key in function.arg_names}
    given |= {absent: None for absent in ABSENT if absent in function.arg_names}
    types = types_of(function)
    divisible = frozenset(key for key in types if key.endswith(("_pointer", "_stride")) or key == "head_dim")
    compiled = aot.compile_kernel(name, function, chip, types, given, divisible, warps, stages)
    print(json.dumps(compiled.as_json()), flush=True)


def main() -> None:
    attend, caches = triton_modules()
    options = {"HAS_LEFT": True, "HAS_RIGHT": True, "HAS_SOFTCAP": False, "HAS_SLOPES": False, "HAS_SINKS": False}
    for chip in aot.CHIPS:
        if len(sys.argv) > 1 and chip.name not in sys.argv[1:]:
            continue
        for rows, kind in ((16, "decode"), (512, "prefill")):
            for head_dim in (64, 128, 256):
                cut = attend.configuration(head_dim, 2, "amd" if chip.backend == "hip" else "other", rows)
                blocks = {"BLOCK_M": cut.block_m, "BLOCK_N": cut.block_n, "BLOCK_D": head_dim, "WHOLE_D": True}
                constants = {**options, **blocks, "PRECISION": "ieee"}
                compile_one(attend.attend_kernel, f"{kind}_d{head_dim}", chip, constants, cut.warps, cut.stages)
        compile_one(attend.join_kernel, "join", chip, {"HAS_SINKS": False, "BLOCK_D": 128}, 1, 2)
        compile_one(caches.write_kernel, "write", chip, {"BLOCK": caches.ELEMENTS}, 4, 2)
        compile_one(caches.copy_kernel, "copy", chip, {"BLOCK": caches.ELEMENTS}, 4, 2)
        compile_one(caches.merge_kernel, "merge", chip, {"BLOCK_D": 128}, 1, 2)


if __name__ == "__main__":
    main()
