"""What torch requires of registered operators: schema, fakes, tracing, compilation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from . import cases

ARGUMENTS = [
    pytest.param(cases.SMALL[0], id="plain"),
    pytest.param(cases.SMALL[17], id="alibi"),
    pytest.param(cases.SMALL[20], id="sinks"),
]


@pytest.fixture
def ordinary_memory(poisoned_memory: None) -> None:
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ARGUMENTS)
def test_opcheck_passes(native: Any, ordinary_memory: None, case: cases.Case, dtype: torch.dtype) -> None:
    q, k, v = case.tensors(dtype)
    arguments = case.arguments()
    torch.library.opcheck(
        native.ops.fwd.default,
        (q, k, v, arguments.get("alibi_slopes"), arguments.get("s_aux"), 0.25, 9, 0, 0.0),
    )


def test_opcheck_passes_on_triton(triton: Any, ordinary_memory: None) -> None:
    q, k, v = cases.PLAIN.tensors(torch.float32)
    torch.library.opcheck(triton.ops.fwd.default, (q, k, v, None, None, 0.25, -1, 0, 0.0))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiles_without_a_graph_break(native: Any, ordinary_memory: None, dynamic: bool) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out, lse, _ = native.module.flash_attn_func(q * 2, k, v, causal=True, softcap=4.0, return_attn_probs=True)
        return out + lse.transpose(1, 2)[..., None].to(out.dtype)

    compiled = torch.compile(attend, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for length in (33, 47):
        q, k, v = cases.Case("", 2, length, length + 5, 4, 2, 32).tensors(torch.float32)
        torch.testing.assert_close(compiled(q, k, v), attend(q, k, v))


def test_meta_tensors_get_shapes_without_computing(native: Any) -> None:
    q = torch.empty(2, 7, 4, 64, dtype=torch.bfloat16, device="meta")
    k = torch.empty(2, 9, 2, 64, dtype=torch.bfloat16, device="meta")
    out, lse, _ = native.module.flash_attn_func(q, k, k, return_attn_probs=True)
    assert out.shape == q.shape and out.dtype == torch.bfloat16 and out.device.type == "meta"
    assert lse.shape == (2, 4, 7) and lse.dtype == torch.float32
