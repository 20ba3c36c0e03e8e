"""What was loaded once loads again: without network, while the Hub fails, from a cache that cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import snapshot_download

from tests.support import faults as fault
from tests.support.child import run_python
from tests.support.fake_kernels import fake_build, publish_fake_kernel
from tests.support.faults import Faults
from tests.support.hub import HubServer, running_hub
from tests.support.loading import load

BUILDS = {"torch-cpu": fake_build("torch-cpu"), "torch-cuda": fake_build("torch-cuda")}


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def hub(start_hub: Callable[..., HubServer], faults: Faults) -> HubServer:
    server = start_hub(wrap=faults)
    publish_fake_kernel(server.registry, builds=BUILDS)
    server.registry.set_publisher("acme", True)
    return server


@pytest.fixture
def environ(hub: HubServer, tmp_path: Path) -> dict[str, str]:
    return hub.child_environment(tmp_path / "home")


@pytest.mark.parametrize(
    ("setting", "may_try"), [({}, False), ({"HF_HUB_OFFLINE": "1"}, False), ({"KERNEL_HUB_FRESHNESS": "0.001"}, True)]
)
def test_what_was_loaded_by_version_loads_without_sockets_by_version_commit_and_branch(
    hub: HubServer, faults: Faults, environ: dict[str, str], setting: dict[str, str], may_try: bool
) -> None:
    commit = hub.registry.refs(_repo()).branches["v1"]
    assert load(environ).values == [[3]]
    faults.asked.clear()
    calls: list[dict[str, Any]] = [{"version": 1}, {"revision": commit}, {"revision": "v1"}, {}, {"version": ">=1"}]
    told = load(environ | setting, *calls, no_sockets=True)
    assert told.values == [[3]] * 5
    assert bool(told.attempts) is may_try
    assert faults.asked == []


def test_what_was_loaded_by_commit_loads_without_sockets_by_commit(hub: HubServer, environ: dict[str, str]) -> None:
    commit = hub.registry.refs(_repo()).branches["v1"]
    assert load(environ, {"revision": commit}).values == [[3]]
    assert load(environ, {"revision": commit}, no_sockets=True).values == [[3]]


def test_what_huggingface_hub_fetched_loads_without_sockets(
    hub: HubServer, environ: dict[str, str], tmp_path: Path
) -> None:
    snapshot_download(
        "acme/axpy",
        repo_type="kernel",
        revision="v1",
        endpoint=hub.url,
        cache_dir=tmp_path / "home" / "hf" / "hub",
        allow_patterns="build/torch-cpu/*",
    )
    # Whom to trust was never asked, so it is the caller who says it.
    told = load(environ, {"version": 1, "trust_remote_code": True}, no_sockets=True)
    assert told.values == [[3]]


def test_files_that_huggingface_hub_fetched_are_not_fetched_again(
    hub: HubServer, faults: Faults, environ: dict[str, str], tmp_path: Path
) -> None:
    snapshot_download(
        "acme/axpy", repo_type="kernel", revision="v1", endpoint=hub.url, cache_dir=tmp_path / "home" / "hf" / "hub"
    )
    faults.asked.clear()
    assert load(environ).values == [[3]]
    assert faults.paths("/resolve/") == []


def test_nothing_cached_and_no_network_is_an_error_with_the_way_out(hub: HubServer, environ: dict[str, str]) -> None:
    (result,) = load(environ | {"HF_HUB_OFFLINE": "1"}, no_sockets=True).results
    assert result["error"] == "OfflineError"
    assert "HF_HUB_OFFLINE" in result["text"]


@pytest.mark.parametrize(
    "spoil",
    [
        fault.status(503),
        fault.status(429, headers={"retry-after": "30"}),
        fault.web_page(),
        fault.document([]),
        fault.cut(5),
        fault.stall(),
        fault.redirect("http://127.0.0.1:9/"),
    ],
    ids=["503", "429", "web page", "other document", "cut", "stall", "redirect"],
)
def test_while_the_hub_fails_the_cache_serves_after_one_try_with_one_notice_that_is_not_about_trust(
    hub: HubServer, faults: Faults, environ: dict[str, str], spoil: fault.Spoiler
) -> None:
    assert load(environ).values == [[3]]
    faults.asked.clear()
    faults.add(spoil)
    told = load(environ | {"KERNEL_HUB_FRESHNESS": "0.001"})
    assert told.values == [[3]]
    (notice,) = told.warnings
    assert "cache" in notice
    assert "trust" not in notice
    assert len(faults.paths("/refs")) == 1


def test_a_hub_that_is_gone_is_as_good_as_one_that_fails(tmp_path: Path) -> None:
    with running_hub(tmp_path / "registry") as hub:
        publish_fake_kernel(hub.registry, builds=BUILDS)
        hub.registry.set_publisher("acme", True)
        environ = hub.child_environment(tmp_path / "home", KERNEL_HUB_FRESHNESS="0.001")
        assert load(environ).values == [[3]]
    told = load(environ)
    assert told.values == [[3]]
    assert len(told.warnings) == 1
    assert "trust" not in told.warnings[0]


def test_a_cold_load_while_the_hub_is_busy_waits_as_told_and_says_so(
    hub: HubServer, faults: Faults, environ: dict[str, str]
) -> None:
    faults.add(fault.status(429, headers={"retry-after": "1"}), "/refs", times=1)
    told = load(environ)
    assert told.values == [[3]]
    assert any("1 s" in notice for notice in told.warnings)


def test_a_cold_load_from_a_hub_that_asks_for_too_long_a_wait_is_an_error_that_says_how_long(
    hub: HubServer, faults: Faults, environ: dict[str, str]
) -> None:
    faults.add(fault.status(429, headers={"retry-after": "3600"}), "/refs")
    (result,) = load(environ).results
    assert result["error"] == "SourceUnavailableError"
    assert "3600 s" in result["text"]


def test_the_newer_commit_that_was_never_fetched_does_not_hide_the_older_one_that_was(
    hub: HubServer, environ: dict[str, str]
) -> None:
    assert load(environ).values == [[3]]
    newer = {
        "torch-cpu": fake_build(
            "torch-cpu", files={"_math.py": b"def axpy(a, x, y):\n    return [0]\n\ndef origin():\n    return 0\n"}
        )
    }
    publish_fake_kernel(hub.registry, builds=newer)
    run_python("import kernel_hub; kernel_hub.explain('acme/axpy')", environ=environ | {"KERNEL_HUB_FRESHNESS": "0"})
    assert load(environ | {"HF_HUB_OFFLINE": "1"}, no_sockets=True).values == [[3]]
    assert load(environ, {"version": 1, "refresh": True}).values == [[0]]
    assert load(environ | {"HF_HUB_OFFLINE": "1"}, no_sockets=True).values == [[0]]


NEWER = {
    "torch-cpu": fake_build(
        "torch-cpu",
        files={
            "_math.py": b"def axpy(a, x, y):\n    return [0]\n\ndef origin():\n    return 0\n",
            "weights.bin": bytes(3 << 20),
        },
    )
}


def ask_for_references(environ: dict[str, str]) -> None:
    """Let the newest commits be known, and nothing else of them."""
    code = (
        "import kernel_hub.settings, kernel_hub.sources.configured as configured\n"
        "from kernel_hub.model.requirement import RepoId\n"
        "settings = kernel_hub.settings.load_settings()\n"
        "configured.connect(settings, 'acme', host_facts={}, refresh=True).source.refs(RepoId('acme', 'axpy'))\n"
    )
    run_python(code, environ=environ)


@pytest.mark.parametrize("stage", ["/tree/", "/resolve/"])
@pytest.mark.parametrize("spoil", [fault.status(503), fault.stall(), fault.cut(0)], ids=["503", "stall", "cut"])
def test_while_the_newest_commit_cannot_be_had_an_older_one_of_the_version_serves_after_one_try_with_one_notice(
    hub: HubServer, faults: Faults, environ: dict[str, str], stage: str, spoil: fault.Spoiler
) -> None:
    assert load(environ).values == [[3]]
    publish_fake_kernel(hub.registry, builds=NEWER)
    ask_for_references(environ)
    faults.asked.clear()
    rule = faults.add(spoil, stage)
    told = load(environ)
    assert told.values == [[3]]
    (notice,) = told.warnings
    assert "using what is in the cache" in notice
    assert "trust" not in notice
    paths = faults.paths(stage)
    assert len(paths) == len(set(paths)) == rule.hits
    faults.clear()
    assert load(environ).values == [[0]]


def test_a_newest_commit_whose_download_breaks_midway_is_taken_up_and_not_given_up(
    hub: HubServer, faults: Faults, environ: dict[str, str]
) -> None:
    assert load(environ).values == [[3]]
    publish_fake_kernel(hub.registry, builds=NEWER)
    faults.add(fault.cut(2 << 20), "weights.bin", times=1)
    told = load(environ, {"version": 1, "refresh": True})
    assert told.values == [[0]]
    assert told.warnings == []


def test_a_commit_that_is_asked_for_by_its_id_is_waited_for(
    hub: HubServer, faults: Faults, environ: dict[str, str]
) -> None:
    assert load(environ).values == [[3]]
    commit = publish_fake_kernel(hub.registry, builds=NEWER)
    ask_for_references(environ)
    faults.add(fault.status(503), "/tree/", times=1)
    faults.add(fault.status(503), "/resolve/", times=1)
    assert load(environ, {"revision": commit}).values == [[0]]


@pytest.mark.parametrize("call", [{}, {"version": ">=1"}], ids=["any version", "a range"])
def test_while_the_newest_version_cannot_be_had_one_that_was_loaded_before_serves_who_leaves_the_version_open(
    hub: HubServer, faults: Faults, environ: dict[str, str], call: dict[str, Any]
) -> None:
    assert load(environ, call).values == [[3]]
    publish_fake_kernel(hub.registry, version=2, builds=NEWER)
    ask_for_references(environ)
    assert load(environ | {"HF_HUB_OFFLINE": "1"}, call, no_sockets=True).values == [[3]]
    faults.add(fault.status(503))
    told = load(environ, call)
    assert told.values == [[3]]
    assert len(told.warnings) == 1


def test_the_nearest_major_that_fits_is_named_offline_too_and_a_range_gets_it(
    hub: HubServer, environ: dict[str, str]
) -> None:
    for version, label in ((2, "torch-cpu"), (3, "torch-rocm"), (4, "torch-cpu"), (6, "torch-xpu")):
        publish_fake_kernel(hub.registry, version=version, builds=[label])
    online = load(environ, {"version": 2}, {"version": 4}, {"version": 3}, {"version": ">=2,<4"})
    offline = load(environ | {"HF_HUB_OFFLINE": "1"}, {"version": 3}, {"version": ">=2,<4"}, no_sockets=True)
    refused = online.results[2]
    assert refused["error"] == "NoCompatibleVariantError"
    assert "take version 4" in refused["text"]
    assert offline.results[0] == refused
    assert all("v2" in told.results[-1]["origin"] for told in (online, offline))
    assert online.values[3] == offline.values[1] == [3]


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_a_version_that_was_never_loaded_is_not_replaced_by_another(
    hub: HubServer, faults: Faults, environ: dict[str, str], mode: str
) -> None:
    assert load(environ).values == [[3]]
    publish_fake_kernel(hub.registry, version=2, builds=NEWER)
    ask_for_references(environ)
    faults.add(fault.status(429, headers={"retry-after": "3600"}), "/tree/", every=2)
    faults.add(fault.status(503))
    (result,) = load(environ | {"KERNEL_HUB_MODE": mode}, {"version": 2}).results
    if mode == "online":
        # Its one way to be had is tried as often as ever.
        assert len(faults.paths("/tree/")) > 1
    assert result["error"] == {"online": "SourceUnavailableError", "offline": "OfflineError"}[mode]


@pytest.mark.parametrize("setting", [{}, {"HF_HUB_OFFLINE": "1"}])
def test_a_cache_that_is_complete_is_loaded_without_a_write(
    hub: HubServer, environ: dict[str, str], tmp_path: Path, setting: dict[str, str]
) -> None:
    commit = hub.registry.refs(_repo()).branches["v1"]
    assert load(environ).values == [[3]]
    told = load(environ | setting, {"version": 1}, {"revision": commit}, no_writes_below=tmp_path / "home")
    assert told.values == [[3], [3]]


@pytest.mark.parametrize(
    ("setting", "told_of"),
    [
        ({}, ["stamps"]),
        ({"HF_HUB_OFFLINE": "1"}, ["stamps"]),
        # Now the Hub is asked, and its answer cannot be kept either.
        ({"KERNEL_HUB_FRESHNESS": "0.001"}, ["index", "stamps"]),
    ],
    ids=["fresh", "offline", "stale"],
)
def test_a_read_only_cache_that_another_user_filled_is_loaded_without_a_try_to_write_and_told_of_once(
    hub: HubServer, environ: dict[str, str], tmp_path: Path, setting: dict[str, str], told_of: list[str]
) -> None:
    assert load(environ).values == [[3]]
    home = tmp_path / "home"
    stamps = home / "hf" / "kernel_hub" / "stamps"
    for stamp in stamps.iterdir():
        # Nobody believes a stamp that others may write, so every file is read again.
        stamp.chmod(0o666)
    folders = [home, *(path for path in home.rglob("*") if path.is_dir() and not path.is_symlink())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        told = load(environ | setting, {"version": 1}, {"revision": "v1"}, no_writes_below=home, ordinary=True)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    assert told.values == [[3], [3]]
    assert sorted(Path(notice.split(" cannot be written")[0]).name for notice in told.warnings) == told_of
    assert all("KERNEL_HUB_HOME" in notice for notice in told.warnings)


def test_a_process_without_telemetry_sends_no_facts_of_the_machine(
    hub: HubServer, faults: Faults, environ: dict[str, str]
) -> None:
    told = load(environ | {"DO_NOT_TRACK": "1"}, {"version": 1, "user_agent": " "})
    assert told.values == [[3]]
    agents = {headers["user-agent"] for _, _, headers in faults.asked}
    assert len(agents) == 1
    agent = agents.pop()
    assert agent == agent.strip()
    assert "torch" not in agent
    assert "python" not in agent


def _repo() -> Any:
    from kernel_hub.model.requirement import RepoId

    return RepoId("acme", "axpy")
