"""`kernel-hub host`: this machine, for people and as a file for others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_hub.model.host import Host
from tests.cli.conftest import Run

FACTS = [key for key in Host().to_json() if key not in ("probes", "backend_version")]


def test_every_fact_is_printed_with_its_value_and_how_it_was_found(run: Run) -> None:
    result = run("host")
    lines = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == FACTS
    for fact, how in zip(lines[::2], lines[1::2], strict=True):
        assert len(fact.split()) > 1
        assert how.startswith("   ")
        assert how.strip()


def test_the_json_form_is_the_file_that_other_commands_take(run: Run, tmp_path: Path) -> None:
    written = run("host", "--json").out
    path = tmp_path / "here.json"
    path.write_text(written, encoding="utf-8")
    host = Host.from_json(json.loads(written))
    assert host.python is not None
    assert set(host.probes) >= set(FACTS)
    labels = b"torch-universal\nno-build"
    from_file = run("select", "--host", str(path), "--labels", "-", "--json", stdin=labels)
    from_here = run("select", "--labels", "-", "--json", stdin=labels)
    assert from_file.json == from_here.json
    assert from_file.json["accepted"] == ["torch-universal"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"cpus": "x86_64"}', '{"cpu": 1}', "{}", '{"torch": "2.13.0"}', '{"cpu": null}']
)
def test_a_file_that_describes_no_machine_is_refused_with_where_to_get_one(run: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "host.json"
    path.write_text(text, encoding="utf-8")
    result = run("select", "--host", str(path), "--labels", "-", "--json", stdin=b"torch-cpu")
    assert (result.code, result.error["type"]) == (2, "InvalidDocumentError")
    assert str(path) in result.error["message"]
    assert "kernel-hub host --json" in result.error["hint"]
