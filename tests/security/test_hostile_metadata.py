"""Attack: a `metadata.json` made to crash, stall or mislead its reader. Nothing of such a build is ever imported."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError, KernelHubError
from kernel_hub.model.artifact import Expectation
from kernel_hub.verify import verify
from tests.support.artifacts import from_source, write_build

ENFORCED_BY = "kernel_hub.model.metadata.Metadata.parse"
VALID = {
    "name": "axpy",
    "id": "_axpy",
    "version": 1,
    "license": "MIT",
    "python-depends": [],
    "backend": {"type": "cpu"},
}
TEXT = json.dumps(VALID)

HOSTILE = {
    "empty": b"",
    "cut short": TEXT.encode()[:-20],
    "longer than 1 MiB": TEXT.encode() + b" " * (1 << 20),
    "longer than 1 MiB inside": json.dumps(VALID | {"x": "a" * (1 << 20)}).encode(),
    "not UTF-8": TEXT.encode("utf-16"),
    "a list": b"[]",
    "a number": b"1",
    "wrong types": json.dumps(VALID | {"version": "1"}).encode(),
    "a list for an object": json.dumps(VALID | {"backend": ["cpu"]}).encode(),
    "duplicate key": TEXT[:-1].encode() + b', "name": "other"}',
    "duplicate file in the digest": TEXT[:-1].encode()
    + b', "digest": {"algorithm": "sha256", "files": {"a": "", "a": ""}}}',
    "deep nesting of lists": TEXT[:-1].encode() + b', "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep nesting of objects": TEXT[:-1].encode() + b', "x": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "not a number": TEXT[:-1].encode() + b', "x": NaN}',
    "infinity": TEXT[:-1].encode() + b', "x": Infinity}',
    "a number of a million digits": TEXT[:-1].encode() + b', "x": ' + b"9" * 1_000_000 + b"}",
    "half a surrogate pair in a path": TEXT[:-1].encode()
    + b', "digest": {"algorithm": "sha256", "files": {"\\ud800": ""}}}',
    "an unknown algorithm": json.dumps(VALID | {"digest": {"algorithm": "md5", "files": {}}}).encode(),
    "a null document": b"null",
    "zero bytes": bytes(1000),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_it_is_a_typed_error_that_names_file_and_build(tmp_path: Path, content: bytes) -> None:
    root = write_build(tmp_path / "torch-cpu", {"__init__.py": ""})
    (root / "metadata.json").write_bytes(content)
    with pytest.raises(InvalidDocumentError, match=r"^metadata\.json of build torch-cpu of acme/axpy") as caught:
        verify(from_source(root), Expectation())
    assert caught.value.exit_code == 2
    assert len(str(caught.value)) < 1000


def test_the_recursion_limit_of_the_caller_is_respected(tmp_path: Path) -> None:
    root = write_build(tmp_path / "torch-cpu", {"__init__.py": ""})
    (root / "metadata.json").write_bytes(HOSTILE["deep nesting of lists"])
    limit = sys.getrecursionlimit()
    with pytest.raises(KernelHubError):
        verify(from_source(root), Expectation())
    assert sys.getrecursionlimit() == limit
