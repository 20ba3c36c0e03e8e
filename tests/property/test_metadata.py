"""Laws of metadata."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kernels._rust import Metadata as PeerMetadata
from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.digest import Digest, DigestAlgorithm, Manifest
from kernel_hub.model.metadata import AtFixedRevision, AtVersion, Metadata
from kernel_hub.model.provenance import Provenance, SourceState
from kernel_hub.model.requirement import RepoId

TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
REPOS = st.just(RepoId("acme", "axpy"))
OBJECT_IDS = st.from_regex(r"[0-9a-f]{40}([0-9a-f]{24})?", fullmatch=True)
STATES = st.builds(SourceState, OBJECT_IDS, st.booleans())
MANIFESTS = st.sampled_from(DigestAlgorithm).flatmap(
    lambda algorithm: st.dictionaries(
        TEXTS, st.binary(max_size=8).map(lambda content: Digest.of(content, algorithm))
    ).map(lambda files: Manifest(algorithm, files))
)
METADATA = st.builds(
    Metadata,
    name=st.from_regex(r"[a-z][-a-z0-9]{0,20}[a-z0-9]", fullmatch=True),
    id=TEXTS,
    version=st.integers(0, (1 << 32) - 1),
    license=st.text(st.characters(codec="utf-8"), max_size=20),
    backend=st.sampled_from(BackendKind),
    archs=st.lists(TEXTS, max_size=4).map(tuple),
    python_depends=st.lists(TEXTS, max_size=3).map(tuple),
    kernel_depends=st.lists(
        st.builds(AtVersion, REPOS, st.integers(0, 1000)) | st.builds(AtFixedRevision, REPOS, TEXTS), max_size=3
    ).map(tuple),
    upstream=st.none() | st.just("https://example.org/x.git"),
    source=st.none() | st.just("git@example.org:x/y.git"),
    manifest=st.none() | MANIFESTS,
    provenance=st.none() | st.builds(Provenance, TEXTS, st.none() | STATES, st.none() | STATES),
    kernels_minver=st.none()
    | st.tuples(*[st.integers(0, 999)] * 3).map(lambda parts: Version("{}.{}.{}".format(*parts))),
)
# Infinity and NaN, which Python writes, are no JSON.
_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _NUMBERS | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
KEYS = ("name", "id", "version", "license", "backend", "python-depends", "kernel-depends", "digest", "provenance")
BASE = {
    "name": "axpy",
    "id": "_axpy",
    "version": 1,
    "license": "MIT",
    "python-depends": [],
    "backend": {"type": "cpu"},
}


@given(METADATA)
def test_reading_what_was_written_is_identity(metadata: Metadata) -> None:
    assert Metadata.parse(metadata.format()) == metadata


@given(METADATA)
def test_what_is_written_is_read_by_the_ecosystems_reader(metadata: Metadata) -> None:
    peers = PeerMetadata.from_bytes(metadata.format())
    assert (peers.id, peers.version, peers.license) == (metadata.id, metadata.version, metadata.license)
    if metadata.manifest is not None:
        listed = {path: digest.base64 for path, digest in metadata.manifest.files.items()}
        assert dict(peers.digest.files) == listed


@given(st.sampled_from(KEYS), JSON)
def test_any_value_of_any_key_is_read_or_a_typed_error_that_names_it(key: str, value: Any) -> None:
    try:
        Metadata.parse(json.dumps(BASE | {key: value}).encode())
    except InvalidDocumentError as error:
        assert error.location.startswith(key)


@given(st.sampled_from(KEYS), JSON)
def test_what_is_read_is_read_by_the_ecosystems_reader_too(key: str, value: Any) -> None:
    content = json.dumps(BASE | {key: value}).encode()
    try:
        Metadata.parse(content)
    except InvalidDocumentError:
        return
    PeerMetadata.from_bytes(content)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_a_typed_error(content: bytes) -> None:
    try:
        Metadata.parse(content)
    except InvalidDocumentError:
        return


@given(METADATA, st.data())
def test_metadata_that_was_cut_short_is_a_typed_error(metadata: Metadata, data: st.DataObject) -> None:
    content = metadata.format()
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    try:
        Metadata.parse(cut)
    except InvalidDocumentError:
        return
    raise AssertionError("half a document was read")
