"""Compiles this kernel's Triton functions for every chip and prints one JSON object a line. A script: see test_aot.py.

`python -m registry.flash-attn.tests.aot_kernels --write` also keeps them in benchmarks/compiled.json, for the card.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from registry._harness import aot

PACKAGE = Path(__file__).resolve().parents[1] / "torch-ext" / "flash_attn"
COMPILED = PACKAGE.parents[1] / "benchmarks" / "compiled.json"
LIMITS = {"HAS_LEFT": False, "HAS_RIGHT": True, "HAS_SOFTCAP": False, "HAS_SLOPES": False, "HAS_SINKS": False}


def triton_modules() -> tuple[ModuleType, ModuleType]:
    """Import the two modules with kernels alone: compiling needs no operator."""
    package = ModuleType("flash_attn_sources")
    package.__path__ = [str(PACKAGE)]
    sys.modules[package.__name__] = package
    return tuple(
        importlib.import_module(f"flash_attn_sources.{name}") for name in ("triton_forward", "triton_backward")
    )


def types_of(function: Any, element: str, absent: set[str]) -> dict[str, str]:
    """Return Triton types by what the parameters are called."""
    types = {}
    for name in function.arg_names:
        if name.isupper() or name in absent:
            continue
        if name in ("lse_pointer", "delta_pointer", "slopes_pointer", "sinks_pointer"):
            types[name] = "*fp32"
        elif name.endswith(("starts_pointer", "begins_pointer", "lens_pointer", "pages_pointer")):
            types[name] = "*i32"
        elif name.endswith("_pointer"):
            types[name] = f"*{element}"
        elif name in ("scale_log2", "softcap_log2", "softmax_scale"):
            types[name] = "fp32"
        else:
            types[name] = "i32"
    return types


def compile_one(module: ModuleType, kernel: str, chip: aot.Chip, head_dim: int, varlen: bool) -> aot.Compiled:
    function = getattr(module, kernel)
    gpu_family = "amd" if chip.backend == "hip" else "other"
    if kernel == "forward_kernel":
        cut = module.configuration(head_dim, 2, gpu_family)
    else:
        cut = module.configurations(head_dim, 2, gpu_family)[kernel == "rows_kernel"]
    absent = {"slopes_pointer", "sinks_pointer", "pages_pointer"}
    if not varlen:
        absent |= {"q_starts_pointer", "k_begins_pointer", "k_lens_pointer"}
    constants: dict[str, Any] = {
        **LIMITS,
        "VARLEN": varlen,
        "PAGED": False,
        "BLOCK_M": cut.block_m,
        "BLOCK_N": cut.block_n,
        "BLOCK_D": head_dim,
        "WHOLE_D": True,
        "PRECISION": "ieee",
        **dict.fromkeys(absent),
    }
    constants = {name: value for name, value in constants.items() if name in function.arg_names}
    types = types_of(function, "bf16", absent)
    divisible = frozenset(name for name in types if name.endswith(("_pointer", "_stride")) or name == "head_dim")
    name = f"{kernel.removesuffix('_kernel')}_d{head_dim}{'_varlen' if varlen else ''}"
    return aot.compile_kernel(name, function, chip, types, constants, divisible, cut.warps, cut.stages)


def main() -> None:
    forward, backward = triton_modules()
    wanted = set(sys.argv[1:]) - {"--write"}
    rows = []

    def keep(compiled: aot.Compiled) -> None:
        rows.append(compiled.as_json())
        print(json.dumps(rows[-1]), flush=True)

    for chip in aot.CHIPS:
        if wanted and chip.name not in wanted:
            continue
        for head_dim in (64, 128, 256):
            keep(compile_one(forward, "forward_kernel", chip, head_dim, False))
            for kernel in ("keys_kernel", "rows_kernel"):
                keep(compile_one(backward, kernel, chip, head_dim, False))
        keep(compile_one(forward, "forward_kernel", chip, 128, True))
    if "--write" in sys.argv:
        COMPILED.write_text(json.dumps({"triton": aot.triton.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
