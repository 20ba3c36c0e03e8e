"""Our own kernels go the way of everybody's: built from their recipes, published by one command, loaded back by both clients."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi

from kernel_hub.model.requirement import RepoId
from kernel_hub.sources.directory import DirectoryRegistry
from registry import publish as registry_publish
from tests.support.child import run_python
from tests.support.hub import HubServer

LOAD = "from {client} import get_kernel\nkernel = get_kernel('local/{kernel}', version=1, trust_remote_code=True)\n"
FLASH = """
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
PAGED = """
import torch
torch.manual_seed(0)
for dtype in (torch.float32, torch.bfloat16):
    q, keys, values = torch.randn(2, 8, 64, dtype=dtype), *(torch.randn(6, 16, 2, 64, dtype=dtype) for _ in range(2))
    table = torch.tensor([[4, 1, 2], [0, 5, 3]], dtype=torch.int32)
    lengths = torch.tensor([37, 48], dtype=torch.int32)
    out = kernel.paged_attention(q, keys, values, table, lengths)
    for row, length in enumerate(lengths.tolist()):
        k, v = (cache[table[row].long()].flatten(0, 1)[:length].transpose(0, 1)[None] for cache in (keys, values))
        def attend(*tensors):
            return torch.nn.functional.scaled_dot_product_attention(*tensors, enable_gqa=True)[0, :, 0]
        query = q[row][None, :, None]
        exact = attend(query.double(), k.double(), v.double())
        ours, torchs = ((found.double() - exact).abs().max() for found in (out[row], attend(query, k, v)))
        assert ours <= 2 * torchs + 1e-6, (dtype, ours, torchs)
print("right")
"""
CHECKS = {"flash-attn": FLASH, "paged-attention": PAGED}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with copies of all kernels, and the registry that one command made of them."""
    root = tmp_path_factory.mktemp("kernels")
    for folder in registry_publish.kernels():
        shutil.copytree(
            folder, root / folder.name, ignore=shutil.ignore_patterns("build", ".build-work", "__pycache__")
        )
    sink = DirectoryRegistry.create(root / "registry")
    done = registry_publish.publish_all(registry_publish.kernels(root), sink, "local", allow_dirty=True)
    assert [str(one.report.repo) for one in done] == [f"local/{name}" for name in sorted(CHECKS)]
    return root


@pytest.mark.parametrize("client", ["kernel_hub", "kernels"])
@pytest.mark.parametrize("kernel", sorted(CHECKS))
def test_what_we_publish_loads_and_computes(
    kernel: str, client: str, published: Path, start_hub: Callable[..., Any], tmp_path: Path
) -> None:
    hub = start_hub(published / "registry")
    code = LOAD.format(client=client, kernel=kernel) + CHECKS[kernel]
    # torch warns about numpy where that is missing, and the peer about what it imports.
    environ = hub.child_environment(tmp_path, PYTHONWARNINGS="default")
    assert run_python(code, environ=environ).split()[-1] == "right"


def test_every_build_of_a_kernel_is_published_with_its_card_and_record(published: Path) -> None:
    registry = DirectoryRegistry.open(published / "registry")
    for name in CHECKS:
        repo = RepoId("local", name)
        paths = {entry.path for entry in registry.files(repo, registry.refs(repo).branches["v1"])}
        assert {f"build/torch-{backend}/metadata.json" for backend in ("cuda", "rocm", "xpu")} <= paths
        assert "api.json" in paths
        assert any(path.startswith("build/torch-stable-abi211-cpu-") for path in paths)
        card = registry.read(repo, registry.refs(repo).branches["main"], "README.md", limit_bytes=1 << 20).decode()
        assert "torch-rocm" in card


def test_the_command_says_what_it_published_and_changes_nothing_twice(
    published: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_publish, "REGISTRY", published)
    words = ["--to", str(published / "registry"), "--only", "paged-attention", "--allow-dirty", "--json"]
    assert registry_publish.main(words) == 0
    (row,) = json.loads(capsys.readouterr().out)["kernels"]
    assert (row["repo"], row["status"], len(row["labels"])) == ("local/paged-attention", "unchanged", 4)
    assert registry_publish.main(["--to", "ftp://127.0.0.1", "--only", "flash-attn"]) == 2
    assert "neither http(s)://" in capsys.readouterr().err
    assert registry_publish.main(["--to", "ftp://127.0.0.1", "--only", "flash-attn", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 2


def test_we_load_what_was_uploaded_with_the_plain_client(
    published: Path, hub_server: HubServer, tmp_path: Path
) -> None:
    api = HfApi(endpoint=hub_server.url, token="hf_any")
    api.create_repo("local/flash-attn", repo_type="kernel")
    api.create_branch("local/flash-attn", branch="v1", repo_type="kernel")
    api.upload_folder(
        repo_id="local/flash-attn",
        folder_path=published / "flash-attn" / "build",
        path_in_repo="build",
        repo_type="kernel",
        revision="v1",
    )
    code = LOAD.format(client="kernel_hub", kernel="flash-attn") + FLASH
    environ = hub_server.child_environment(tmp_path, PYTHONWARNINGS="default")
    assert run_python(code, environ=environ).split()[-1] == "right"
