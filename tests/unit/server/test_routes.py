"""Which request goes where."""

from __future__ import annotations

import pytest

from kernel_hub.server import reads, routes, writes
from kernel_hub.server.exchange import Refusal

REPO = {"type": "kernels", "namespace": "acme", "name": "axpy"}


@pytest.mark.parametrize(
    ("method", "path", "answer", "names"),
    [
        ("GET", "/api/kernels/acme/axpy", reads.repo_info, REPO),
        ("GET", "/api/kernels/acme/axpy/revision/refs%2Fpr%2F1", reads.repo_info, REPO | {"revision": "refs/pr/1"}),
        ("GET", "/api/kernels/acme/axpy/tree/main", reads.tree, REPO | {"revision": "main"}),
        ("GET", "/api/kernels/acme/axpy/tree/main/build", reads.tree, REPO | {"revision": "main", "path": "build"}),
        (
            "GET",
            "/api/kernels/acme/axpy/tree/main/build%2Ftorch-cpu",
            reads.tree,
            REPO | {"revision": "main", "path": "build/torch-cpu"},
        ),
        (
            "HEAD",
            "/kernels/acme/axpy/resolve/main/build/a%20b.py",
            reads.resolve,
            REPO | {"revision": "main", "path": "build/a b.py"},
        ),
        (
            "GET",
            "/acme/axpy/resolve/v1/a",
            reads.resolve,
            {"type": "models", "namespace": "acme", "name": "axpy", "revision": "v1", "path": "a"},
        ),
        ("POST", "/kernels/acme/a.b.git/info/lfs/objects/batch", writes.lfs_batch, REPO | {"name": "a.b"}),
        ("POST", "/api/kernels/acme/axpy/branch/feature%2Fx", writes.create_branch, REPO | {"branch": "feature/x"}),
        ("GET", "/api/models", reads.search, {"type": "models"}),
        ("PUT", "/lfs-objects/abc", writes.lfs_put, {"digest": "abc"}),
    ],
)
def test_path_is_matched(method: str, path: str, answer: routes.Answer, names: dict[str, str]) -> None:
    route, found = routes.match(method, path)
    assert route.answer is answer
    assert found == names


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/api/datasets/acme/axpy", 404),
        ("GET", "/api/kernels/acme", 404),
        ("GET", "/api/kernels/acme/axpy/refs/more", 404),
        ("PATCH", "/api/kernels/acme/axpy/refs", 405),
        ("GET", "/api/repos/create", 405),
        ("GET", "/kernels/acme/axpy/resolve/main", 404),
        ("GET", "/api/kernels/acme/%ff/refs", 400),
    ],
)
def test_other_path_is_refused(method: str, path: str, status: int) -> None:
    with pytest.raises(Refusal) as caught:
        routes.match(method, path)
    assert caught.value.status == status
