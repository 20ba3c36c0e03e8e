"""Backends, as labels and people write them."""

from __future__ import annotations

import pytest
from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import Backend, BackendKind, parse_kind


@pytest.mark.parametrize(
    ("label", "kind", "version", "text"),
    [
        ("cpu", BackendKind.CPU, None, "CPU"),
        ("metal", BackendKind.METAL, None, "Metal"),
        ("neuron", BackendKind.NEURON, None, "Neuron"),
        ("tpu", BackendKind.TPU, None, "TPU"),
        ("cu118", BackendKind.CUDA, "11.8", "CUDA 11.8"),
        ("cu130", BackendKind.CUDA, "13.0", "CUDA 13.0"),
        ("rocm72", BackendKind.ROCM, "7.2", "ROCm 7.2"),
        ("xpu20253", BackendKind.XPU, "2025.3", "XPU 2025.3"),
        ("cann85", BackendKind.CANN, "8.5", "CANN 8.5"),
        ("cu1210", BackendKind.CUDA, "121.0", "CUDA 121.0"),
    ],
)
def test_a_label_names_backend_and_version_and_is_written_back_the_same(
    label: str, kind: BackendKind, version: str | None, text: str
) -> None:
    backend = Backend.parse_label(label)
    assert backend == Backend(kind, Version(version) if version else None)
    assert backend.label == label
    assert str(backend) == text


@pytest.mark.parametrize(
    "label", ["", "cu", "cu1", "cuda", "cuda128", "rocm", "xpu", "cann", "CPU", "cpu12", "cu12.8", "cu12x", "cu١٢٨"]
)
def test_text_that_no_backend_is_written_as_is_refused(label: str) -> None:
    with pytest.raises(InvalidDocumentError, match="is not a backend"):
        Backend.parse_label(label)


@pytest.mark.parametrize(
    "backend", [Backend(BackendKind.CUDA), Backend(BackendKind.CUDA, Version("12.10")), Backend(BackendKind.ROCM)]
)
def test_a_backend_without_a_one_digit_minor_has_no_label(backend: Backend) -> None:
    with pytest.raises(InvalidDocumentError, match="has no label"):
        _ = backend.label


@pytest.mark.parametrize("kind", list(BackendKind))
def test_every_kind_is_read_by_its_name_and_has_a_title(kind: BackendKind) -> None:
    assert parse_kind(kind.value) is kind
    assert str(Backend(kind)).lower() == kind.value


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        parse_kind("npu")
    assert "cann" in caught.value.hint()
