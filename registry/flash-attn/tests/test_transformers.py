"""Transformers models compute the same with this kernel as with plain attention.

Both ways to it: `attn_implementation="acme/flash-attn"`, for which transformers loads the kernel through the peer from a
Hub; and the attention function of examples/05_transformers.py around what our own loader returns.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_hub.build.publish import publish
from kernel_hub.model.requirement import RepoId
from tests.support.child import PROJECT, run_python
from tests.support.hub import HubServer, running_hub

from . import conftest

EXAMPLE = PROJECT / "examples" / "05_transformers.py"

# One process does everything for one way: importing transformers is what takes the time.
CHECK = """
import importlib.util, sys
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, MistralConfig

way, example = sys.argv[1:]
implementation = "acme/flash-attn"
if way == "adapter":
    from kernel_hub import get_kernel
    spec = importlib.util.spec_from_file_location("example", example)
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    implementation = "ours"
    module.register(implementation, get_kernel("acme/flash-attn", version=1, trust_remote_code=True))

sizes = dict(vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, initializer_range=0.3, pad_token_id=0, bos_token_id=1, eos_token_id=None)
configurations = {
    "llama": LlamaConfig(**sizes),
    "mistral": MistralConfig(**sizes, sliding_window=7),
    "gemma2": Gemma2Config(**sizes, head_dim=32, sliding_window=6, attn_logit_softcapping=5.0, query_pre_attn_scalar=32),
}
for name, configuration in configurations.items():
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(configuration).eval()
    alone = torch.randint(2, 300, (1, 23))
    batch = torch.randint(2, 300, (3, 19))
    mask = torch.ones_like(batch)
    paddings = (0, 4, 11)
    for row, padding in enumerate(paddings):
        batch[row, :padding], mask[row, :padding] = 0, 0

    def run(implementation, dtype):
        # A name of a Hub's kernel is one that transformers must be told to trust.
        model.to(dtype).set_attn_implementation(implementation, allow_all_kernels=True)
        assert model.config._attn_implementation == implementation
        with torch.no_grad():
            logits = [model(input_ids=alone).logits.flatten(), model(input_ids=batch, attention_mask=mask).logits[mask.bool()]]
            if dtype != torch.float32:
                return [part.double().flatten() for part in logits], None
            options = dict(max_new_tokens=12, do_sample=False)
            texts = [model.generate(input_ids=alone, **options), model.generate(input_ids=batch, attention_mask=mask, **options)]
        return [part.double().flatten() for part in logits], [text.tolist() for text in texts]

    weights = {key: value.clone() for key, value in model.state_dict().items()}
    model.to(torch.float64).set_attn_implementation("eager")
    with torch.no_grad():
        # Without the padding, which eager attention turns into NaN in float64.
        rows = [alone] + [batch[row : row + 1, padding:] for row, padding in enumerate(paddings)]
        exact = [model(input_ids=row).logits[0].flatten() for row in rows]
        exact = [exact[0], torch.cat(exact[1:])]
    for dtype in (torch.float32, torch.bfloat16):
        model.load_state_dict(weights)
        plain, plain_texts = run("eager", dtype)
        ours, our_texts = run(implementation, dtype)
        for kind, right, theirs, mine in zip(("alone", "padded"), exact, plain, ours):
            error, limit = (mine - right).abs(), 2 * (theirs - right).abs()
            assert error.max() <= limit.max() and error.mean() <= limit.mean(), (name, dtype, kind, error.max(), limit.max())
        if dtype == torch.float32:
            assert our_texts == plain_texts, (name, our_texts, plain_texts)
            assert len({token for text in our_texts for row in text for token in row[-12:]}) > 3, our_texts
print("right")
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with running_hub(tmp_path_factory.mktemp("hub") / "registry") as server:
        publish(conftest.builds(), server.registry, RepoId("acme", "flash-attn"), allow_dirty=True)
        yield server


@pytest.mark.parametrize("way", ["by_name", "adapter"])
def test_models_compute_what_eager_attention_computes(way: str, hub: HubServer, tmp_path: Path) -> None:
    environ = hub.child_environment(tmp_path, PYTHONWARNINGS="default")
    assert run_python(CHECK, way, EXAMPLE, environ=environ).split()[-1] == "right"
    assert hub.log.matching(path="acme/flash-attn"), "the kernel came from elsewhere"
    hub.log.clear()


def test_the_example_generates_the_tokens_of_eager_attention(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PROJECT), "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(conftest.builds())],
        cwd=tmp_path,
        env=environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the same tokens as eager")
