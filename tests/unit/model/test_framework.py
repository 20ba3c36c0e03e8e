"""Framework ABIs as labels write them."""

from __future__ import annotations

import pytest
from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.framework import Torch, TorchStableAbi, TvmFfi, parse_stable_abi, parse_torch, parse_tvm_ffi


def test_the_first_digit_is_the_major_version_and_the_rest_the_minor_one() -> None:
    assert parse_torch("torch213", None) == Torch(Version("2.13"))
    assert parse_stable_abi("torch-stable-abi211") == TorchStableAbi(Version("2.11"))
    assert parse_tvm_ffi("tvm-ffi01") == TvmFfi(Version("0.1"))
    assert parse_tvm_ffi("tvm-ffi010") == TvmFfi(Version("0.10"))


@pytest.mark.parametrize(("tag", "abi"), [(None, None), ("cxx11", True), ("cxx98", False)])
def test_the_string_abi_is_a_tag_or_any(tag: str | None, abi: bool | None) -> None:
    assert parse_torch("torch29", tag) == Torch(Version("2.9"), abi)


@pytest.mark.parametrize(
    "framework",
    [
        Torch(Version("2.9")),
        Torch(Version("2.13"), True),
        Torch(Version("2.5"), False),
        TorchStableAbi(Version("2.11")),
        TvmFfi(Version("0.1")),
    ],
    ids=str,
)
def test_the_label_is_read_back(framework: Torch | TorchStableAbi | TvmFfi) -> None:
    match framework:
        case Torch():
            name, _, tag = framework.label.partition("-")
            assert parse_torch(name, tag or None) == framework
        case TorchStableAbi():
            assert parse_stable_abi(framework.label) == framework
        case TvmFfi():
            assert parse_tvm_ffi(framework.label) == framework


def test_a_framework_is_named_by_what_it_runs_with() -> None:
    assert str(Torch(Version("2.9"), True)) == "torch 2.9"
    assert str(TorchStableAbi(Version("2.11"))) == "torch >= 2.11"
    assert str(TvmFfi(Version("0.1"))) == "tvm-ffi 0.1"


@pytest.mark.parametrize("text", ["torch", "torch2", "torch2.9", "torch29\n", "torch٢٩", "torch-29", "xtorch29"])
def test_what_is_no_torch_release(text: str) -> None:
    with pytest.raises(InvalidDocumentError, match="framework"):
        parse_torch(text, None)


@pytest.mark.parametrize(
    "text", ["torch-stable-abi", "torch-stable-abi2", "torch-stable-abi-211", "torch-stable-abi211 "]
)
def test_what_is_no_stable_abi(text: str) -> None:
    with pytest.raises(InvalidDocumentError, match="framework"):
        parse_stable_abi(text)


@pytest.mark.parametrize("text", ["tvm-ffi", "tvm-ffi1", "tvm-ffi-01", "tvm_ffi01"])
def test_what_is_no_tvm_ffi_release(text: str) -> None:
    with pytest.raises(InvalidDocumentError, match="framework"):
        parse_tvm_ffi(text)
