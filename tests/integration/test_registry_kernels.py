"""Our own kernels go the way of everybody's: built from their recipes, published, loaded back by both clients, and right."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import HfApi

from kernel_hub.build.pipeline import build
from kernel_hub.build.publish import publish
from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.hub import HubSink
from tests.support.child import run_python
from tests.support.hub import HubServer

FLASH_ATTN = Path(__file__).parents[2] / "registry" / "flash-attn"
LOAD = "from {client} import get_kernel\nkernel = get_kernel('acme/flash-attn', version=1, trust_remote_code=True)\n"
COMPARE = """
import torch
torch.manual_seed(0)
for dtype in (torch.float32, torch.bfloat16):
    q, k, v = (torch.randn(2, 130, heads, 64, dtype=dtype) for heads in (8, 2, 2))
    def attend(*tensors):
        moved = (tensor.transpose(1, 2) for tensor in tensors)
        return torch.nn.functional.scaled_dot_product_attention(*moved, is_causal=True, enable_gqa=True).transpose(1, 2)
    exact = attend(q.double(), k.double(), v.double())
    ours = (kernel.flash_attn_func(q, k, v, causal=True).double() - exact).abs().max()
    torchs = (attend(q, k, v).double() - exact).abs().max()
    assert ours <= 2 * torchs, (dtype, ours, torchs)
print("right")
"""


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(FLASH_ATTN, output=tmp_path_factory.mktemp("flash-attn") / "build").output


@pytest.mark.parametrize("client", ["kernel_hub", "kernels"])
def test_what_we_publish_to_a_hub_loads_and_computes(
    client: str, builds: Path, hub_server: HubServer, tmp_path: Path
) -> None:
    publish(builds, HubSink(hub_server.url, token="hf_any"), RepoId("acme", "flash-attn"), allow_dirty=True)
    code = LOAD.format(client=client) + COMPARE
    # torch warns about numpy where that is missing, and the peer about what it imports.
    environ = hub_server.child_environment(tmp_path, PYTHONWARNINGS="default")
    assert run_python(code, environ=environ).split()[-1] == "right"


def test_we_load_what_was_uploaded_with_the_plain_client(builds: Path, hub_server: HubServer, tmp_path: Path) -> None:
    api = HfApi(endpoint=hub_server.url, token="hf_any")
    api.create_repo("acme/flash-attn", repo_type="kernel")
    api.create_branch("acme/flash-attn", branch="v1", repo_type="kernel")
    api.upload_folder(
        repo_id="acme/flash-attn", folder_path=builds, path_in_repo="build", repo_type="kernel", revision="v1"
    )
    code = LOAD.format(client="kernel_hub") + COMPARE
    environ = hub_server.child_environment(tmp_path, PYTHONWARNINGS="default")
    assert run_python(code, environ=environ).split()[-1] == "right"
