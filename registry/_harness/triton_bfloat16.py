"""Makes Triton's interpreter compute bfloat16 as the hardware does. For tests only; pinned to Triton 3.9.

The interpreter keeps bfloat16 as 16-bit unsigned integers and hands those integers to numpy, so products and sums of
bfloat16 are those of the bit patterns, and a conversion from float32 truncates. Within `corrected_bfloat16()` every
arithmetic operation widens its operands to float32 and rounds the result to nearest, ties to even; a dot product
multiplies the widened operands with a float32 accumulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.runtime import interpreter

SUPPORTED_TRITON = "3.9."

COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)


def widen(bits: np.ndarray) -> np.ndarray:
    """Return the float32 values of bfloat16 bit patterns."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: np.ndarray) -> np.ndarray:
    """Return the bfloat16 bit patterns nearest to the values; ties go to the even pattern, NaN stays NaN."""
    values = np.asarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def _is_bfloat16(handle: Any) -> bool:
    return handle.dtype.scalar == tl.bfloat16


def _values(handle: Any) -> np.ndarray:
    return widen(handle.data) if _is_bfloat16(handle) else handle.data


@contextmanager
def corrected_bfloat16() -> Iterator[None]:
    """Replace the interpreter's arithmetic for the duration of a `with` block."""
    if not triton.__version__.startswith(SUPPORTED_TRITON):
        raise RuntimeError(f"the correction is written for Triton {SUPPORTED_TRITON}x, not {triton.__version__}")
    builder = interpreter.InterpreterBuilder
    originals = {
        name: getattr(builder, name) for name in ("binary_op", "unary_op", "cast_impl", "create_fp_to_fp", "create_dot")
    }

    def binary_op(self: Any, left: Any, right: Any, operation: Any) -> Any:
        if not (_is_bfloat16(left) or _is_bfloat16(right)):
            return originals["binary_op"](self, left, right, operation)
        output = operation(_values(left), _values(right))
        if operation in COMPARISONS:
            return interpreter.TensorHandle(output, tl.int1)
        return interpreter.TensorHandle(narrow(output), tl.bfloat16)

    def unary_op(self: Any, argument: Any, operation: Any) -> Any:
        if not _is_bfloat16(argument):
            return originals["unary_op"](self, argument, operation)
        return interpreter.TensorHandle(narrow(operation(_values(argument))), tl.bfloat16)

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        if not _is_bfloat16(source) and target.scalar != tl.bfloat16:
            return originals["cast_impl"](self, source, target)
        values = _values(source)
        if target.scalar == tl.bfloat16:
            return interpreter.TensorHandle(narrow(values), tl.bfloat16)
        return interpreter.TensorHandle(values.astype(interpreter._get_np_dtype(target)), target.scalar)

    def create_fp_to_fp(self: Any, source: Any, target: Any, rounding: Any) -> Any:
        if _is_bfloat16(source) or target.scalar == tl.bfloat16:
            return cast_impl(self, source, target)
        return originals["create_fp_to_fp"](self, source, target, rounding)

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        if not (_is_bfloat16(a) or _is_bfloat16(b)):
            return originals["create_dot"](self, a, b, d, precision, imprecise)
        product = np.matmul(_values(a), _values(b), dtype=np.float32) + d.data
        return interpreter.TensorHandle(product, d.dtype.scalar)

    replacements = {
        "binary_op": binary_op,
        "unary_op": unary_op,
        "cast_impl": cast_impl,
        "create_fp_to_fp": create_fp_to_fp,
        "create_dot": create_dot,
    }
    try:
        for name, function in replacements.items():
            setattr(builder, name, function)
        yield
    finally:
        for name, function in originals.items():
            setattr(builder, name, function)
