"""What this machine could do at best, measured in the same run as whatever is compared with it."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("roofline.cpp")


@dataclass(frozen=True, slots=True)
class Roofline:
    """Best of several probes. `bfloat16_flops` is 0 on CPUs without such products."""

    threads: int
    float32_flops: float
    bfloat16_flops: float
    read_bytes_per_s: float
    read_working_set_bytes: int


@functools.cache
def _library() -> ctypes.CDLL:
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    library = Path(tempfile.gettempdir()) / f"kernel-dev-builds-{os.getuid()}" / f"roofline-{digest}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        flags = Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split()
        wanted = {"avx2": "-mavx2", "fma": "-mfma", "avx512f": "-mavx512f", "avx512_bf16": "-mavx512bf16"}
        targets = [option for flag, option in wanted.items() if flag in flags]
        staged = library.with_suffix(f".{os.getpid()}")
        subprocess.run(
            ["g++", "-std=c++17", "-O3", *targets, "-shared", "-fPIC", "-pthread", str(SOURCE), "-o", str(staged)],
            check=True,
        )
        staged.rename(library)
    loaded = ctypes.CDLL(str(library))
    for name in ("peak_float32", "peak_bfloat16"):
        getattr(loaded, name).restype = ctypes.c_double
        getattr(loaded, name).argtypes = [ctypes.c_int, ctypes.c_int64]
    loaded.read_bandwidth.restype = ctypes.c_double
    loaded.read_bandwidth.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int64]
    return loaded


def read_rate(memory: torch.Tensor) -> float:
    """Read the tensor's memory once, on torch's number of threads, and return bytes a second."""
    return _library().read_bandwidth(torch.get_num_threads(), memory.data_ptr(), memory.numel() * memory.element_size())


def measure(read_working_set_bytes: int = 256 << 20, repeats: int = 5, threads: int | None = None) -> Roofline:
    """Probe peak arithmetic and read bandwidth with `threads` threads (default: torch's), each the best of `repeats`."""
    threads = torch.get_num_threads() if threads is None else threads
    library = _library()
    memory = torch.ones(read_working_set_bytes // 4)
    rounds = 2_000_000
    return Roofline(
        threads=threads,
        float32_flops=max(library.peak_float32(threads, rounds) for _ in range(repeats)),
        bfloat16_flops=max(library.peak_bfloat16(threads, rounds) for _ in range(repeats)),
        read_bytes_per_s=max(
            library.read_bandwidth(threads, memory.data_ptr(), read_working_set_bytes) for _ in range(repeats)
        ),
        read_working_set_bytes=read_working_set_bytes,
    )
