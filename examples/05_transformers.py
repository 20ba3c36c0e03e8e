"""Run a transformers model on a kernel loaded by name: build, publish, load, and register it as an attention function.

By itself: python examples/05_transformers.py [BUILDS], where BUILDS are finished builds of registry/flash-attn.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from kernel_hub import get_kernel
from kernel_hub.build.pipeline import build
from kernel_hub.build.publish import publish
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry


def register(name: str, kernel: Any) -> None:
    """Make `attn_implementation=name` mean this kernel; its masks are None or (batch, keys), true for real tokens."""

    def attend(module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> tuple[torch.Tensor, None]:
        q, k, v = (tensor.transpose(1, 2) for tensor in (query, key, value))
        causal = module.is_causal if options.get("is_causal") is None else options["is_causal"]
        given = {"softmax_scale": options.get("scaling"), "causal": causal, "s_aux": options.get("s_aux")}
        given |= {"softcap": options.get("softcap") or 0.0, "dropout_p": options.get("dropout", 0.0)}
        given["window_size"] = ((options.get("sliding_window") or 0) - 1, -1)
        if mask is None or bool(mask.all()):
            return kernel.flash_attn_func(q, k, v, **given), None
        real, out = mask.bool(), torch.zeros_like(q)
        rows = real[:, -q.shape[1] :]
        at = [torch.nn.functional.pad(tokens.sum(1).cumsum(0), (1, 0)).int() for tokens in (rows, real)]
        out[rows] = kernel.flash_attn_varlen_func(q[rows], k[real], v[real], *at, q.shape[1], k.shape[1], **given)
        return out, None

    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sources, registry = Path(__file__).parents[1] / "registry" / "flash-attn", Path(folder) / "registry"
        builds = Path(sys.argv[1]) if sys.argv[1:] else build(sources, output=Path(folder) / "build").output
        publish(builds, DirectoryRegistry.create(registry), RepoId("local", "flash-attn"), allow_dirty=True)
        os.environ |= {"KERNEL_HUB_REGISTRIES": f"local={registry.as_uri()}", "KERNEL_HUB_HOME": f"{folder}/home"}
        register("ours", get_kernel("local/flash-attn", version=1))
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256}
    model, texts = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=128, **sizes)).eval(), []
    for implementation in ("ours", "eager"):
        model.set_attn_implementation(implementation)
        texts.append(model.generate(torch.arange(9)[None], max_new_tokens=8, do_sample=False, pad_token_id=0).tolist())
    print("the same tokens as eager" if texts[0] == texts[1] else "NOT AS EAGER", texts[0])
