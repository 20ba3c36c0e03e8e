"""ROCm in builds: which architectures a component is compiled for, and hipcc's options. Pure.

Repository format, section (e): the architectures that builds are made for, and that `rocm-archs` is intersected with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# Sources in CUDA's dialect are HIP's as well, as far as they use what both have.
HIP_SUFFIXES = frozenset({".cu", ".hip"})
_ARCHS = (
    "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101", "gfx1200", "gfx1201",
)  # fmt: skip


def chosen_archs(asked: Sequence[str]) -> tuple[str, ...]:
    """What a component is compiled for; empty if nothing of what it asks for is made.

    Args:
        asked: `rocm-archs` of the recipe; empty for all.
    """
    return tuple(arch for arch in _ARCHS if not asked or arch in asked)


def device_options(archs: Iterable[str]) -> tuple[str, ...]:
    """hipcc's options for device code; they come before the source, to which they say what it is."""
    return "-x", "hip", "-D__HIP_PLATFORM_AMD__=1", *(f"--offload-arch={arch}" for arch in archs)
