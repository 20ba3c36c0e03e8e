"""Selection by label and by GPU architecture, without a machine of the kind in question."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from packaging.version import Version

from kernel_hub.model.backend import Backend, BackendKind
from kernel_hub.model.capability import parse_capability
from kernel_hub.model.host import Device, Host
from kernel_hub.model.selection import Reason, Selection, Variant
from kernel_hub.model.source import FileEntry, GitBlob
from kernel_hub.model.variant import parse_label
from kernel_hub.narrow import narrow
from kernel_hub.select import select, variants_of, variants_of_names

CASES = json.loads((Path(__file__).parents[1] / "vectors" / "selection.json").read_text())["cases"]


def host(**changes: object) -> Host:
    facts: dict[str, object] = {
        "cpu": "x86_64",
        "os": "linux",
        "torch": "2.13.0",
        "cxx11_abi": True,
        "backend": "cuda",
        "backend_version": "13.0",
    }
    return Host.from_json(facts | changes)


def gpu(*archs: str) -> Host:
    devices = [{"index": index, "name": f"GPU{index}", "arch": arch} for index, arch in enumerate(archs)]
    return host(devices=devices)


def accepted(selection: Selection) -> list[str]:
    return [verdict.variant.name for verdict in selection.accepted]


def reasons(selection: Selection) -> dict[str, Reason]:
    return {verdict.variant.name: verdict.reason for verdict in selection.rejected}


def test_every_recorded_case_selects_the_same_builds_in_the_same_order_for_any_input_order() -> None:
    shuffled = random.Random(7)
    assert len(CASES) == 400
    for case in CASES:
        names = list(case["labels"])
        for _ in range(3):
            shuffled.shuffle(names)
            selection = select(variants_of_names(names), Host.from_json(case["host"]))
            assert accepted(selection) == case["accepted"], case["host"]
            assert sorted(reasons(selection)) == sorted(case["rejected"]), case["host"]


def test_every_rejection_says_what_was_wanted_and_found() -> None:
    for case in CASES:
        for verdict in select(variants_of_names(case["labels"]), Host.from_json(case["host"])).rejected:
            assert verdict.wanted
            assert verdict.found
            assert verdict.wanted != verdict.found


def test_labels_that_nobody_understands_are_verdicts_beside_the_good_one() -> None:
    names = [
        "garbage_dir",
        ".DS_Store",
        "torch29-cxx11-cu1x-x86_64-linux",
        "torch3-nextgen-cu140-x86_64-linux",
        "torch213-cxx11-cu130-x86_64-linux",
    ]
    selection = select(variants_of_names(names), host())
    assert accepted(selection) == ["torch213-cxx11-cu130-x86_64-linux"]
    assert reasons(selection) == {
        ".DS_Store": Reason.NOT_UNDERSTOOD,
        "garbage_dir": Reason.NOT_UNDERSTOOD,
        "torch29-cxx11-cu1x-x86_64-linux": Reason.NOT_UNDERSTOOD,
        "torch3-nextgen-cu140-x86_64-linux": Reason.NEEDS_NEWER,
    }


@pytest.mark.parametrize(
    ("text", "line", "flagged"),
    [
        ("2.9.0.dev20250820+cu128", "29", "pre-release"),
        ("2.10.0a0+gitabc", "210", "pre-release"),
        ("2.5.0a0+x.nv24.08", "25", "pre-release"),
        ("2.9.1", "29", None),
        ("2.9.1+cu128", "29", None),
    ],
)
def test_torch_version_texts_select_their_release_line_and_flag_pre_releases(
    text: str, line: str, flagged: str | None
) -> None:
    names = [f"torch{minor}-cu130-x86_64-linux" for minor in ("25", "29", "210", "213")]
    selection = select(variants_of_names(names), host(torch=text))
    assert accepted(selection) == [f"torch{line}-cu130-x86_64-linux"]
    notes = " ".join(selection.notes)
    assert (flagged in notes) if flagged else not notes


@pytest.mark.parametrize(
    ("facts", "builds", "chosen"),
    [
        ({"backend_version": "12.9"}, ["cu126", "cu128", "cu130"], "cu128"),
        ({"backend_version": "12.4"}, ["cu126"], None),
        ({"backend_version": "13.0"}, ["cu128"], None),
        ({"backend": "rocm", "backend_version": "7.1"}, ["rocm70"], None),
        ({"backend": "rocm", "backend_version": "7.1"}, ["rocm70", "rocm71"], "rocm71"),
    ],
)
def test_backend_versions_fit_as_their_vendors_promise(
    facts: dict[str, object], builds: list[str], chosen: str | None
) -> None:
    selection = select(variants_of_names(f"torch213-{build}-x86_64-linux" for build in builds), host(**facts))
    assert accepted(selection)[:1] == ([f"torch213-{chosen}-x86_64-linux"] if chosen else [])
    assert set(reasons(selection).values()) <= {Reason.BACKEND}


def test_metal_on_an_old_macos_is_rejected_with_the_least_version() -> None:
    mac = Host(
        cpu="aarch64", os="darwin", torch=Version("2.13"), backend=Backend(BackendKind.METAL), macos=Version("15.4")
    )
    (verdict,) = select(variants_of_names(["torch213-metal-aarch64-darwin"]), mac).rejected
    assert verdict.reason is Reason.MACOS
    assert "26.0" in verdict.wanted


def test_free_threaded_python_rejects_compiled_builds_and_lists_them() -> None:
    names = ["torch-stable-abi211-cu130-x86_64-linux", "torch-cuda"]
    selection = select(variants_of_names(names), host(free_threaded=True, python="3.14.0"))
    assert accepted(selection) == ["torch-cuda"]
    assert reasons(selection) == {"torch-stable-abi211-cu130-x86_64-linux": Reason.FREE_THREADED}
    assert len(select(variants_of_names(names), host(free_threaded=True, python="3.15.0")).accepted) == 2


NAME = "torch213-cu130-x86_64-linux"


@pytest.mark.parametrize(
    ("archs", "device", "fits"),
    [
        ("8.0 9.0a", "8.6", True),
        ("8.0 9.0a", "9.0", True),
        ("8.0 9.0a", "10.0", False),
        ("9.0a", "9.1", False),
        ("9.0+PTX", "12.0", True),
        ("9.0+PTX", "8.9", False),
        ("10.0f", "10.3", True),
        ("10.3f", "10.0", False),
        ("10.0f", "11.0", False),
        ("11.9z", "9.0", True),
        ("gfx942", "gfx942", True),
        ("gfx942", "gfx90a", False),
        ("", "9.0", True),
    ],
)
def test_architecture_rules(archs: str, device: str, fits: bool) -> None:
    selection = narrow(select(variants_of_names([NAME]), gpu(device)), {NAME: tuple(archs.split())})
    assert (accepted(selection) == [NAME]) is fits
    if not fits:
        assert reasons(selection) == {NAME: Reason.ARCH}


def test_unknown_architecture_text_is_allowed_with_a_note() -> None:
    (verdict,) = narrow(select(variants_of_names([NAME]), gpu("9.0")), {NAME: ("sm_next",)}).accepted
    assert "not all understood" in " ".join(verdict.notes)


def test_the_device_that_cannot_run_a_build_is_named() -> None:
    (verdict,) = narrow(select(variants_of_names([NAME]), gpu("9.0", "8.0")), {NAME: ("9.0",)}).rejected
    assert "device 1" in verdict.found
    assert "8.0" in verdict.found


def test_a_named_device_is_the_only_one_that_counts() -> None:
    selection = narrow(select(variants_of_names([NAME]), gpu("9.0", "8.0")), {NAME: ("9.0",)}, device=0)
    assert accepted(selection) == [NAME]


def test_machine_code_beats_ptx_beats_unreadable_text_between_builds_of_equal_rank() -> None:
    label = parse_label("torch213-cu126-x86_64-linux")
    builds = [Variant(name, label) for name in ("a-unknown", "b-ptx", "c-native")]
    archs = {"a-unknown": ("sm_next",), "b-ptx": ("9.0+PTX",), "c-native": ("12.0",)}
    machine = host(backend_version="12.6", devices=[{"arch": "12.0"}])
    assert accepted(narrow(select(builds, machine), archs)) == ["c-native", "b-ptx", "a-unknown"]


def test_rank_by_label_comes_before_machine_code() -> None:
    names = ["torch213-cu126-x86_64-linux", "torch213-cu128-x86_64-linux"]
    machine = host(backend_version="12.8", devices=[{"arch": "12.0"}])
    selection = narrow(select(variants_of_names(names), machine), {names[0]: ("12.0",), names[1]: ("9.0+PTX",)})
    assert accepted(selection) == [names[1], names[0]]


def test_a_build_that_is_not_asked_about_keeps_its_verdict() -> None:
    before = select(variants_of_names([NAME, "torch-cuda"]), gpu("9.0"))
    assert narrow(before, {}) == before


def test_adding_a_rejected_build_changes_nothing_else() -> None:
    for case in CASES[:60]:
        machine = Host.from_json(case["host"])
        alone = select(variants_of_names(case["accepted"]), machine)
        assert alone.accepted == select(variants_of_names(case["labels"]), machine).accepted


def test_files_group_into_builds_and_stray_files_belong_to_none() -> None:
    paths = [
        "build/torch-cpu/b.py",
        "build/torch-cpu/a/c.py",
        "build/README",
        "README.md",
        "build/x/y",
        "docs/build/z/w",
    ]
    found = variants_of(FileEntry(path, 3, GitBlob("0" * 40)) for path in paths)
    assert [(variant.name, variant.size_bytes) for variant in found] == [("torch-cpu", 6), ("x", 3)]


@pytest.mark.parametrize("text", ["torch2{}-cu126", "torch-stable-abi2{}-cpu", "tvm-ffi0{}-cpu", "torch213-cu{}"])
def test_a_label_of_endless_digits_is_a_verdict_too(text: str) -> None:
    name = text.format("9" * 5000) + "-x86_64-linux"
    (verdict,) = select(variants_of_names([name]), host()).rejected
    assert verdict.reason in (Reason.NOT_UNDERSTOOD, Reason.NEEDS_NEWER)


def test_for_backend_takes_the_cpu_where_no_device_is_visible() -> None:
    no_gpu = host(devices=[])
    names = ["torch213-cxx11-cu130-x86_64-linux", "torch213-cxx11-cpu-x86_64-linux"]
    assert accepted(select(variants_of_names(names), no_gpu.for_backend(None))) == [names[1]]
    assert accepted(select(variants_of_names(names), no_gpu.for_backend("cuda"))) == [names[0]]
    assert accepted(select(variants_of_names(names), no_gpu.for_backend("cpu"))) == [names[1]]
    assert "no device is visible" in no_gpu.for_backend("auto").probes["backend"]


def test_devices_carry_their_capability() -> None:
    assert Device(0, "x", parse_capability("gfx942:sramecc+:xnack-")).arch == parse_capability("gfx942")
