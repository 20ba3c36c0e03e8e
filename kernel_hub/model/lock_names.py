"""The names of lock files. On its own, because every load looks for them and few find one."""

from __future__ import annotations

OWN = "kernel-hub.lock"
PEER = "kernels.lock"
