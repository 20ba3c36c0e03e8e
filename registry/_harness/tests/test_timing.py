"""The timing's own arithmetic; no test here depends on how long anything takes."""

from __future__ import annotations

import pytest

from registry._harness import timing


def test_other_load_is_what_this_process_did_not_use() -> None:
    assert timing.other_load(own_cpu_s=1.0, busy_cpu_s=3.0, wall_s=2.0) == 1.0
    assert timing.other_load(own_cpu_s=3.0, busy_cpu_s=1.0, wall_s=2.0) == 0.0
    assert timing.other_load(own_cpu_s=0.0, busy_cpu_s=1.0, wall_s=0.0) == 0.0


def test_clocks_never_run_backwards() -> None:
    busy, own = timing.busy_cpu_s(), timing.own_cpu_s()
    sum(range(100_000))
    assert timing.busy_cpu_s() >= busy
    assert timing.own_cpu_s() >= own


def test_every_contestant_runs_in_every_round() -> None:
    calls = {"a": 0, "b": 0}

    def count(name: str) -> None:
        calls[name] += 1

    samples = timing.compare(
        {name: lambda name=name: count(name) for name in calls}, rounds=3, round_s=0.0, limit=99.0, patience_s=0.0
    )
    assert calls == {"a": 5, "b": 5}
    for sample in samples.values():
        assert sample.rounds == 3
        assert sample.best_s <= sample.quartiles_s[0] <= sample.median_s <= sample.quartiles_s[1]


def test_disturbed_rounds_are_counted() -> None:
    samples = timing.compare({"a": lambda: None}, rounds=2, round_s=0.0, limit=-1.0, patience_s=0.0)
    assert samples["a"].discarded_rounds == 2


def test_an_impossible_limit_gives_up() -> None:
    assert timing.wait_until_idle(limit=-1.0, window_s=0.0, patience_s=0.0) is False
    assert timing.wait_until_idle(limit=99.0, window_s=0.0, patience_s=0.0) is True


@pytest.mark.parametrize("threads", [1])
def test_the_roofline_probes_measure_something(threads: int) -> None:
    from registry._harness import roofline

    measured = roofline.measure(1 << 20, repeats=1, threads=threads)
    assert measured.float32_flops > 0
    assert measured.read_bytes_per_s > 0
