"""The loader's benchmark is right before it is fast: same kernel, same result, and requests that are counted, never timed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.loader import report
from benchmarks.loader.__main__ import main
from benchmarks.loader.clients import OURS, PEER, Bench, Load, Wish, WrongResultError
from benchmarks.loader.hub import BenchHub, TimedRequest, in_series
from benchmarks.loader.in_parts import STAGES
from benchmarks.loader.measure import LoadTask, measure_load
from benchmarks.loader.parts import measure_parts
from benchmarks.loader.published import Published, publish
from benchmarks.loader.summary import Spread, ratios

# Refs, publisher and listing, and one to spare.
BESIDE_FILES = 4


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmark")


@pytest.fixture(scope="module")
def kernels(scratch: Path) -> dict[str, Published]:
    return publish(scratch / "registry")


@pytest.fixture(scope="module")
def hub(scratch: Path, kernels: dict[str, Published]) -> Iterator[BenchHub]:
    with BenchHub(scratch / "registry") as running:
        yield running


@pytest.fixture(scope="module")
def bench(hub: BenchHub, scratch: Path) -> Bench:
    # Requests and results are the same without torch, and a process starts faster.
    return Bench(hub, scratch, with_torch=False)


@pytest.fixture(scope="module")
def ours(bench: Bench, kernels: dict[str, Published]) -> Iterator[dict[str, Load]]:
    """Our loads of one small kernel: cold, then warm in processes of their own."""
    by_version = Wish(kernels["small"].repo, "version", "1")
    by_commit = Wish(kernels["small"].repo, "revision", kernels["small"].commit)
    with bench.home() as home:
        yield {
            "cold": bench.load(OURS, by_version, home),
            "warm by version": bench.load(OURS, by_version, home),
            "warm by commit": bench.load(OURS, by_commit, home),
            "stale": bench.load(OURS, by_version, home, KERNEL_HUB_FRESHNESS="0"),
        }


@pytest.fixture(scope="module")
def peer(bench: Bench, kernels: dict[str, Published]) -> Load:
    with bench.home() as home:
        return bench.load(PEER, Wish(kernels["small"].repo, "version", "1"), home)


def test_both_clients_load_the_same_bytes_and_compute_the_same(ours: dict[str, Load], peer: Load) -> None:
    # That each computed what it should was checked by the load itself.
    assert {load.content for load in (*ours.values(), peer)} == {peer.content}


def test_a_cold_load_asks_for_each_file_once_and_for_little_else(
    ours: dict[str, Load], kernels: dict[str, Published]
) -> None:
    lines = [request.line for request in ours["cold"].requests]
    files = [line for line in lines if "/resolve/" in line]
    assert len(files) == len(set(files)) == kernels["small"].file_count
    assert len(lines) <= kernels["small"].file_count + BESIDE_FILES, lines


def test_a_cold_load_asks_less_than_the_peer_does(ours: dict[str, Load], peer: Load) -> None:
    assert len(ours["cold"].requests) < len(peer.requests)


@pytest.mark.parametrize("load", ["warm by version", "warm by commit"])
def test_a_warm_load_asks_nothing_and_imports_nothing_to_ask_with(ours: dict[str, Load], load: str) -> None:
    assert (ours[load].requests, ours[load].http_libraries) == ((), ())


def test_a_stale_version_asks_for_no_file(ours: dict[str, Load]) -> None:
    lines = [request.line for request in ours["stale"].requests]
    assert 0 < len(lines) <= 2
    assert not [line for line in lines if "/resolve/" in line or "/tree/" in line]


def test_builds_for_other_machines_cost_no_request(bench: Bench, kernels: dict[str, Published]) -> None:
    with bench.home() as home:
        load = bench.load(OURS, Wish(kernels["variants"].repo, "version", "1"), home)
    assert len(load.requests) <= kernels["variants"].file_count + BESIDE_FILES


def test_a_bundle_stands_for_hundreds_of_files(bench: Bench, kernels: dict[str, Published]) -> None:
    with bench.home() as home:
        load = bench.load(OURS, Wish(kernels["bundled"].repo, "version", "1"), home)
    assert len(load.requests) <= 1 + BESIDE_FILES


def test_a_row_holds_both_clients_and_what_they_asked(bench: Bench, kernels: dict[str, Published]) -> None:
    row = measure_load(bench, LoadTask("small", "warm", "commit", 0, rounds=1), kernels["small"])
    assert row[OURS]["requests"]["median"] == 0 < row[PEER]["requests"]["median"]
    assert row["ratio"]["runs"] == 1


def test_a_client_that_computes_something_else_gives_no_figure(
    hub: BenchHub, scratch: Path, kernels: dict[str, Published]
) -> None:
    strict = Bench(hub, scratch, expected={"axpy": [0.0], "origin": "elsewhere"}, with_torch=False)
    with pytest.raises(WrongResultError, match="computes"):
        measure_load(strict, LoadTask("small", "cold", "version", 0, rounds=1), kernels["small"])


def test_a_client_that_loads_other_bytes_gives_no_figure(
    hub: BenchHub, scratch: Path, kernels: dict[str, Published]
) -> None:
    script = scratch / "each_its_own.py"
    script.write_text(
        "import json, sys\n"
        "print(json.dumps({'import_ns': 1, 'call_ns': 1, 'cpu_ns': 1, 'result': 7, 'folder': sys.argv[1],\n"
        "                  'content': sys.argv[1], 'http_libraries': []}))\n"
    )
    bench = Bench(hub, scratch, expected=7, script=script)  # type: ignore[arg-type]
    with pytest.raises(WrongResultError, match="different bytes"):
        measure_load(bench, LoadTask("small", "cold", "version", 0, rounds=1), kernels["small"])


def test_a_client_that_fails_gives_no_figure(bench: Bench) -> None:
    with bench.home() as home, pytest.raises(WrongResultError, match="RepositoryNotFoundError"):
        bench.load(OURS, Wish("acme/absent", "version", "1"), home)


def test_a_failed_check_reports_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(scale: float, parts: object) -> dict[str, Any]:
        raise WrongResultError("two kernels")

    assert main(["--out", str(tmp_path / "result.json")], failing) == 1
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "nothing is reported: two kernels\n")


def test_processes_that_start_together_fetch_each_file_once(bench: Bench, kernels: dict[str, Published]) -> None:
    with bench.home() as home:
        crowd = bench.load_at_once(OURS, Wish(kernels["small"].repo, "version", "1"), home, 3)
    files = [
        request.line
        for request in crowd.requests
        if "/resolve/" in request.line and "metadata.json" not in request.line
    ]
    assert len(files) == kernels["small"].file_count - 1
    assert len(crowd.loads) == 3


@pytest.mark.parametrize(
    ("spans", "chain"),
    [
        ([], 0),
        ([(0, 1)], 1),
        ([(0, 1), (0, 1), (0.5, 1.2)], 1),
        ([(0, 1), (1, 2), (2, 3)], 3),
        ([(0, 9), (1, 2), (3, 4)], 2),
    ],
    ids=["none", "one", "together", "one after the other", "beside a long one"],
)
def test_series_is_the_longest_chain_of_requests(spans: list[tuple[float, float]], chain: int) -> None:
    assert in_series([TimedRequest("GET /", begin, end) for begin, end in spans]) == chain


def test_a_spread_is_of_quartiles_once_there_are_some() -> None:
    assert Spread.of([3, 1, 2]) == Spread(2, 1, 3, 3)
    assert Spread.of([5, 1, 2, 3, 4]) == Spread(3, 2, 4, 5)


def test_a_ratio_is_taken_within_a_round() -> None:
    assert ratios([2, 200, 30], [1, 100, 10]) == Spread(2, 2, 3, 3)


def test_ratios_of_rounds_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios([1, 2], [1])


@pytest.fixture
def result() -> dict[str, Any]:
    path = Path(__file__).parents[2] / "benchmarks" / "results" / "loader.json"
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def test_a_load_is_taken_apart_without_losing_anything(bench: Bench, kernels: dict[str, Published]) -> None:
    pytest.importorskip("torch")
    parts = measure_parts(bench, kernels["small"], 1)
    whole = parts["call"]["whole"]["median"]
    assert 0 < sum(parts["call"][stage]["median"] for stage in STAGES) <= whole
    assert parts["modules"][OURS] > 50
    assert min(parts["http"]["library"]["median"], parts["http"]["session"]["median"]) > 0


def test_where_the_time_goes_is_a_section_of_a_result_that_has_it(result: dict[str, Any]) -> None:
    spread = {"median": 1.0, "low": 0.5, "high": 2.0, "runs": 5}
    whole = {"median": 7.5, "low": 7.0, "high": 8.0, "runs": 5}
    result["parts"] = {
        "call": dict.fromkeys((*STAGES, "operators", "settings of a project"), spread) | {"whole": whole},
        "http": {"library": spread, "session": spread},
        "imports": {OURS: spread, "packaging": spread},
        "modules": {OURS: 90, "packaging": 2},
    }
    text = report.tables(result).partition("## Where the time goes")[2]
    assert "| the rest | 1.50 |" in text
    assert "kernel_hub (90 modules)" in text


def test_the_committed_result_has_every_part_and_makes_every_table(result: dict[str, Any]) -> None:
    text = report.tables(result)
    assert [line for line in text.splitlines() if line.startswith("## ") and line != "## Where the time goes"] == [
        "## Goals",
        "## Import, in a fresh process",
        "## Load, in a fresh process with torch imported",
        "## Six processes at once, cold",
        "## Own time of a warm load by commit",
        "## Verification",
    ]


@pytest.mark.parametrize(("ratio", "met"), [(2.4, False), (2.5, True)])
def test_a_goal_is_judged_by_the_measured_number(result: dict[str, Any], ratio: float, met: bool) -> None:
    for row in result["loads"]:
        row["ratio"]["median"] = ratio
    judged = {what: is_met for what, _, _, is_met in report.goals(result)}
    assert judged["cold load at 50 ms a request, times faster"] is met
