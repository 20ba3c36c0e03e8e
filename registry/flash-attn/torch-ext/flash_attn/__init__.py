"""Exact attention with FlashAttention-2's functions: native on CPUs, Triton on GPUs, one interface for both."""

from .deferral import implementation, use_implementation
from .errors import UnsupportedFeatureError
from .interface import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
)
from .kvcache import flash_attn_with_kvcache

__all__ = [
    "UnsupportedFeatureError",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "implementation",
    "use_implementation",
]
