"""Labels: the names of folders below `build/`, read as the ecosystem reads them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from kernels.variants import parse_variant

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.variant import ArchLabel, NoarchLabel, UnknownLabel, parse_label, read_label

VECTORS = Path(__file__).parents[2] / "vectors" / "labels"
CASES: list[dict[str, Any]] = json.loads((VECTORS / "cases.json").read_text(encoding="utf-8"))["cases"]

FRAMEWORKS = (
    *(
        "torch29",
        "torch210",
        "torch2",
        "torch",
        "torch029",
        "torch200",
        "torchx",
        "Torch29",
        "torch٢٩",
        "torch-2",
        "jax",
        "",
    ),
    *(
        "torch29-cxx11",
        "torch29-cxx98",
        "torch29-cxx12",
        "torch29-CXX11",
        "tvm-ffi01-cxx11",
        "torch-stable-abi211-cxx11",
    ),
    *("torch-stable-abi211", "torch-stable-abi2", "torch-stable-abi", "torch-stable-abi-211", "torchstable29"),
    *("tvm-ffi01", "tvm-ffi010", "tvm-ffi1", "tvm-ffi", "tvm-ffi-01", "tvm"),
)
BACKENDS = (
    *(
        "cpu",
        "metal",
        "neuron",
        "tpu",
        "cu126",
        "cu130",
        "cu12",
        "cu1",
        "cu1210",
        "cu006",
        "cu",
        "cu12x",
        "cu٦٢",
        "cu-126",
    ),
    *("rocm72", "rocm641", "rocm7", "rocm_72", "xpu20253", "xpu", "cann85", "npu", "cuda", "CPU", "cpu1", ""),
)
CPUS = ("x86_64", "aarch64", "arm64", "x86-64")
SYSTEMS = ("linux", "windows", "darwin", "linux-musl", "linux\n")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["label"] or "empty")
def test_a_label_is_read_as_recorded(case: dict[str, Any]) -> None:
    match read_label(case["label"]):
        case ArchLabel(framework, backend, cpu, system):
            parts = (str(framework), str(backend), cpu, system)
            assert parts == (case["framework"], case["backend"], case["cpu"], case["os"])
        case NoarchLabel(name):
            assert name == case["noarch"]
        case UnknownLabel(text, newer, problem):
            assert (text, newer) == (case["label"], case["newer"])
            assert problem


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["label"] or "empty")
def test_the_ecosystems_reader_knows_the_same_labels_except_where_a_reason_is_given(case: dict[str, Any]) -> None:
    assert ("peer_reads" in case) == ("why" in case)
    try:
        parse_variant(case["label"])
        known = True
    except ValueError:
        known = False
    assert known == case.get("peer_reads", "newer" not in case)


def test_the_ecosystems_reader_agrees_on_every_combination_of_parts() -> None:
    combinations = ["-".join(parts) for parts in itertools.product(FRAMEWORKS, BACKENDS, CPUS, SYSTEMS)]
    assert len(combinations) > 10_000
    different = []
    for text in combinations:
        try:
            peers = parse_variant(text).variant_str
        except ValueError:
            peers = None
        read = read_label(text)
        ours = None if isinstance(read, UnknownLabel) else str(read)
        if ours != peers:
            different.append((text, ours, peers))
    assert different == []


@pytest.mark.parametrize("case", [case for case in CASES if "newer" not in case], ids=lambda case: case["label"])
def test_writing_is_the_inverse_of_reading(case: dict[str, Any]) -> None:
    assert str(parse_label(case["label"])) == case["label"]


def test_leading_zeros_are_not_kept() -> None:
    assert str(parse_label("torch200-cu006-x86_64-linux")) == "torch20-cu06-x86_64-linux"


def test_what_is_no_label_says_why() -> None:
    with pytest.raises(InvalidDocumentError, match="'cxx12' is no C\\+\\+ ABI tag"):
        parse_label("torch29-cxx12-cpu-x86_64-linux")
    with pytest.raises(InvalidDocumentError, match="backend: 'cu1x' is not a backend"):
        parse_label("torch29-cu1x-x86_64-linux")
    with pytest.raises(InvalidDocumentError, match="not <framework>-<backend>-<cpu>-<os>"):
        parse_label("garbage_dir")
