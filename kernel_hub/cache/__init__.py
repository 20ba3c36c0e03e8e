"""The cache of kernel files: the Hugging Face cache, written safely and read with care."""

from __future__ import annotations

from kernel_hub.cache.folder import Cache

__all__ = ["Cache"]
