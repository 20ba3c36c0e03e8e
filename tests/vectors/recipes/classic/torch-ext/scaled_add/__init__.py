"""a * x + y through torch's C++ interface."""

from ._ops import ops

__all__ = ["scaled_add"]


def scaled_add(a, x, y):
    """The scaled sum of two tensors of one shape."""
    return ops.scaled_add(a, x, y)
