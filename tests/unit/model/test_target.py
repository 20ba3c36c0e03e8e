"""The text of a target, and what it leaves open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import Backend, BackendKind
from kernel_hub.model.capability import CudaCapability
from kernel_hub.model.host import Device, Host
from kernel_hub.model.selection import Accepted
from kernel_hub.model.target import Target
from kernel_hub.model.variant import UnknownLabel, parse_label
from kernel_hub.select import select, variants_of_names

HOSTS = sorted((Path(__file__).parents[2] / "vectors" / "hosts").glob("*.json"))


@pytest.mark.parametrize(
    "text",
    [
        "linux-x86_64",
        "linux-x86_64-cu128-torch2.13",
        "linux-x86_64-cu128-torch2.13-tvmffi0.1-9.0-10.0",
        "linux-aarch64-torch2.12",
        "windows-x86_64-cpu",
        "linux-x86_64-rocm71-gfx942",
        "darwin-aarch64-metal-macos26.1",
    ],
)
def test_text_is_its_own_inverse(text: str) -> None:
    assert str(Target.parse(text)) == text


def test_facts_come_in_any_order_and_are_written_in_one() -> None:
    assert str(Target.parse("linux-x86_64-10.0-torch2.13-9.0-cu128-9.0")) == "linux-x86_64-cu128-torch2.13-9.0-10.0"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "operating system and a CPU"),
        ("linux", "operating system and a CPU"),
        ("x86_64-linux", "operating system and a CPU"),
        ("plan9-x86_64", "operating system and a CPU"),
        ("linux-x86_64-", "the part ''"),
        ("linux-x86_64-cuda", "the part 'cuda'"),
        ("linux-x86_64-cu128-cu126", "two backends"),
        ("linux-x86_64-torch2.1-torch2.2", "torch twice"),
    ],
)
def test_a_malformed_target_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidDocumentError, match=problem):
        Target.parse(text)


@pytest.mark.parametrize(
    ("target", "fitting"),
    [
        ("linux-x86_64", {"torch213-cxx11-cu128-x86_64-linux", "torch-stable-abi211-cpu-x86_64-linux", "torch-cuda"}),
        ("linux-x86_64-cu130", {"torch-cuda"}),
        ("linux-x86_64-cu128-torch2.12", {"torch-cuda"}),
        ("linux-x86_64-cu129-torch2.13", {"torch213-cxx11-cu128-x86_64-linux", "torch-cuda"}),
        ("linux-x86_64-cpu-torch2.10", set()),
        ("linux-x86_64-torch2.12", {"torch-stable-abi211-cpu-x86_64-linux", "torch-cuda"}),
        ("darwin-aarch64", {"torch29-metal-aarch64-darwin", "torch-cuda"}),
        ("darwin-aarch64-macos25", {"torch-cuda"}),
    ],
)
def test_what_a_target_does_not_name_does_not_restrict(target: str, fitting: set[str]) -> None:
    names = [
        "torch213-cxx11-cu128-x86_64-linux",
        "torch-stable-abi211-cpu-x86_64-linux",
        "torch-cuda",
        "torch29-metal-aarch64-darwin",
    ]
    found = set()
    for name in names:
        host = Target.parse(target).host_for(parse_label(name))
        if select(variants_of_names([name]), host).accepted:
            found.add(name)
    assert found == fitting


def test_there_are_golden_hosts_to_turn_into_targets() -> None:
    assert len(HOSTS) >= 8


def labels_of_vectors() -> list[str]:
    vectors = json.loads((HOSTS[0].parents[1] / "selection.json").read_text(encoding="utf-8"))
    return sorted({label for case in vectors["cases"] for label in case["labels"]})


@pytest.mark.parametrize("path", HOSTS, ids=lambda path: path.stem)
def test_a_target_keeps_every_build_that_its_host_takes(path: Path) -> None:
    host = Host.from_json(json.loads(path.read_text(encoding="utf-8")), name=path.name)
    target = Target.of(host)
    assert Target.parse(str(target)) == target
    left_open = [
        name
        for name, unknown in (("tvm-ffi", host.tvm_ffi is None), ("torch", host.torch is None), ("-cxx98-", True))
        if unknown
    ]
    for variant in variants_of_names(labels_of_vectors()):
        if isinstance(variant.label, UnknownLabel):
            continue
        taken = bool(select([variant], host).accepted)
        kept = bool(select([variant], target.host_for(variant.label)).accepted)
        # What a target cannot say, or its host does not know, it leaves open; free threading is such a thing too.
        if any(name in variant.name for name in left_open) or host.free_threaded:
            assert kept or not taken, variant.name
        else:
            assert kept == taken, variant.name


def test_an_unreadable_architecture_of_a_host_restricts_nothing() -> None:
    host = Host(
        cpu="x86_64",
        os="linux",
        torch=Version("2.13.0+cu130"),
        backend=Backend(BackendKind.CUDA, Version("13.0.2")),
        devices=tuple(
            Device(index, "GPU", arch) for index, arch in enumerate([CudaCapability(9, 0), CudaCapability(9, 0)])
        ),
    )
    assert str(Target.of(host)) == "linux-x86_64-cu130-torch2.13-9.0"


@pytest.mark.parametrize(
    "host", [Host(), Host(cpu="riscv64", os="linux"), Host(cpu="x86_64", os="linux", backend=Backend(BackendKind.CUDA))]
)
def test_a_host_that_no_kernel_is_built_for_is_no_target(host: Host) -> None:
    with pytest.raises(InvalidDocumentError):
        Target.of(host)


def test_verdicts_for_a_target_are_those_of_selection() -> None:
    label = parse_label("torch213-cxx98-cu128-x86_64-linux")
    (verdict,) = select(
        variants_of_names([str(label)]), Target.parse("linux-x86_64-cu128-torch2.13").host_for(label)
    ).accepted
    assert isinstance(verdict, Accepted)
