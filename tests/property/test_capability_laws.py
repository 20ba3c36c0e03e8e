"""Laws of "runs on".

For one kind of code, let A <= B mean "code compiled for A runs on device B". Over CUDA devices this is a partial order
for portable code (`M.m`) and family-specific code (`M.mf`), in which only devices of one major version are comparable; it
is equality for architecture-specific code (`M.ma`) and for ROCm targets, and a total order for code with PTX. Between the
kinds, what is more specific runs on fewer devices: `a` within `f`, `f` within portable, portable within portable+PTX.
"""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kernel_hub.model.capability import (
    Arch,
    Capability,
    CudaArch,
    CudaCapability,
    Fit,
    RocmArch,
    UnknownArch,
    fit,
    parse_arch,
    parse_capability,
)

# A narrow range, so that comparable devices are common.
capabilities = st.builds(CudaCapability, st.integers(7, 10), st.integers(0, 3))
suffixes = st.sampled_from(["", "a", "f"])
cuda_archs = st.builds(CudaArch, capabilities, suffixes, st.booleans())
rocm_archs = st.sampled_from(["gfx906", "gfx90a", "gfx942", "gfx1100"]).map(RocmArch)
unknown_archs = st.sampled_from(["quantum", "sm_90", "gfx9-4-generic"]).map(UnknownArch)
archs: st.SearchStrategy[Arch] = st.one_of(cuda_archs, rocm_archs, unknown_archs)
devices: st.SearchStrategy[Capability] = st.one_of(capabilities, rocm_archs, unknown_archs)


@given(capabilities, suffixes, st.booleans())
def test_code_runs_on_the_device_it_was_compiled_for(device: CudaCapability, suffix: str, ptx: bool) -> None:
    assert CudaArch(device, suffix, ptx).runs_on(device)
    assert CudaArch(device, suffix, ptx).native_on(device)


@given(capabilities, capabilities, suffixes, st.booleans())
def test_runs_on_is_antisymmetric(a: CudaCapability, b: CudaCapability, suffix: str, ptx: bool) -> None:
    if CudaArch(a, suffix, ptx).runs_on(b) and CudaArch(b, suffix, ptx).runs_on(a):
        assert a == b


@given(capabilities, capabilities, capabilities, suffixes, st.booleans())
def test_runs_on_is_transitive(a: CudaCapability, b: CudaCapability, c: CudaCapability, suffix: str, ptx: bool) -> None:
    if CudaArch(a, suffix, ptx).runs_on(b) and CudaArch(b, suffix, ptx).runs_on(c):
        assert CudaArch(a, suffix, ptx).runs_on(c)


@given(capabilities, capabilities)
def test_only_ptx_makes_any_two_devices_comparable(a: CudaCapability, b: CudaCapability) -> None:
    def comparable(suffix: str, ptx: bool) -> bool:
        return CudaArch(a, suffix, ptx).runs_on(b) or CudaArch(b, suffix, ptx).runs_on(a)

    assert comparable("", True)
    assert comparable("", False) is (a.major == b.major)
    assert comparable("f", False) is (a.major == b.major)
    assert comparable("a", False) is (a == b)


@given(capabilities, capabilities)
def test_more_specific_code_runs_on_fewer_devices(compiled: CudaCapability, device: CudaCapability) -> None:
    ladder = [CudaArch(compiled, "a"), CudaArch(compiled, "f"), CudaArch(compiled), CudaArch(compiled, ptx=True)]
    runs = [arch.runs_on(device) for arch in ladder]
    assert runs == sorted(runs)


@given(rocm_archs, rocm_archs)
def test_a_rocm_target_runs_on_itself_alone(build: RocmArch, device: RocmArch) -> None:
    assert (fit([build], device) is Fit.NATIVE) is (build == device)


@given(st.lists(archs, min_size=1), archs, devices)
def test_another_architecture_never_makes_a_build_fit_worse(listed: list[Arch], more: Arch, device: Capability) -> None:
    assert fit([*listed, more], device) >= fit(listed, device)


@given(st.lists(archs, min_size=1), devices, st.randoms())
def test_the_order_of_architectures_does_not_matter(listed: list[Arch], device: Capability, random: Random) -> None:
    shuffled = list(listed)
    random.shuffle(shuffled)
    assert fit(shuffled, device) is fit(listed, device)


@given(archs)
def test_parsing_an_architectures_text_gives_it_back(arch: Arch) -> None:
    assert parse_arch(str(arch)) == arch


@given(devices)
def test_parsing_a_devices_text_gives_it_back(device: Capability) -> None:
    assert parse_capability(str(device)) == device


@given(st.text() | st.from_regex(r"[0-9.]{1,6}[af]?(\+PTX)?|gfx[0-9a-z:+-]*", fullmatch=True))
def test_any_text_is_read_and_reading_its_text_again_changes_nothing(text: str) -> None:
    assert parse_arch(str(parse_arch(text))) == parse_arch(text)
    assert parse_capability(str(parse_capability(text))) == parse_capability(text)
