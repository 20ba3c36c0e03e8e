"""`kernel-hub select`: labels judged for a machine, one question or many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
CASES = json.loads((ROOT / "tests" / "vectors" / "selection.json").read_text(encoding="utf-8"))["cases"]
HOST = {
    "cpu": "x86_64",
    "os": "linux",
    "torch": "2.13.0",
    "cxx11_abi": True,
    "backend": "cuda",
    "backend_version": "13.0",
}
LABELS = ["torch-cpu", "torch213-cxx11-cu130-x86_64-linux", "torch213-cxx11-cu126-x86_64-linux", "garbage"]


def lines_of(*questions: Any) -> bytes:
    return b"".join(json.dumps(question).encode() + b"\n" for question in questions)


def test_every_recorded_case_is_answered_the_same_line_by_line(run: Run) -> None:
    result = run("select", "--stdin", "--json", stdin=lines_of(*CASES))
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert result.code == 0
    assert len(answers) == len(CASES) == 400
    for case, answer in zip(CASES, answers, strict=True):
        assert answer["accepted"] == case["accepted"]
        assert sorted(entry["label"] for entry in answer["rejected"]) == sorted(case["rejected"])
        assert all(entry["reason"] and entry["wanted"] and entry["found"] for entry in answer["rejected"])
        assert all(set(entry) == {"label", "reason", "wanted", "found"} for entry in answer["rejected"])


def test_a_question_is_answered_before_the_next_one_is_asked() -> None:
    program = [sys.executable, "-m", "kernel_hub", "select", "--stdin", "--json"]
    with subprocess.Popen(
        program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for case in CASES[:3]:
            child.stdin.write(lines_of(case))
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["accepted"] == case["accepted"]
        child.stdin.close()
        assert child.stdout.read() == b""
        assert child.wait() == 0


@pytest.mark.parametrize(
    ("line", "location"),
    [
        (b"not json\n", "line 2: line 1 column 1"),
        (b"\n", "line 2: line 2 column 1"),
        (b"[]\n", "line 2"),
        (b'{"host": {}}\n', "line 2: labels"),
        (b'{"labels": []}\n', "line 2: host"),
        (b'{"host": {}, "labels": [1]}\n', "line 2: labels"),
        (b'{"host": {}, "labels": "torch-cpu"}\n', "line 2: labels"),
        (b'{"host": {"gpu": 1}, "labels": []}\n', "line 2: host: gpu"),
        (b'{"host": {"torch": 2}, "labels": []}\n', "line 2: host: torch"),
        (b'{"host": 3, "labels": []}\n', "line 2: host"),
        (b'{"host": {}, "host": {}, "labels": []}\n', "line 2"),
        (b'{"host": {}, "labels": ["\xff"]}\n', "line 2"),
    ],
)
def test_a_bad_line_is_answered_by_an_error_and_the_next_line_is_still_answered(
    run: Run, line: bytes, location: str
) -> None:
    good = lines_of({"host": HOST, "labels": LABELS})
    result = run("select", "--stdin", "--json", stdin=good + line + good)
    first, error, last = (json.loads(text) for text in result.out.splitlines())
    assert first == last
    assert first["accepted"] == ["torch213-cxx11-cu130-x86_64-linux"]
    assert error["error"]["type"] == "InvalidDocumentError"
    assert error["error"]["message"].startswith(location)
    assert error["error"]["exit_code"] == result.code == 2


def test_a_last_line_without_line_feed_is_answered(run: Run) -> None:
    result = run("select", "--stdin", stdin=lines_of({"host": HOST, "labels": []}).rstrip())
    assert (result.code, result.json) == (0, {"accepted": [], "rejected": []})


def test_no_line_in_gives_no_line_out(run: Run) -> None:
    result = run("select", "--stdin", "--json")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_labels_are_taken_one_a_line_or_as_a_json_list(run: Run, gpu_host: str, tmp_path: Path) -> None:
    lines, listed = tmp_path / "labels.txt", tmp_path / "labels.json"
    lines.write_text("\n".join(LABELS) + "\n\n", encoding="utf-8")
    listed.write_text(json.dumps(LABELS), encoding="utf-8")
    answers = [run("select", "--host", gpu_host, "--labels", str(path), "--json").json for path in (lines, listed)]
    assert answers[0] == answers[1]
    assert answers[0]["accepted"] == ["torch213-cxx11-cu130-x86_64-linux"]
    assert [entry["label"] for entry in answers[0]["rejected"]] == sorted(set(LABELS) - set(answers[0]["accepted"]))


def test_text_lists_what_fits_then_the_closest_of_the_others(run: Run, gpu_host: str) -> None:
    result = run("select", "--host", gpu_host, "--labels", "-", stdin="\n".join(LABELS).encode())
    assert result.code == 0
    assert [line.split(":")[0] for line in result.out.splitlines()] == ["machine", "fits", "not", "not", "not"]
    assert "torch213-cxx11-cu130-x86_64-linux" in result.out.splitlines()[1]
    assert "garbage" in result.out.splitlines()[-1]
    assert result.err == ""


def test_nothing_that_fits_is_an_answer(run: Run, cpu_host: str) -> None:
    result = run("select", "--host", cpu_host, "--labels", "-", "--json", stdin=b"torch-cuda")
    assert (result.code, result.json["accepted"]) == (0, [])


def test_a_backend_can_be_asked_for(run: Run, gpu_host: str) -> None:
    result = run(
        "select", "--host", gpu_host, "--labels", "-", "--backend", "cpu", "--json", stdin="\n".join(LABELS).encode()
    )
    assert result.json["accepted"] == ["torch-cpu"]


@pytest.mark.parametrize(
    "words",
    [
        ("select",),
        ("select", "--host", "-", "--labels", "-"),
        ("select", "--stdin", "--host", "x"),
        ("select", "--stdin", "--labels", "x"),
    ],
)
def test_a_question_that_is_none_is_a_usage_error(run: Run, words: tuple[str, ...]) -> None:
    result = run(*words, "--json")
    assert (result.code, result.error["type"]) == (2, "UsageError")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"{", "is not JSON"),
        (b"[]", "a host is a JSON object"),
        (b'{"cpu": ""}', "is not a text"),
        (b'{"backend": "quantum"}', "quantum"),
    ],
)
def test_a_host_file_that_is_none_is_named(run: Run, tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "machine.json"
    if content is not None:
        path.write_bytes(content)
    result = run("select", "--host", str(path), "--labels", "-")
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert problem in result.err


@pytest.mark.parametrize("content", [b'["torch-cpu", 1]', b'["torch-cpu"', b"torch-\xff"])
def test_a_labels_file_that_is_none_is_named(run: Run, cpu_host: str, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels"
    path.write_bytes(content)
    result = run("select", "--host", cpu_host, "--labels", str(path), "--json")
    assert result.code == 2
    assert result.error["message"].startswith(str(path))
