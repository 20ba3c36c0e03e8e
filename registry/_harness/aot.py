"""Compiles Triton kernels ahead of time for chips that are not here, and reads what the compiler made of them.

What this shows: the kernel compiles for the chip, keeps its values in registers, fits the chip's shared memory and uses
its matrix instructions. What it cannot show: that results are right on the chip, that there is no race, or any speed.
Runs in a process of its own without TRITON_INTERPRET, because interpretation is decided when Triton is imported.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@dataclass(frozen=True, slots=True)
class Chip:
    """A compilation target with the limit of its shared memory and the instructions that multiply matrices."""

    name: str
    backend: str
    arch: int | str
    warp: int
    shared_bytes: int
    matrix_instruction: str


CHIPS = (
    Chip("sm_80", "cuda", 80, 32, 163 << 10, r"mma\.sync"),
    Chip("sm_90", "cuda", 90, 32, 227 << 10, r"wgmma\.mma_async|mma\.sync"),
    Chip("sm_100", "cuda", 100, 32, 227 << 10, r"tcgen05\.mma|mma\.sync"),
    Chip("sm_120", "cuda", 120, 32, 99 << 10, r"mma\.sync"),
    Chip("gfx942", "hip", "gfx942", 64, 64 << 10, r"v_mfma"),
    Chip("gfx950", "hip", "gfx950", 64, 160 << 10, r"v_mfma"),
)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What one kernel became on one chip. `spilled` counts stack bytes (NVIDIA) or spilled vector registers (AMD).

    `matrix_instructions` counts those in the text, and `matrix_instruction` names the kinds found.
    """

    kernel: str
    chip: str
    registers: int
    spilled: int
    shared_bytes: int
    shared_limit_bytes: int
    matrix_instructions: int
    matrix_instruction: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def compile_kernel(
    name: str,
    function: Any,
    chip: Chip,
    types: Mapping[str, str],
    constants: Mapping[str, Any],
    divisible: frozenset[str],
    warps: int,
    stages: int,
) -> Compiled:
    """Compile `function` for a chip.

    Args:
        name: what to call it in the result.
        function: a function decorated with triton.jit.
        types: Triton's type of every parameter that is not in `constants`.
        constants: the values of the others.
        divisible: parameters known to be multiples of 16, as addresses and most strides are at run time.
        warps: warps of a program.
        stages: depth of software pipelining.
    """
    signature = {parameter: types.get(parameter, "constexpr") for parameter in function.arg_names}
    attributes = {
        (index,): [["tt.divisibility", 16]]
        for index, parameter in enumerate(function.arg_names)
        if parameter in divisible and parameter in types
    }
    source = ASTSource(function, signature, constexprs=dict(constants), attrs=attributes)
    target = GPUTarget(chip.backend, chip.arch, chip.warp)
    compiled = triton.compile(source, target=target, options={"num_warps": warps, "num_stages": stages})
    if chip.backend == "cuda":
        registers, spilled = _nvidia_resources(compiled.asm["cubin"])
        text = compiled.asm["ptx"]
    else:
        text = compiled.asm["amdgcn"]
        registers = _amd_number(text, "vgpr_count")
        spilled = _amd_number(text, "vgpr_spill_count")
    found = re.findall(chip.matrix_instruction, text)
    return Compiled(
        kernel=name,
        chip=chip.name,
        registers=registers,
        spilled=spilled,
        shared_bytes=compiled.metadata.shared,
        shared_limit_bytes=chip.shared_bytes,
        matrix_instructions=len(found),
        matrix_instruction=" and ".join(sorted(set(found))),
    )


def _nvidia_resources(cubin: bytes) -> tuple[int, int]:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listing = subprocess.run([tool, "-res-usage", file.name], check=True, capture_output=True, text=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", listing)
    if found is None:
        raise ValueError(f"no resource usage in {listing!r}")
    return int(found[1]), int(found[2])


def _amd_number(text: str, key: str) -> int:
    found = re.search(rf"\.{key}:\s+(\d+)", text)
    if found is None:
        raise ValueError(f"no .{key} in the assembly")
    return int(found[1])
