"""What a person reads when no build fits."""

from __future__ import annotations

import random

import pytest

from kernel_hub.errors import NoCompatibleVariantError
from kernel_hub.model.host import Host
from kernel_hub.model.selection import Selection
from kernel_hub.model.target import Target
from kernel_hub.narrow import narrow
from kernel_hub.refusal import SHOWN, best, machine, nearest, ways_out
from kernel_hub.select import select, variants_of_names

BUILDS = [
    f"torch{minor}-cxx11-{cuda}-x86_64-linux" for minor in ("29", "210", "211", "212") for cuda in ("cu126", "cu128")
]
X86 = {
    "cpu": "x86_64",
    "os": "linux",
    "torch": "2.13.0+cu130",
    "cxx11_abi": True,
    "backend": "cuda",
    "backend_version": "13.0",
}
MACHINES = {
    "x86_64 linux": X86,
    "aarch64 linux": X86 | {"cpu": "aarch64"},
    "x86_64 windows": X86 | {"os": "windows", "cxx11_abi": None},
}


def refused(facts: dict[str, object], names: list[str]) -> NoCompatibleVariantError:
    selection = select(variants_of_names(names), Host.from_json(facts), subject="acme/axpy@v1")
    with pytest.raises(NoCompatibleVariantError) as caught:
        best(selection)
    return caught.value


@pytest.mark.parametrize("name", MACHINES)
def test_the_error_names_machine_closest_builds_and_ways_out(name: str) -> None:
    error = refused(MACHINES[name], BUILDS)
    text = str(error)
    assert name in text
    assert "torch 2.13.0+cu130" in text
    assert "CUDA 13.0" in text
    shown = [line for line in text.splitlines() if line.strip().startswith("torch2")]
    assert len(shown) == SHOWN
    assert all("needs" in line and "here" in line for line in shown)
    assert "torch212" in shown[0]
    assert "kernel-hub explain --all acme/axpy@v1" in text
    assert "build" in error.hint()
    assert len(error.selection.rejected) == len(BUILDS)
    assert len(text.splitlines()) <= 9


def test_the_torch_to_install_is_named_when_torch_is_all_that_is_in_the_way() -> None:
    assert "pip install 'torch==2.12.*'" in refused(X86, BUILDS).hint()
    assert "pip install" not in refused(MACHINES["aarch64 linux"], BUILDS).hint()


def test_the_text_is_the_same_for_any_order_of_builds() -> None:
    texts = set()
    for seed in range(5):
        names = list(BUILDS)
        random.Random(seed).shuffle(names)
        texts.add(str(refused(X86, names)))
    assert len(texts) == 1


def test_the_cpu_build_is_offered_if_there_is_one() -> None:
    assert "backend='cpu'" in refused(X86, ["torch213-cxx11-cpu-x86_64-linux"]).hint()


def test_ways_out_of_the_caller_come_first() -> None:
    selection = select(variants_of_names(BUILDS), Host.from_json(X86), subject="acme/axpy@v1")
    with pytest.raises(NoCompatibleVariantError) as caught:
        best(selection, alternatives=["version 2 has a build that fits: version=2"])
    assert caught.value.hint().startswith("version 2 has a build")


def test_a_kernel_without_builds_says_so() -> None:
    assert "no builds at all" in str(refused(X86, []))


def test_an_architecture_refusal_names_the_device() -> None:
    host = Host.from_json(X86 | {"devices": [{"name": "B200", "arch": "10.0"}]})
    name = "torch213-cxx11-cu130-x86_64-linux"
    selection: Selection = narrow(select(variants_of_names([name]), host, subject="a/b"), {name: ("9.0a",)})
    with pytest.raises(NoCompatibleVariantError, match=r"GPU architecture: needs 9\.0a, here device 0"):
        best(selection)


def test_a_build_that_nobody_understands_is_never_the_closest() -> None:
    near = nearest(select(variants_of_names([*BUILDS, "garbage", "torch3-x-cu140-x86_64-linux"]), Host.from_json(X86)))
    assert [entry.rejected.variant.name for entry in near[-2:]] == ["torch3-x-cu140-x86_64-linux", "garbage"]


@pytest.mark.parametrize("facts", [X86, MACHINES["aarch64 linux"]])
def test_the_same_kind_of_backend_is_closer_than_another_one(facts: dict[str, object]) -> None:
    host = Host.from_json(facts)
    others = ["torch-rocm", "torch-cpu", "torch213-cxx11-cpu-aarch64-linux", "torch213-cxx11-rocm71-x86_64-linux"]
    same = ["torch29-cxx11-cu126-x86_64-linux", "torch210-cxx11-cu126-x86_64-linux"]
    rejected = nearest(select(variants_of_names([*others, *same]), host))
    assert {entry.rejected.variant.name for entry in rejected[: len(same)]} == set(same)


def test_building_is_a_way_out_only_if_the_caller_knows_the_sources() -> None:
    selection = select(variants_of_names(["torch-rocm"]), Host.from_json(X86))
    assert ways_out(selection) == ["ask its publisher for a build for this machine"]
    assert ways_out(selection, ["build it here"]) == ["build it here"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("linux-x86_64-cpu-torch2.13", None),
        ("darwin-aarch64-metal-torch2.13", None),
        ("darwin-aarch64-metal-torch2.13-macos26.0", "macOS 26.0"),
    ],
)
def test_what_a_target_leaves_open_is_not_shown_as_a_fact(text: str, shown: str | None) -> None:
    host = Target.parse(text).host
    assert host is not None
    assert ("macOS" in machine(host)) == (shown is not None)
    assert shown is None or shown in machine(host)
    assert "999" not in machine(host)
