"""Attention over a paged key/value cache: native on CPUs, Triton on GPUs, one interface for both."""

from .caches import copy_blocks, merge_state, reshape_and_cache
from .errors import UnsupportedFeatureError
from .interface import paged_attention
from .kvcache import flash_attn_with_kvcache

__all__ = [
    "UnsupportedFeatureError",
    "copy_blocks",
    "flash_attn_with_kvcache",
    "merge_state",
    "paged_attention",
    "reshape_and_cache",
]
