"""kernel_hub: resolve, select, fetch, verify and import compute kernels. The public names, loaded on first use."""

from __future__ import annotations

__version__ = "0.1.0"
