"""Signing the builds of a folder: verified first, one attestation each, signatures of several people side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.errors import DigestMismatchError, DigestMissingError, InvalidDocumentError
from kernel_hub.signatures import Envelope, PrivateKey
from kernel_hub.signatures.attestation import Statement
from kernel_hub.signing import sign_folder
from tests.support.artifacts import write_build

ALICE, BOB = PrivateKey(b"\1" * 32), PrivateKey(b"\2" * 32)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_build(tmp_path / "build" / "torch-cpu", {"__init__.py": ""})
    write_build(tmp_path / "build" / "torch-cuda", {"__init__.py": ""}, backend={"type": "cuda"})
    (tmp_path / "build" / "notes").mkdir()
    return tmp_path


def envelope(path: Path) -> Envelope:
    return Envelope.parse(path.read_bytes(), name=str(path))


def test_every_build_gets_an_attestation_outside_of_it(project: Path) -> None:
    before = sorted(path for path in (project / "build").rglob("*"))
    written = sign_folder(project, ALICE, repository="acme/axpy")
    assert written == (project / "attestations" / "torch-cpu.json", project / "attestations" / "torch-cuda.json")
    assert sorted(path for path in (project / "build").rglob("*")) == before
    metadata = (project / "build" / "torch-cpu" / "metadata.json").read_bytes()
    assert Statement.parse(envelope(written[0]).payload, name="x") == Statement.of("torch-cpu", metadata, "acme/axpy")


def test_one_build_can_be_signed_alone(project: Path) -> None:
    assert sign_folder(project / "build" / "torch-cpu", ALICE) == (project / "attestations" / "torch-cpu.json",)


def test_a_second_signer_is_added_and_signing_again_changes_nothing(project: Path) -> None:
    first, _ = sign_folder(project, ALICE)
    sign_folder(project, BOB)
    content = first.read_bytes()
    assert len(envelope(first).signatures) == 2
    sign_folder(project, BOB)
    assert first.read_bytes() == content


def test_signatures_of_an_older_build_are_not_kept(project: Path) -> None:
    first, _ = sign_folder(project, ALICE)
    write_build(project / "build" / "torch-cpu", {"__init__.py": "new\n"})
    sign_folder(project, BOB)
    assert len(envelope(first).signatures) == 1


def test_what_would_not_be_loaded_is_not_signed_and_nothing_is_written(project: Path) -> None:
    (project / "build" / "torch-cuda" / "__init__.py").write_text("changed")
    with pytest.raises(DigestMismatchError):
        sign_folder(project, ALICE)
    assert not (project / "attestations").exists()


def test_a_build_without_digest_is_not_signed(tmp_path: Path) -> None:
    write_build(tmp_path / "build" / "torch-cpu", {"__init__.py": ""}, algorithm=None)
    with pytest.raises(DigestMissingError, match="would not cover the files"):
        sign_folder(tmp_path, ALICE)


def test_builds_that_do_not_lie_below_build_are_refused(tmp_path: Path) -> None:
    write_build(tmp_path / "torch-cpu", {"__init__.py": ""})
    with pytest.raises(InvalidDocumentError, match="'build'"):
        sign_folder(tmp_path, ALICE)


def test_a_folder_without_builds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocumentError):
        sign_folder(tmp_path, ALICE)
