"""What else decodes on a CPU, as contestants: torch's formulations, with and without pages, and onnxruntime.

onnxruntime is left out where it is not installed (it and `onnx` are no dependency of anything here). Operands are laid out
as each prefers before the clock starts; gathering pages is part of the work, as it would be in use.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable

import torch
import torch.nn.functional as F

Run = Callable[[], torch.Tensor]


def versions() -> dict[str, str]:
    """Return the version of each runtime, or that it is not installed."""
    found = importlib.util.find_spec("onnxruntime") is not None
    return {"onnxruntime": importlib.metadata.version("onnxruntime") if found else "not installed"}


def torch_formulations(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, Run]:
    """Return torch's ways to decode; q is (1, q_heads, head_dim), k and v are (1, k_heads, k_len, head_dim), contiguous."""
    heads, head_dim = q.shape[1:]
    k_heads = k.shape[1]
    one = q.view(1, heads, 1, head_dim)
    grouped = q.view(1, k_heads, heads // k_heads, head_dim)

    def products() -> torch.Tensor:
        scores = grouped @ k.transpose(-1, -2) * head_dim**-0.5
        return (torch.softmax(scores.float(), -1).to(q.dtype) @ v).view(q.shape)

    return {
        "torch_sdpa_gqa": lambda: F.scaled_dot_product_attention(one, k, v, enable_gqa=True).view(q.shape),
        "torch_sdpa_grouped": lambda: F.scaled_dot_product_attention(grouped, k, v).view(q.shape),
        "torch_products": products,
    }


def gathered(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, table: torch.Tensor) -> Run:
    """Gather pages, (pages, k_heads, page_size, head_dim), into one run of memory, then torch's grouped attention."""
    heads, head_dim = q.shape[1:]
    k_heads = k_cache.shape[1]
    grouped = q.view(1, k_heads, heads // k_heads, head_dim)
    pages = table[0].long()

    def run() -> torch.Tensor:
        k, v = (cache[pages].transpose(0, 1).reshape(1, k_heads, -1, head_dim) for cache in (k_cache, v_cache))
        return F.scaled_dot_product_attention(grouped, k, v).view(q.shape)

    return run


def onnxruntime_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Run | None:
    """onnxruntime's GroupQueryAttention over a shared cache; None where it is not installed or for other element types.

    The operator appends the newest key itself, so the cache is given without it.
    """
    if q.dtype != torch.float32 or not all(importlib.util.find_spec(name) for name in ("onnxruntime", "onnx")):
        return None
    import numpy
    import onnxruntime
    from onnx import TensorProto, helper

    heads, head_dim = q.shape[1:]
    k_heads, k_len = k.shape[1:3]
    inputs = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length"]
    outputs = ["out", "present_key", "present_value"]
    cache_shape = [1, k_heads, k_len, head_dim]
    shapes = [[1, 1, heads * head_dim], *([[1, 1, k_heads * head_dim]] * 2), *([cache_shape] * 2)]
    node = helper.make_node(
        "GroupQueryAttention", inputs, outputs, domain="com.microsoft", num_heads=heads, kv_num_heads=k_heads
    )
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in zip(inputs, shapes)]
    declared += [
        helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, [1]),
        helper.make_tensor_value_info("total_sequence_length", TensorProto.INT32, [1]),
    ]
    results = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(outputs, [shapes[0], cache_shape, cache_shape])
    ]
    graph = helper.make_graph([node], "decode", declared, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    caches = [onnxruntime.OrtValue.ortvalue_from_numpy(x.numpy().copy()) for x in (k, v)]
    newest = [x[:, :, -1].reshape(1, 1, -1).numpy().copy() for x in (k, v)]
    out = onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros((1, 1, heads * head_dim), numpy.float32))
    binding = session.io_binding()
    feed = {"query": q.reshape(1, 1, -1).numpy(), "key": newest[0], "value": newest[1]}
    feed |= {"seqlens_k": numpy.array([k_len - 1], numpy.int32)}
    feed |= {"total_sequence_length": numpy.array([k_len], numpy.int32)}
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    for name, cache in zip(("key", "value"), caches):
        # One buffer for both, so that the operator appends in place and copies nothing.
        binding.bind_ortvalue_input(f"past_{name}", cache)
        binding.bind_ortvalue_output(f"present_{name}", cache)
    binding.bind_ortvalue_output("out", out)

    def run() -> torch.Tensor:
        session.run_with_iobinding(binding)
        return torch.from_numpy(out.numpy()).view(1, heads, head_dim)

    return run
