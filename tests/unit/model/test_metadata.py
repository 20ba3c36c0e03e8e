"""`metadata.json`: what is one, what is none, and that the ecosystem's own reader agrees."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from kernels._rust import Metadata as PeerMetadata
from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.digest import Digest, DigestAlgorithm, Manifest
from kernel_hub.model.metadata import AtFixedRevision, AtVersion, Metadata, check_git_url, is_kernel_name, python_name
from kernel_hub.model.requirement import RepoId

VECTORS = Path(__file__).parents[2] / "vectors"
DOCUMENT = json.loads((VECTORS / "metadata" / "cases.json").read_text(encoding="utf-8"))
CASES: list[dict[str, Any]] = DOCUMENT["cases"]
EXAMPLE = (VECTORS / "repo-format" / "metadata.json").read_bytes()


def content_of(case: dict[str, Any]) -> bytes:
    """The document of a case: given whole, or as a change of the base document."""
    base = json.dumps(DOCUMENT["base"])
    match case:
        case {"text": text}:
            return str(text).encode()
        case {"base64": text}:
            return base64.b64decode(text)
        case {"base_plus_spaces": count}:
            return base.encode() + b" " * count
        case {"base_plus_nesting": depth}:
            return f'{base[:-1]}, "q": {"[" * depth}{"]" * depth}}}'.encode()
        case {"base_plus_digits": count}:
            return f'{base[:-1]}, "q": {"9" * count}}}'.encode()
        case _:
            document = DOCUMENT["base"] | case.get("change", {})
            return json.dumps(
                {key: value for key, value in document.items() if key not in case.get("remove", ())}
            ).encode()


def with_keys(**changes: object) -> bytes:
    return json.dumps(DOCUMENT["base"] | {key.replace("_", "-"): value for key, value in changes.items()}).encode()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_a_document_is_accepted_or_its_fault_located(case: dict[str, Any]) -> None:
    if case["accepted"]:
        Metadata.parse(content_of(case))
        return
    with pytest.raises(InvalidDocumentError) as caught:
        Metadata.parse(content_of(case), name="metadata.json of build/torch-cpu")
    assert caught.value.location == case["location"]
    assert str(caught.value).startswith("metadata.json of build/torch-cpu")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_the_ecosystems_reader_decides_alike_except_where_a_reason_is_given(case: dict[str, Any]) -> None:
    assert ("peer_accepts" in case) == ("why" in case)
    try:
        PeerMetadata.from_bytes(content_of(case))
        accepted = True
    except ValueError:
        accepted = False
    assert accepted == case.get("peer_accepts", case["accepted"])


def test_every_key_of_the_format_is_read() -> None:
    read = Metadata.parse(EXAMPLE)
    assert (read.name, read.python_name, read.id, read.version) == ("axpy", "axpy", "_axpy_cuda_0123abc", 1)
    assert (read.license, read.upstream, read.source) == ("Apache-2.0", None, "https://example.org/acme/axpy.git")
    assert read.python_depends == ("einops", "nvidia-cutlass-dsl")
    assert read.kernel_depends == (AtVersion(RepoId("acme", "base-ops"), 2),)
    assert (read.backend, read.archs) == (BackendKind.CUDA, ("8.0", "9.0+PTX", "9.0a"))
    assert read.manifest is not None
    assert (read.manifest.algorithm, list(read.manifest.files)) == (DigestAlgorithm.SHA256, ["__init__.py"])
    assert read.provenance is not None
    assert read.provenance.builder is not None
    assert read.provenance.kernel is not None
    assert (read.provenance.builder.commit, read.provenance.builder.dirty) == ("1" * 40, False)
    assert (read.provenance.kernel.commit, read.provenance.dirty) == ("2" * 40, True)
    assert read.kernels_minver == Version("0.17.0")


def test_values_are_those_that_the_ecosystems_reader_finds() -> None:
    ours, peers = Metadata.parse(EXAMPLE), PeerMetadata.from_bytes(EXAMPLE)
    assert (ours.id, ours.version, ours.license) == (peers.id, peers.version, peers.license)
    assert (str(ours.name), ours.python_name) == (str(peers.name), peers.name.python_name)
    assert list(ours.python_depends) == list(peers.python_depends)
    assert list(ours.archs) == list(peers.backend.archs)
    assert [str(item.repo) for item in ours.kernel_depends] == [item.repo_id for item in peers.kernel_depends]


def test_what_is_written_reads_as_the_same_value_for_both_readers() -> None:
    read = Metadata.parse(EXAMPLE)
    written = read.format()
    assert Metadata.parse(written) == read
    assert PeerMetadata.from_bytes(written).id == read.id


def test_writing_is_a_fixed_point_with_the_ecosystems_layout() -> None:
    written = Metadata.parse(EXAMPLE).format()
    assert Metadata.parse(written).format() == written
    text = written.decode()
    assert text.startswith('{\n  "name": "axpy",\n  "id": ')
    assert not text.endswith("\n")
    keys = ["name", "id", "version", "license", "source", "python-depends", "kernel-depends", "backend", "digest"]
    assert list(json.loads(text)) == [*keys, "provenance", "kernels-minver"]


def test_a_manifest_replaces_another() -> None:
    manifest = Manifest(DigestAlgorithm.SHA256, {"a.py": Digest.of(b"")})
    assert Metadata.parse(Metadata.parse(EXAMPLE).with_manifest(manifest).format()).manifest == manifest


def test_unknown_keys_are_accepted_at_every_level() -> None:
    nested = {"type": "cpu", "vendor": "x"}
    provenance = {"kernel-builder": {"version": "1", "host": "x"}, "signed-by": "x"}
    read = Metadata.parse(with_keys(backend=nested, provenance=provenance, tuned_for=["x"]))
    assert read.backend is BackendKind.CPU


def test_a_missing_key_names_key_build_and_the_least_client() -> None:
    document = json.loads(with_keys(kernels_minver="0.19.0"))
    del document["python-depends"]
    with pytest.raises(InvalidDocumentError) as caught:
        Metadata.parse(json.dumps(document).encode(), name="metadata.json of build torch-cpu of acme/axpy@v1")
    assert caught.value.location == "python-depends"
    for part in ("torch-cpu", "acme/axpy", "python-depends", "is missing", "kernels >= 0.19.0"):
        assert part in str(caught.value)


def test_a_fault_without_a_least_client_promises_nothing() -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        Metadata.parse(with_keys(id=5))
    assert caught.value.hint() == ""


def test_a_fault_below_a_list_names_the_item() -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        Metadata.parse(with_keys(kernel_depends=[{"repo-id": "a/b", "version": 1}, {"repo-id": "a/b", "extra": 1}]))
    assert caught.value.location == "kernel-depends[1].extra"


def test_a_dependency_names_a_version_or_a_revision() -> None:
    depends = [{"repo-id": "a/b", "version": 0}, {"repo-id": "a/c", "revision": "main"}]
    expected = (AtVersion(RepoId("a", "b"), 0), AtFixedRevision(RepoId("a", "c"), "main"))
    assert Metadata.parse(with_keys(kernel_depends=depends)).kernel_depends == expected


def test_object_ids_are_read_in_lower_case() -> None:
    provenance = {"kernel-builder": {"version": "1"}, "kernel": {"commit": "AB" * 32, "dirty": False}}
    read = Metadata.parse(with_keys(provenance=provenance)).provenance
    assert read is not None
    assert read.kernel is not None
    assert read.kernel.commit == "ab" * 32
    assert not read.dirty


@pytest.mark.parametrize("name", ["ab", "flash-attn", "a--1", "x" * 200])
def test_kernel_names(name: str) -> None:
    assert is_kernel_name(name)


@pytest.mark.parametrize("name", ["", "a", "-a", "a-", "A1", "a_b", "1a", "a.b", "ab\n", "größe"])
def test_what_is_no_kernel_name(name: str) -> None:
    assert not is_kernel_name(name)


def test_python_names_have_underscores() -> None:
    assert python_name("flash-attn-3") == "flash_attn_3"


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("https://example.org/x.git", True),
        ("git+ssh://git@example.org/x", True),
        ("git@example.org:x/y.git", True),
        ("git@example.org:/x/y.git", False),
        ("file:///x", False),
        ("ftp://example.org/x", False),
        ("example.org/x", False),
        ("https://", False),
        ("", False),
    ],
)
def test_git_urls(text: str, valid: bool) -> None:
    assert check_git_url(text) is valid
