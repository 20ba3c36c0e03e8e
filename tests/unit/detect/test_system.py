"""CPU, system, C library, macOS, Python and tvm-ffi; and that no probe can stop detection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernel_hub.detect import Platform, Probes, detect
from kernel_hub.model.host import Host

Describe = Callable[..., Probes]


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("linux", "x86_64", "x86_64"),
        ("linux", "aarch64", "aarch64"),
        ("darwin", "arm64", "aarch64"),
        ("windows", "AMD64", "x86_64"),
        ("windows", "amd64", "x86_64"),
        ("windows", "ARM64", "aarch64"),
        ("linux", "riscv64", "riscv64"),
        ("linux", "", None),
    ],
)
def test_the_cpu_is_named_as_labels_write_it(
    system: str, machine: str, expected: str | None, describe_machine: Describe
) -> None:
    probes = describe_machine("no-torch", platform={"system": system, "machine": machine, "python": "3.12.1"})
    host = detect(probes)
    assert (host.cpu, host.os) == (expected, system)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("15.6.1", "15.6.1"),
        ("26.1", "26.1"),
        ("16.0", "26.0"),
        ("17.2", "27.2"),
        ("11.7", "11.7"),
        ("10.15.7", "10.15.7"),
        ("10.16", None),
        ("", None),
        ("Tahoe", None),
    ],
)
def test_macos_is_numbered_as_apple_numbers_it_also_for_old_programs(
    answer: str, expected: str | None, describe_machine: Describe
) -> None:
    platform = {"system": "darwin", "machine": "arm64", "python": "3.12.1", "macos": answer}
    host = detect(describe_machine("mac-m3", platform=platform))
    assert (None if host.macos is None else str(host.macos)) == expected
    assert host.probes["macos"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flags\t\t: fpu avx2 fma nonsense\n", ("avx2", "fma")),
        ("Features\t: fp asimd sve bf16\n", ("asimd", "bf16", "sve")),
        ("flags : fpu\nflags : avx2\n", ()),
        ("vmx flags\t: avx2\nmodel name\t: x\n", None),
        ("", None),
    ],
)
def test_cpu_features_are_the_ones_that_kernels_choose_by(
    text: str, expected: tuple[str, ...] | None, describe_machine: Describe
) -> None:
    assert detect(describe_machine("no-torch", files={"/proc/cpuinfo": text})).cpu_features == expected


def test_a_system_without_cpuinfo_has_unknown_features(describe_machine: Describe) -> None:
    assert detect(describe_machine("mac-m3")).cpu_features is None


@pytest.mark.parametrize(
    ("modules", "distributions", "expected"),
    [
        (["tvm_ffi"], {"apache-tvm-ffi": "0.1.10"}, "0.1.10"),
        (["tvm_ffi"], {}, None),
        ([], {"apache-tvm-ffi": "0.1.10"}, None),
        (["tvm_ffi"], {"apache-tvm-ffi": "newest!"}, None),
    ],
)
def test_tvm_ffi_counts_if_it_can_be_imported_and_its_version_is_known(
    modules: list[str], distributions: dict[str, str], expected: str | None, describe_machine: Describe
) -> None:
    host = detect(describe_machine("no-torch", modules=modules, distributions=distributions))
    assert (None if host.tvm_ffi is None else str(host.tvm_ffi)) == expected
    assert host.probes["tvm_ffi"]


def test_a_machine_on_which_every_question_fails_is_a_host_of_unknowns(tmp_path: Path) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("broken")

    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    probes = Probes(
        platform=Platform("linux", "", "not a version"),
        find_module=fail,
        find_version=fail,
        load_nvml=fail,
        root=not_a_folder,
    )
    host = detect(probes)
    unknown = replace(host, probes={}, os=None, free_threaded=None, devices=None)
    assert unknown == Host(probes={})
    assert Host.from_json(host.to_json()) == host


def test_an_error_text_that_a_library_cannot_write_does_not_stop_detection(describe_machine: Describe) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def fail(_: str) -> Path | None:
        raise Unprintable

    assert detect(replace(describe_machine("h100"), find_module=fail)).torch is None
