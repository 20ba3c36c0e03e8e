"""What else computes attention on a CPU, as contestants: other runtimes, and torch's compiled formulations.

A runtime that is not installed (extra `bench`) is left out, and `versions` says so. Operands are converted and laid out
before the clock starts; what a runtime converts inside (OpenVINO: float32 operands, bfloat16 products) is part of it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from registry._harness import shapes

RUNTIMES = ("onnxruntime", "openvino")
NOT_INSTALLED = "not installed"


def versions() -> dict[str, str]:
    """Return the runtimes' versions; one that cannot be imported is not installed."""
    return {name: importlib.metadata.version(name) if is_installed(name) else NOT_INSTALLED for name in RUNTIMES}


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def onnxruntime_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> Callable[[], torch.Tensor] | None:
    """onnxruntime's MultiHeadAttention; None where it is not installed or does not compute this element type."""
    if q.dtype != torch.float32 or not (is_installed("onnxruntime") and is_installed("onnx")):
        return None
    import onnxruntime
    from onnx import TensorProto, helper

    batch, length, heads, head_dim = q.shape
    shape = [batch, length, heads * head_dim]
    names = ["query", "key", "value"]
    node = helper.make_node(
        "MultiHeadAttention", names, ["out"], domain="com.microsoft", num_heads=heads, unidirectional=int(causal)
    )
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in [*names, "out"]]
    graph = helper.make_graph([node], "attention", values[:3], values[3:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {name: tensor.reshape(shape).contiguous().numpy() for name, tensor in zip(names, (q, k, v))}
    return lambda: torch.from_numpy(session.run(None, feed)[0]).view(batch, length, heads, head_dim)


def openvino_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> Callable[[], torch.Tensor] | None:
    """OpenVINO's ScaledDotProductAttention; None where it is not installed or does not compute this element type."""
    if q.dtype not in (torch.float32, torch.bfloat16) or not is_installed("openvino"):
        return None
    import numpy
    import openvino
    from openvino import opset13

    arrays = [tensor.transpose(1, 2).float().contiguous().numpy() for tensor in (q, k, v)]
    parameters = [opset13.parameter(list(array.shape), numpy.float32) for array in arrays]
    attention = opset13.scaled_dot_product_attention(*parameters, causal=causal)
    precision = "bf16" if q.dtype == torch.bfloat16 else "f32"
    compiled = openvino.Core().compile_model(
        openvino.Model([attention], parameters),
        "CPU",
        {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": torch.get_num_threads()},
    )
    request = compiled.create_infer_request()
    inputs = [openvino.Tensor(array, shared_memory=True) for array in arrays]
    dtype = q.dtype

    def run() -> torch.Tensor:
        request.infer(inputs, share_inputs=True, share_outputs=True)
        return torch.from_numpy(request.get_output_tensor(0).data).transpose(1, 2).to(dtype)

    return run


def flex_attention(
    shape: shapes.Shape, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> Callable[[], torch.Tensor]:
    """Torch's FlexAttention, compiled: causal, with the shape's window, softcap or ALiBi."""
    from torch.nn.attention import flex_attention as flex

    offset, window = shape.k_len - shape.q_len, shape.window
    slopes = shapes.alibi_slopes(shape.q_heads) if shape.alibi else None

    def sees(batch: Any, head: Any, row: Any, key: Any) -> Any:
        visible = key <= row + offset
        return visible & (key > row + offset - window) if window else visible

    def modified(score: Any, batch: Any, head: Any, row: Any, key: Any) -> Any:
        if shape.softcap:
            score = shape.softcap * torch.tanh(score / shape.softcap)
        if slopes is not None:
            score = score - slopes[head] * (row + offset - key).abs()
        return score

    mask = flex.create_block_mask(sees, None, None, shape.q_len, shape.k_len, device="cpu")
    compiled = torch.compile(flex.flex_attention)
    score_mod = modified if shape.softcap or shape.alibi else None
    return lambda: compiled(q, k, v, score_mod=score_mod, block_mask=mask)


def padded_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: list[int]
) -> Callable[[], torch.Tensor]:
    """Causal attention of sequences of different lengths, all padded to the longest: padding, torch SDPA, and back."""
    lengths = [end - begin for begin, end in zip(starts, starts[1:])]
    real = torch.arange(max(lengths))[None, :] < torch.tensor(lengths)[:, None]

    def run() -> torch.Tensor:
        padded = []
        for tensor in (q, k, v):
            whole = tensor.new_zeros(len(lengths), max(lengths), *tensor.shape[1:])
            whole[real] = tensor
            padded.append(whole.transpose(1, 2))
        # Under a causal mask no real row sees padding, which lies behind it.
        return F.scaled_dot_product_attention(*padded, is_causal=True).transpose(1, 2)[real]

    return run
