"""Laws of verification: an intact tree passes, and any one change to what can be imported does not, stamped or not."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_hub.errors import DigestMismatchError
from kernel_hub.model.artifact import Artifact, Expectation
from kernel_hub.model.digest import covers
from kernel_hub.model.source import BlobId, GitBlob, LfsBlob
from kernel_hub.verify import Stamps, verify
from kernel_hub.verify.identities import blob_of
from tests.support.artifacts import from_folder, from_source, write_build

NAMES = st.sampled_from(["a.py", "b.py", "_k.abi3.so", "größe.py", ".hidden", "x.PYC", "README"])
FOLDERS = st.sampled_from(["", "sub/", "sub/deep/", "other/"])
PATHS = st.builds("{}{}".format, FOLDERS, NAMES)
TREES = st.dictionaries(PATHS, st.binary(max_size=64), max_size=6).map(lambda files: {"__init__.py": b"", **files})
KINDS = st.sampled_from([GitBlob(""), LfsBlob("")])


def artifact_of(root: Path, kind: BlobId | None) -> Artifact:
    if kind is None:
        return from_folder(root)
    files = [path for path in root.rglob("*") if path.is_file()]
    return from_source(
        root, announced={path.relative_to(root).as_posix(): blob_of(path.read_bytes(), kind) for path in files}
    )


def is_refused(artifact: Artifact, stamps: Stamps | None) -> bool:
    try:
        verify(artifact, Expectation(), stamps=stamps)
    except DigestMismatchError:
        return True
    return False


def change(root: Path, path: str, data: st.DataObject) -> None:
    """One change of one file: a byte, the length, the name, or that it is there."""
    file = root / path
    content = file.read_bytes()
    match data.draw(st.sampled_from(["flip", "cut", "grow", "remove", "rename", "empty"])):
        case "flip" if content:
            position = data.draw(st.integers(0, len(content) - 1))
            bit = 1 << data.draw(st.integers(0, 7))
            file.write_bytes(content[:position] + bytes([content[position] ^ bit]) + content[position + 1 :])
        case "cut" | "empty" if content:
            file.write_bytes(content[:-1] if len(content) > 1 else b"")
        case "rename":
            file.rename(file.with_name(f"{file.name}2"))
        case "remove":
            file.unlink()
        case _:
            file.write_bytes(content + b"\n")


@settings(max_examples=60, deadline=None)
@given(TREES, st.none() | KINDS, st.booleans(), st.data())
def test_an_intact_tree_passes_and_any_one_change_is_refused(
    files: dict[str, bytes], kind: BlobId | None, has_digest: bool, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = write_build(
            Path(folder) / "torch-cpu", files, **({} if has_digest or kind is None else {"algorithm": None})
        )
        stamps = data.draw(st.sampled_from([None, Stamps(Path(folder) / "stamps")]))
        artifact = artifact_of(root, kind)
        assert not is_refused(artifact, stamps)
        assert not is_refused(artifact, stamps)
        path = data.draw(st.sampled_from(sorted(files)))
        before = (root / path).stat().st_ctime_ns
        change(root, path, data)
        # Some filesystems' clocks are slower than this test.
        while (root / path).exists() and (root / path).stat().st_ctime_ns == before:
            (root / path).chmod(0o644)
        assert is_refused(artifact, stamps)


@settings(max_examples=40, deadline=None)
@given(TREES, PATHS, st.booleans())
def test_a_file_that_nobody_listed_is_refused(files: dict[str, bytes], path: str, is_stamped: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = write_build(Path(folder) / "torch-cpu", files)
        stamps = Stamps(Path(folder) / "stamps") if is_stamped else None
        assert not is_refused(from_folder(root), stamps)
        added = root / f"{path}.new"
        added.parent.mkdir(parents=True, exist_ok=True)
        added.write_bytes(b"")
        assert covers(f"{path}.new")
        assert is_refused(from_folder(root), stamps)


@settings(max_examples=40, deadline=None)
@given(TREES)
def test_the_tree_digest_is_that_of_the_files_and_of_nothing_else(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = write_build(Path(folder) / "one" / "torch-cpu", files)
        two = write_build(
            Path(folder) / "two" / "torch-cpu", dict(reversed(files.items())), license="MIT", algorithm=None
        )
        (two / "__pycache__").mkdir()
        (two / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"anything")
        results = [verify(from_folder(root), Expectation()) for root in (one, two)]
        assert results[0].tree_digest == results[1].tree_digest
        assert results[0].files.keys() == results[1].files.keys() == files.keys()
