"""How fast `verify` reads a build, beside plain hashlib over the same files in one thread.

Both see the files as they are in the page cache. A large native build carries ids by SHA-256, as the Hub gives for large
files, and a Python build ids as git gives, which is a second digest (SHA-1) of every file; a second comparison takes that of
hashlib, too.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.loader.clients import WrongResultError
from benchmarks.loader.summary import Spread, ratios
from kernel_hub.model.artifact import Artifact, Expectation, FromSource
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import BlobId, GitBlob, LfsBlob, Pin
from kernel_hub.verify import verify
from kernel_hub.verify.identities import blob_of
from tests.support.fake_kernels import fake_build

_MIB = 1 << 20


def measure_verifying(scratch: Path, rounds: int) -> list[dict[str, Any]]:
    """One row for each shape of build."""
    chance = Random(7)
    native = {f"_native_{number}.abi3.so": chance.randbytes(48 * _MIB) for number in range(4)}
    python = {f"parts/part_{number:03}.py": chance.randbytes(3000).hex().encode() for number in range(597)}
    return [
        _measure("4 native files of 48 MiB", _written(scratch / "native", native, LfsBlob("0")), rounds),
        _measure("600 Python files of 6 kB", _written(scratch / "python", python, GitBlob("0")), rounds),
    ]


def _written(folder: Path, files: Mapping[str, bytes], kind: BlobId) -> Artifact:
    build = fake_build(files=files)
    announced = {}
    for path, content in build.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        announced[path] = blob_of(content, kind)
    origin = FromSource(Pin(RepoId.parse("acme/axpy"), "c0ffee" * 6 + "c0de", version=1, ref="v1"), "benchmark")
    return Artifact(origin, "torch-cpu", folder, announced=announced)


def _measure(title: str, artifact: Artifact, rounds: int) -> dict[str, Any]:
    paths = sorted(path for path in artifact.root.rglob("*") if path.is_file())
    size_bytes = sum(path.stat().st_size for path in paths)
    ours, plain, same = [], [], []
    turns = ("ours", "plain", "same")
    for number in range(rounds + 1):
        for turn in turns if number % 2 == 0 else reversed(turns):
            begin_s = time.perf_counter()
            if turn == "ours":
                verified = verify(artifact, Expectation())
                ours.append(time.perf_counter() - begin_s)
            elif turn == "plain":
                digests = _plain(paths)
                plain.append(time.perf_counter() - begin_s)
            else:
                _named_by_source(paths, artifact.announced or {})
                same.append(time.perf_counter() - begin_s)
        if {path: item.digest.hex for path, item in verified.files.items()} != {
            path.relative_to(artifact.root).as_posix(): digest
            for path, digest in digests.items()
            if path.name != "metadata.json"
        }:
            raise WrongResultError(f"{title}: verify and hashlib do not agree")
    # The first round brought the files into memory.
    ours, plain, same = ours[1:], plain[1:], same[1:]
    return {
        "build": title,
        "bytes": size_bytes,
        "verify_mb_per_s": Spread.of([size_bytes / 1e6 / time_s for time_s in ours]).to_json(),
        "hashlib_mb_per_s": Spread.of([size_bytes / 1e6 / time_s for time_s in plain]).to_json(),
        "ratio": ratios(plain, ours).to_json(),
        "same_digests_ratio": ratios(same, ours).to_json(),
    }


def _named_by_source(paths: list[Path], announced: Mapping[str, BlobId]) -> None:
    """As `_plain`, with the digest that the source's id of a file needs beside it."""
    needs_second = any(isinstance(blob, GitBlob) for blob in announced.values())
    for path in paths:
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256").hexdigest()
            if needs_second:
                file.seek(0)
                hashlib.file_digest(file, "sha1").hexdigest()


def _plain(paths: list[Path]) -> dict[Path, str]:
    digests = {}
    for path in paths:
        with path.open("rb") as file:
            digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests
