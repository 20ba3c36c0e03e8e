"""Operands in the form that the operators take them."""

from typing import Optional

import torch

from . import operators
from .errors import UnsupportedFeatureError


def require_device(q: torch.Tensor) -> None:
    if q.device.type not in operators.DEVICE_TYPES and q.device.type != "meta":
        served = " or ".join(operators.DEVICE_TYPES)
        raise UnsupportedFeatureError(f"this build computes on {served} tensors, got {q.device}")


def rows_dense(tensor: torch.Tensor) -> torch.Tensor:
    """The kernels step freely over every dimension but the last."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def per_head_floats(tensor: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    return None if tensor is None else tensor.to(torch.float32).contiguous()


def int32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.int32).contiguous()
