"""The text of a lock: what is read, what is refused and where, and that there is one form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.lock import Lock
from kernel_hub.model.lock_text import MAX_BYTES, format_lock, parse_lock
from kernel_hub.model.requirement import AnyVersion, ExactVersion, RepoId, Requirement, VersionRange

VECTORS = Path(__file__).parents[2] / "vectors" / "locks"
WHOLE = (VECTORS / "every-kind.lock").read_bytes()
EDITS: list[dict[str, str]] = json.loads((VECTORS / "faults.json").read_text(encoding="utf-8"))["edits"]


def read(content: bytes) -> Lock:
    return parse_lock(content, name="kernel-hub.lock")


@pytest.mark.parametrize("path", sorted(VECTORS.glob("*.lock")), ids=lambda path: path.name)
def test_a_written_lock_is_read_and_written_again_byte_for_byte(path: Path) -> None:
    assert format_lock(read(path.read_bytes())) == path.read_bytes()


def test_every_kind_of_entry_is_read() -> None:
    lock = read(WHOLE)
    axpy, core, moe, attn = lock.kernels
    assert [str(target) for target in lock.targets] == ["linux-aarch64-cu130", "linux-x86_64-cu128-torch2.13-9.0-10.0"]
    assert (axpy.version, axpy.registry, axpy.python_depends) == (2, "acme", ("einops", "nvidia-cutlass-dsl"))
    assert isinstance(axpy.wishes[0], VersionRange) and axpy.wishes[1] == ExactVersion(2)
    assert lock.dependencies_of(axpy) == (core,)
    assert [build.archs for build in axpy.builds] == [("8.0", "9.0a"), ("8.0", "9.0+PTX")]
    assert axpy.size_bytes == 4096 + 1048576
    assert moe.wishes == (AnyVersion(),)
    assert attn.registry is None and len(attn.commit) == 64


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit["fault"])
def test_a_fault_is_refused_and_named(edit: dict[str, Any]) -> None:
    text = WHOLE.decode()
    assert edit["old"] in text
    with pytest.raises(InvalidDocumentError) as caught:
        read(text.replace(edit["old"], edit["new"], 1).encode())
    assert caught.value.location == edit["location"]
    assert edit["problem"] in caught.value.problem
    assert caught.value.document == "kernel-hub.lock"


def test_a_lock_cut_anywhere_is_refused_or_means_the_same() -> None:
    whole = read(WHOLE)
    end_of_content = len(WHOLE.rstrip())
    for length in range(len(WHOLE)):
        try:
            cut = read(WHOLE[:length])
        except InvalidDocumentError as error:
            assert error.location or "TOML" in error.problem
        else:
            # Cut before the first table, only what follows is missing: an empty lock, which answers nothing.
            assert cut == whole if length >= end_of_content else not cut.kernels, length


def test_a_lock_without_utf8_names_the_line() -> None:
    with pytest.raises(InvalidDocumentError, match="not UTF-8") as caught:
        read(WHOLE.replace(b'"acme/moe"', b'"acme/\xff"', 1))
    assert caught.value.location == "line 7"


def test_an_oversized_lock_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidDocumentError, match="longer than"):
        read(b"#" * (MAX_BYTES + 1))


def test_values_that_need_escapes_survive() -> None:
    text = WHOLE.decode().replace('"torch-universal"', r'"torch-\"\\\u007f\n\u0001"')
    lock = read(text.encode())
    assert lock.kernels[1].builds[0].label == 'torch-"\\\x7f\n\x01'
    assert read(format_lock(lock)) == lock


def requirement(text: str) -> Requirement:
    return Requirement.parse(text)


def test_a_requirement_finds_the_entry_made_for_it_and_then_one_that_satisfies_it() -> None:
    lock = read(WHOLE)
    axpy = lock.kernels[0]
    for text in ("acme/axpy", "acme/axpy@v2", "acme/axpy@>=1,<3", "acme/axpy@>=2", f"acme/axpy@{axpy.commit}"):
        assert lock.find(requirement(text)) == axpy, text
    for text in ("acme/axpy@v1", "acme/axpy@>2", "acme/axpy@main", "acme/other", "other/axpy@v2"):
        assert lock.find(requirement(text)) is None, text


def test_a_kernel_locked_twice_gives_the_projects_own_without_a_wish() -> None:
    text = WHOLE.decode().replace('repo = "acme/core-ops"', 'repo = "acme/axpy"', 1)
    lock = read(text.replace('"acme/core-ops@v1"', '"acme/axpy@v1"', 1).encode())
    assert [kernel.version for kernel in lock.named(RepoId.parse("acme/axpy"))] == [1, 2]
    found = {text: lock.find(requirement(text)) for text in ("acme/axpy", "acme/axpy@v1", "acme/axpy@<2")}
    assert {text: kernel.version for text, kernel in found.items() if kernel} == {
        "acme/axpy": 2,
        "acme/axpy@v1": 1,
        "acme/axpy@<2": 1,
    }
