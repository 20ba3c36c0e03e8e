"""The generated parts of a card: what they say, and that nothing in them is more than text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kernel_hub.build.card_sections import MOST_ROWS, builds_table, measured_tables, provenance_list, shown
from kernel_hub.build.measured import Measured, Measurement
from kernel_hub.model.backend import BackendKind
from kernel_hub.model.metadata import Metadata, Provenance, SourceState

CPU = "torch-stable-abi211-cpu-x86_64-linux"
GPU = "torch211-cxx11-cu130-x86_64-linux"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
PLAIN = Metadata("axpy", "_axpy_cpu_abc", 1, "mit", BackendKind.CPU)
BUILT = replace(
    PLAIN,
    provenance=Provenance("1.2.3", None, SourceState(COMMIT, False)),
    built_with={"compilers": [{"name": "g++", "version": "13.2.0", "programs": {}}], "against": "torch 2.13"},
)
HOSTILE = [
    "a | b |",
    "`](javascript:alert(1))",
    "<script>alert(1)</script>",
    "![x](http://x)",
    "a\n\n# heading",
    "a\r\n| row |",
    "**bold** _it_ ~~s~~",
    "a\\|b",
    "&lt;b&gt;",
    "\u202eright to left\x1b[31m",
    "[link]: http://x",
    " ",
]


def test_the_table_names_architectures_only_where_there_are_any() -> None:
    assert builds_table({CPU: PLAIN}) == (
        "| backend | framework | system | build |\n| --- | --- | --- | --- |\n"
        f"| CPU | torch 2.11 and newer | Linux x86_64 | `{CPU}` |\n"
    )
    both = builds_table({CPU: PLAIN, GPU: replace(PLAIN, backend=BackendKind.CUDA, archs=("8.0", "9.0+PTX"))})
    assert f"|  | `{CPU}` |" in both
    assert f"| 8.0, 9.0+PTX | `{GPU}` |" in both


def test_builds_of_one_origin_share_an_item() -> None:
    said = provenance_list({"torch-cuda": PLAIN, CPU: BUILT, GPU: BUILT, "torch-rocm": None})
    assert said == (
        f"- `{CPU}`, `{GPU}`: sources at commit `{COMMIT}`; built by `1.2.3`; compiled with `g++` `13.2.0`; "
        "against `torch 2.13`\n"
        "- `torch-cuda`: sources and builder not stated\n"
        "- `torch-rocm`: its metadata cannot be read\n"
    )


def test_changed_sources_are_marked() -> None:
    dirty = Provenance("1.2.3", SourceState(COMMIT[::-1], False), SourceState(COMMIT, True))
    said = provenance_list({CPU: replace(PLAIN, provenance=dirty)})
    assert f"commit `{COMMIT}` **with changes that are in no commit**;" in said
    assert f"built by `1.2.3` at commit `{COMMIT[::-1]}`\n" in said


@pytest.mark.parametrize(
    "said",
    [
        {"compilers": "g++"},
        {"compilers": [1, None, {"name": "g++"}, {"name": 1, "version": "1"}]},
        {"compilers": {}, "against": ["torch"], "toolkit": 13},
        {"against": ""},
    ],
)
def test_what_says_of_compilers_what_we_do_not_write_says_nothing(said: dict[str, object]) -> None:
    assert provenance_list({CPU: replace(BUILT, built_with=said)}).endswith("built by `1.2.3`\n")


def is_inert(text: str) -> bool:
    """Whether nothing but code spans of plain words, entities and words are left."""
    text = re.sub("&#[0-9]+;", "", text)
    return not set(text) & set("|<>[]()!*_~\\\n\r#\x1b\u202e") and text.count("`") in (0, 2)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_more_than_text(text: str) -> None:
    assert is_inert(shown(text))
    table = builds_table({f"torch-{text}": None, CPU: replace(PLAIN, archs=(text,))})
    assert [line.count("|") for line in table.splitlines()] == [6, 6, 6, 6]
    tool = {"name": text, "version": text}
    said = provenance_list({CPU: replace(BUILT, built_with={"compilers": [tool], "against": text, "toolkit": text})})
    assert said.count("\n") == 1
    assert "<" not in said
    assert "](" not in said
    measured = Measured(text, (Measurement(text, text, text, 1.0, ((text, 2.0),)),))
    lines = measured_tables([measured]).splitlines()
    assert [line.count("|") for line in lines] == [0, 0, 5, 5, 5]


def test_a_measurement_is_a_row() -> None:
    rows = (
        Measurement("prefill", "bfloat16", "flop", 305.04e9, (("torch_sdpa", 2.344),)),
        Measurement("decode", "float32", "byte", 20e9),
    )
    assert measured_tables([Measured("some CPU, 2 threads", rows)]) == (
        "On some CPU, 2 threads:\n\n"
        "| problem | type | rate | times faster than |\n| --- | --- | --- | --- |\n"
        "| `prefill` | `bfloat16` | 305 GFLOP/s | 2.34 `torch_sdpa` |\n"
        "| `decode` | `float32` | 20 GB/s |  |\n"
    )


def test_more_rows_than_a_card_should_have_are_counted() -> None:
    rows = tuple(Measurement(f"p{number}", "float32", "byte", 1.0) for number in range(MOST_ROWS + 2))
    text = measured_tables([Measured("a CPU", rows)])
    assert text.count("\n| `p") == MOST_ROWS
    assert text.endswith("\n2 more are not shown.\n")


def test_nothing_is_no_text() -> None:
    assert (builds_table({}), provenance_list({}), measured_tables([])) == ("", "", "")
