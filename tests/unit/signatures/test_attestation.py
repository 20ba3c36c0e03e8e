"""Attestations: envelopes and statements, by the documents they implement."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.repo_path import attestation_path
from kernel_hub.signatures.attestation import Envelope, Signature, Statement, attestation_beside

STATEMENT = Statement.of("torch-cpu", b"{}", "acme/axpy")


def test_signatures_are_over_type_and_payload_with_their_lengths() -> None:
    assert Envelope(b"hello world").signed_bytes == b"DSSEv1 28 application/vnd.in-toto+json 11 hello world"


def test_the_statement_has_one_subject_with_its_digest() -> None:
    assert json.loads(STATEMENT.format()) == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {
                "name": "build/torch-cpu/metadata.json",
                "digest": {"sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
            }
        ],
        "predicateType": "urn:kernel-hub:attestation:build:1",
        "predicate": {"label": "torch-cpu", "repository": "acme/axpy"},
    }


@pytest.mark.parametrize("statement", [STATEMENT, Statement.of("torch-npu", b"x")])
def test_a_statement_is_read_back(statement: Statement) -> None:
    assert Statement.parse(statement.format(), name="payload") == statement


def test_an_envelope_is_read_back() -> None:
    envelope = Envelope(STATEMENT.format(), (Signature("a", b"1"), Signature("", b"2")))
    assert Envelope.parse(envelope.format(), name="attestation") == envelope


def test_a_signature_replaces_an_earlier_one_of_the_same_key() -> None:
    envelope = Envelope(b"x").with_signature(Signature("a", b"1")).with_signature(Signature("b", b"2"))
    assert envelope.with_signature(Signature("a", b"3")).signatures == (Signature("b", b"2"), Signature("a", b"3"))


@pytest.mark.parametrize(
    ("changes", "location"),
    [
        ({"_type": "x"}, "_type"),
        ({"predicateType": "x"}, "predicateType"),
        ({"subject": []}, "subject"),
        ({"subject": [{}, {}]}, "subject"),
        ({"subject": [{"name": "build/torch-cuda/metadata.json", "digest": {"sha256": "0" * 64}}]}, "subject[0].name"),
        ({"subject": [{"name": "build/torch-cpu/metadata.json", "digest": {}}]}, "subject[0].digest.sha256"),
        (
            {"subject": [{"name": "build/torch-cpu/metadata.json", "digest": {"sha256": "00"}}]},
            "subject[0].digest.sha256",
        ),
        ({"predicate": {}}, "predicate.label"),
        ({"predicate": {"label": 1}}, "predicate.label"),
    ],
)
def test_a_faulty_statement_is_located(changes: dict[str, Any], location: str) -> None:
    document = json.loads(STATEMENT.format()) | changes
    with pytest.raises(InvalidDocumentError) as caught:
        Statement.parse(json.dumps(document).encode(), name="payload")
    assert caught.value.location == location


@pytest.mark.parametrize(
    ("changes", "location"),
    [
        ({"payloadType": "text/plain"}, "payloadType"),
        ({"payload": "?"}, "payload"),
        ({"payload": 1}, "payload"),
        ({"signatures": {}}, "signatures"),
        ({"signatures": [{"sig": "?"}]}, "signatures[0].sig"),
        ({"signatures": [{"keyid": 1, "sig": "AAAA"}]}, "signatures[0].keyid"),
    ],
)
def test_a_faulty_envelope_is_located(changes: dict[str, Any], location: str) -> None:
    document = json.loads(Envelope(b"x").format()) | changes
    with pytest.raises(InvalidDocumentError) as caught:
        Envelope.parse(json.dumps(document).encode(), name="attestation")
    assert caught.value.location == location


def test_an_envelope_that_others_wrote_is_read() -> None:
    content = {
        "payload": base64.b64encode(b"x").decode(),
        "payloadType": "application/vnd.in-toto+json",
        "signatures": [{"sig": "AAAA", "cert": "..."}],
        "extra": 1,
    }
    assert Envelope.parse(json.dumps(content).encode(), name="attestation").signatures == (Signature("", b"\0\0\0"),)


def test_attestations_lie_beside_the_builds(tmp_path: Path) -> None:
    root = tmp_path / "build" / "torch-cpu"
    root.mkdir(parents=True)
    assert attestation_path("torch-cpu") == "attestations/torch-cpu.json"
    assert attestation_beside(root, "torch-cpu") is None
    file = tmp_path / attestation_path("torch-cpu")
    file.parent.mkdir()
    file.touch()
    assert attestation_beside(root, "torch-cpu") == file
    assert attestation_beside(tmp_path / "torch-cpu", "torch-cpu") is None
