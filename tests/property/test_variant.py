"""Laws of labels."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kernels.variants import parse_variant

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.variant import ArchLabel, NoarchLabel, UnknownLabel, parse_label, read_label

DIGITS = st.text("0123456789", min_size=1, max_size=4)
FRAMEWORKS = st.builds(
    "{}{}".format, st.sampled_from(["torch", "torch-stable-abi", "tvm-ffi", "torch2", "tvm-ffi0", "jax"]), DIGITS
)
TAGS = st.sampled_from(["", "-cxx11", "-cxx98"])
BACKENDS = st.sampled_from(["cpu", "metal", "neuron", "tpu"]) | st.builds(
    "{}{}".format, st.sampled_from(["cu", "rocm", "xpu", "cann"]), DIGITS
)
WORDS = st.text("abcxyz_0189", min_size=1, max_size=8)
LABELS = st.builds("{}{}-{}-{}-{}".format, FRAMEWORKS, TAGS, BACKENDS, WORDS, WORDS) | st.builds(
    "torch-{}".format, WORDS
)
NEAR_LABELS = st.lists(
    st.sampled_from(["torch", "torch29", "stable", "abi211", "tvm", "ffi01", "cu126", "cpu", "x", ""])
).map("-".join)


@given(LABELS)
def test_reading_what_was_written_is_identity(text: str) -> None:
    read = read_label(text)
    assert read_label(str(read)) == read


@given(LABELS | NEAR_LABELS | st.text())
def test_every_text_is_a_label_or_unknown_and_never_a_crash(text: str) -> None:
    read = read_label(text)
    try:
        assert parse_label(text) == read
    except InvalidDocumentError:
        assert isinstance(read, UnknownLabel)
        assert str(read) == text


@given(LABELS)
def test_the_ecosystems_reader_takes_a_label_for_the_same(text: str) -> None:
    try:
        peers = parse_variant(text).variant_str
    except ValueError:
        peers = None
    read = read_label(text)
    assert (None if isinstance(read, UnknownLabel) else str(read)) == peers


@given(NEAR_LABELS | st.text())
def test_what_we_read_the_ecosystems_reader_reads_too(text: str) -> None:
    read = read_label(text)
    if isinstance(read, ArchLabel | NoarchLabel):
        assert parse_variant(text).variant_str == str(read)
