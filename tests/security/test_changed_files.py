"""Attack: the files of a build change after they were fetched, or a whole other build is put in their place."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kernel_hub.errors import DigestMismatchError, IdentityMismatchError, KernelHubError
from kernel_hub.importer import import_artifact
from kernel_hub.model.artifact import Artifact, Expectation
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.digest import build_digest
from kernel_hub.model.source import BlobId, GitBlob
from kernel_hub.verify import verify
from kernel_hub.verify.identities import blob_of
from tests.support.artifacts import from_source, write_build

ENFORCED_BY = "kernel_hub.verify.verify"
BODY = "import attack_witness\nattack_witness.ran.append(__name__)\n"
FILES: dict[str, str | bytes] = {"__init__.py": BODY, "_math.py": "ONE = 1\n", "table.bin": bytes(range(256)) * 64}


@pytest.fixture
def ran() -> Iterator[list[str]]:
    witness = ModuleType("attack_witness")
    witness.ran = []  # type: ignore[attr-defined]
    sys.modules["attack_witness"] = witness
    yield witness.ran
    del sys.modules["attack_witness"]


def listing_of(root: Path) -> dict[str, BlobId]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): blob_of(path.read_bytes(), GitBlob("")) for path in files}


def load(artifact: Artifact, expectation: Expectation = Expectation()) -> None:  # noqa: B008  it is frozen
    import_artifact(verify(artifact, expectation))


@pytest.mark.parametrize("path", [*FILES, "metadata.json"])
@pytest.mark.parametrize("position", [0, -1])
@pytest.mark.parametrize("has_digest", [True, False])
def test_one_changed_byte_of_any_file_is_refused_before_any_code_runs(
    tmp_path: Path, ran: list[str], path: str, position: int, has_digest: bool
) -> None:
    root = write_build(tmp_path / "torch-cpu", FILES, **({} if has_digest else {"algorithm": None}))
    artifact = from_source(root, announced=listing_of(root))
    content = bytearray((root / path).read_bytes())
    content[position] ^= 1
    (root / path).write_bytes(content)
    with pytest.raises(DigestMismatchError) as caught:
        load(artifact)
    assert [item.path for item in caught.value.violations] == [path]
    assert ran == []


@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_truncated_file_is_refused_before_any_code_runs(tmp_path: Path, ran: list[str], length: int) -> None:
    root = write_build(tmp_path / "torch-cpu", FILES)
    (root / "table.bin").write_bytes(bytes(range(256))[:length])
    with pytest.raises(DigestMismatchError, match=r"table\.bin: changed"):
        load(from_source(root))
    assert ran == []


def test_an_added_module_is_refused_before_any_code_runs(tmp_path: Path, ran: list[str]) -> None:
    root = write_build(tmp_path / "torch-cpu", FILES)
    (root / "sitecustomize.py").write_text(BODY)
    with pytest.raises(DigestMismatchError, match=r"sitecustomize\.py: not in the manifest"):
        load(from_source(root))
    assert ran == []


class TestSwappedFolder:
    """Another kernel's folder, consistent in itself, in the place of the one that was fetched."""

    @pytest.fixture
    def swapped(self, tmp_path: Path) -> Artifact:
        root = write_build(tmp_path / "torch-cpu", FILES)
        artifact = from_source(root, announced=listing_of(root))
        shutil.rmtree(root)
        write_build(root, FILES | {"_math.py": "ONE = 2\n"}, name="evil", id="_evil_cpu_1")
        return artifact

    def test_it_is_not_what_the_source_announced(self, swapped: Artifact, ran: list[str]) -> None:
        with pytest.raises(DigestMismatchError) as caught:
            load(swapped)
        assert [item.path for item in caught.value.violations] == ["_math.py", "metadata.json"]
        assert ran == []

    def test_without_a_listing_the_locked_tree_shows_it(self, tmp_path: Path, ran: list[str]) -> None:
        good = write_build(tmp_path / "good", FILES)
        manifest = verify(from_source(good), Expectation()).metadata.manifest
        assert manifest is not None
        locked = build_digest((good / "metadata.json").read_bytes(), manifest)
        other = write_build(tmp_path / "other", FILES | {"_math.py": "ONE = 2\n"})
        with pytest.raises(DigestMismatchError):
            load(from_source(other), Expectation(build_digest=locked))
        assert ran == []

    @pytest.mark.parametrize(
        "expectation", [Expectation(version=2), Expectation(backend=BackendKind.CUDA)], ids=["version", "backend"]
    )
    def test_without_either_what_was_asked_for_shows_it(
        self, tmp_path: Path, ran: list[str], expectation: Expectation
    ) -> None:
        with pytest.raises(IdentityMismatchError):
            load(from_source(write_build(tmp_path / "torch-cpu", FILES)), expectation)
        assert ran == []

    def test_a_build_under_another_builds_name_is_refused(self, tmp_path: Path, ran: list[str]) -> None:
        root = write_build(tmp_path / "t", FILES)
        with pytest.raises(IdentityMismatchError, match="backend"):
            load(from_source(root, label="torch-stable-abi211-cu130-x86_64-linux"))
        assert ran == []


def test_every_refusal_says_that_nothing_was_imported(tmp_path: Path) -> None:
    root = write_build(tmp_path / "torch-cpu", FILES)
    (root / "_math.py").write_text("")
    with pytest.raises(KernelHubError) as caught:
        load(from_source(root))
    assert "nothing was imported" in caught.value.hint()
