"""Every fault at every stage: the right build or a typed error within the patience, and a cache that is good afterwards."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_hub.bundle import bundle_path, make_bundle
from kernel_hub.cache import Cache
from kernel_hub.cache.survey import damaged_blobs
from kernel_hub.errors import KernelHubError
from kernel_hub.fetch import fetch, read_metadata
from kernel_hub.index import Index
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.selection import Accepted
from kernel_hub.model.source import Pin
from kernel_hub.select import variants_of
from kernel_hub.sources.hub import HubSource, Limits
from kernel_hub.sources.hub_http import HubClient
from kernel_hub.sources.wrappers import CachedSource
from tests.support import faults as fault
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer, running_hub

REPO = RepoId("acme", "axpy")
LARGE = {"weights.bin": os.urandom(2 << 20)}
SMALL = {f"part{number}.py": b"# %d\n" % number * 40 for number in range(20)}
# The first has too few files for a bundle, the second comes with one.
BUILDS = {
    "v1": fake_build("torch-cpu", version=1, files=LARGE),
    "v2": fake_build("torch-cpu", version=2, files=LARGE | SMALL),
}
PATIENCE_S = 60.0

STAGES = {
    "references": "/refs",
    "publisher": "/overview",
    "listing": "/tree/",
    "metadata": "/metadata.json",
    "bundle": "/bundles/",
    "file": "/_math.py",
    "large file": "/weights.bin",
    "everything": "",
}
FAULTS = {
    "500": fault.status(500),
    "503": fault.status(503),
    "429 with a short wait": fault.status(429, headers={"retry-after": "1"}),
    "429 with a long wait": fault.status(429, headers={"retry-after": "86400"}),
    "404": fault.status(404),
    "401": fault.status(401),
    "cut at once": fault.cut(0),
    "cut midway": fault.cut(40),
    "stall": fault.stall(10),
    "flipped bit": fault.flipped,
    "wrong identity": fault.relabelled(etag='"0000"', x_linked_etag='"0000"', x_repo_commit="0" * 40),
    "one byte short": fault.shortened,
    "one byte long": fault.lengthened,
    "web page": fault.web_page(),
    "empty": fault.status(200, body=b""),
    "null": fault.document(None),
    "redirect elsewhere": fault.redirect("http://127.0.0.1:9/"),
    "redirect nowhere": fault.redirect("file:///etc/passwd"),
    "oversized": fault.status(200, body=b"[" + b" " * (33 << 20) + b"]"),
}


class Patience:
    """A clock that only waits move, and that counts them."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, wait_s: float) -> None:
        self.now_s += wait_s


@pytest.fixture(scope="module")
def faults() -> Faults:
    return Faults()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, faults: Faults) -> Iterator[HubServer]:
    with running_hub(tmp_path_factory.mktemp("registry") / "registry", wrap=faults) as server:
        for version, build in ((1, BUILDS["v1"]), (2, BUILDS["v2"])):
            bundle = make_bundle(build)
            extra = {} if bundle is None else {bundle_path("torch-cpu"): bundle}
            publish_fake_kernel(server.registry, version=version, builds={"torch-cpu": build}, extra_files=extra)
        server.registry.set_publisher("acme", True)
        yield server


def load(
    hub: HubServer, home: Path, patience: Patience, *, branch: str = "v1", offline: bool = False
) -> dict[str, bytes]:
    """Everything up to the artifact, as the loader does it; the build's files."""
    limits = Limits(patience_s=PATIENCE_S, stall_s=0.1)
    client = HubClient(hub.url, {}, None, limits, patience.clock, patience.sleep)
    cache = Cache(home / "hub")
    source = CachedSource(
        HubSource(hub.url, client=client),
        cache,
        Index(home / "index"),
        key="hub",
        name=hub.url,
        mode="offline" if offline else "online",
        freshness_s=0.0,
        patience_s=5.0,
    )
    refs = source.refs(REPO)
    source.publisher("acme")
    pin = Pin(REPO, refs.branches[branch], ref=branch)
    (variant,) = variants_of(source.files(REPO, pin.commit, "build"))
    accepted = Accepted(variant, ())
    read_metadata(source, cache, pin, ["torch-cpu"], ahead=accepted)
    artifact = fetch(source, cache, pin, accepted)
    return {path.name: path.read_bytes() for path in artifact.root.iterdir()}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("times", [1, None], ids=["once", "always"])
def test_a_fault_ends_in_the_right_build_or_a_typed_error_and_leaves_a_good_cache(
    hub: HubServer, faults: Faults, tmp_path: Path, stage: str, name: str, times: int | None
) -> None:
    patience = Patience()
    branch = "v2" if stage == "bundle" else "v1"
    faults.clear()
    faults.add(FAULTS[name], STAGES[stage], times=times)
    try:
        assert load(hub, tmp_path, patience, branch=branch) == BUILDS[branch]
    except KernelHubError as error:
        assert error.message
        # Each of the few questions of a load has the patience once, and files are asked for side by side.
        assert patience.now_s <= 5 * PATIENCE_S
    assert list(damaged_blobs(Cache(tmp_path / "hub"))) == []
    faults.clear()
    assert load(hub, tmp_path, Patience(), branch=branch) == BUILDS[branch]
    assert load(hub, tmp_path, Patience(), branch=branch, offline=True) == BUILDS[branch]
    faults.add(FAULTS[name], STAGES[stage], times=times)
    if name not in ("404", "401"):
        # What is cached serves while the Hub fails; a refusal is an answer.
        assert load(hub, tmp_path, Patience(), branch=branch) == BUILDS[branch]


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("code", [500, 503, 429])
def test_a_hub_that_fails_every_few_requests_is_good_enough(
    hub: HubServer, faults: Faults, tmp_path: Path, every: int, code: int
) -> None:
    faults.clear()
    faults.add(fault.status(code), every=every)
    assert load(hub, tmp_path, Patience()) == BUILDS["v1"]


@pytest.mark.parametrize(
    "path", ["../../../x.py", "/etc/cron.d/x", "build/torch-cpu/../../../x", "build/torch-cpu/a\\..\\b"]
)
def test_a_listing_that_leads_outside_writes_nothing(hub: HubServer, faults: Faults, tmp_path: Path, path: str) -> None:
    faults.clear()
    faults.add(fault.edited(lambda rows: [*rows, rows[-1] | {"path": path}]), "/tree/")
    with pytest.raises(KernelHubError):
        load(hub, tmp_path, Patience())
    assert not (tmp_path / "hub").exists()
    assert not list(tmp_path.rglob("x*"))


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_of_the_table_is_asked_for(hub: HubServer, faults: Faults, tmp_path: Path, stage: str) -> None:
    faults.clear()
    rule = faults.add(fault.status(404), STAGES[stage])
    with contextlib.suppress(KernelHubError):
        load(hub, tmp_path, Patience(), branch="v2" if stage == "bundle" else "v1")
    assert rule.hits > 0
