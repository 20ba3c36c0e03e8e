"""What builds say of themselves, in words: every part of metadata that people ask about."""

from __future__ import annotations

import pytest

from kernel_hub.inspection import BuildRecord, Inspection
from kernel_hub.model.metadata import Metadata
from kernel_hub.model.requirement import Requirement
from kernel_hub.model.source import Pin

FULL = b"""{
  "name": "axpy", "id": "_axpy_cuda_1", "version": 2, "license": "MIT",
  "upstream": "https://example.org/upstream.git", "source": "https://example.org/source.git",
  "python-depends": ["einops"], "kernel-depends": [{"repo-id": "acme/base", "version": 1}],
  "backend": {"type": "cuda", "archs": ["8.0", "9.0a"]},
  "provenance": {"kernel-builder": {"version": "0.15.0", "commit": "%s", "dirty": false},
                 "kernel": {"commit": "%s", "dirty": true}},
  "kernels-minver": "0.15.0"
}""" % (b"a" * 40, b"b" * 40)
SMALL = b"""{"name": "axpy", "id": "_axpy_cpu_1", "version": 2, "license": "MIT", "python-depends": [],
  "backend": {"type": "cpu"}}"""


def record(content: bytes) -> BuildRecord:
    return BuildRecord("torch-cuda", 3, 12345, Metadata.parse(content), "")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            FULL,
            {
                "fits": "yes",
                "size": "12,345 bytes in 3 files",
                "name": "axpy version 2, licence MIT",
                "backend": "cuda (8.0, 9.0a)",
                "python": "einops",
                "kernels": "acme/base",
                "client": "kernels 0.15.0 or later",
                "upstream": "https://example.org/upstream.git",
                "source": "https://example.org/source.git",
                "digest": "none",
                "built": "by kernel-builder 0.15.0 at commit aaaaaaaaaaaa",
                "from": "the kernel's sources at commit bbbbbbbbbbbb, with changes",
            },
        ),
        (
            SMALL,
            {
                "fits": "yes",
                "size": "12,345 bytes in 3 files",
                "name": "axpy version 2, licence MIT",
                "backend": "cpu",
                "digest": "none",
                "built": "no provenance",
            },
        ),
    ],
    ids=["everything", "nothing optional"],
)
def test_what_metadata_says_is_put_into_words(content: bytes, expected: dict[str, str]) -> None:
    assert dict(record(content).lines()) == expected


def test_a_build_without_readable_metadata_has_its_fault_in_place_of_it() -> None:
    lines = dict(BuildRecord("torch-cuda", 1, 5, None, "metadata.json is not JSON").lines())
    assert lines == {"fits": "yes", "size": "5 bytes in 1 files", "fault": "metadata.json is not JSON"}


@pytest.mark.parametrize(
    ("is_chosen", "obstacles", "told"),
    [
        (True, "", "yes, and is loaded"),
        (False, "", "yes"),
        (False, "torch: needs 2.9, here 2.13", "no: torch: needs 2.9, here 2.13"),
    ],
)
def test_a_build_says_whether_it_fits_and_what_keeps_it_from_it(is_chosen: bool, obstacles: str, told: str) -> None:
    build = BuildRecord("x", 1, 5, None, "no", is_chosen=is_chosen, obstacles=obstacles)
    assert dict(build.lines())["fits"] == told
    document = build.to_json()
    assert (document["fits"], document["chosen"], document["obstacles"]) == (
        not obstacles,
        is_chosen,
        obstacles or None,
    )


def test_json_has_the_keys_of_the_file_and_says_what_is_unknown() -> None:
    document = record(SMALL).to_json()
    assert document["metadata"]["backend"] == {"type": "cpu"}
    assert (document["size_bytes"], document["files"], document["fault"]) == (12345, 3, None)
    assert BuildRecord("x", 1, 5, None, "no").to_json()["metadata"] is None


def test_a_kernel_without_builds_says_so() -> None:
    requirement = Requirement.parse("acme/axpy@v1")
    pin = Pin(requirement.repo, "a" * 40, version=1, ref="v1")
    empty = Inspection(requirement, "https://hub.example", pin, ())
    assert str(empty).splitlines()[1:] == ["  it has no builds at all"]
    assert empty.to_json()["builds"] == []
