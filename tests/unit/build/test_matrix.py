"""Which builds a recipe has on a machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from kernel_hub.build.command import Layout, compile_steps
from kernel_hub.build.machine import Compiler, HeaderLibrary, Machine, RocmToolkit
from kernel_hub.build.matrix import Matrix, NativeJob, NoarchJob, plan
from kernel_hub.build.recipe import Recipe
from kernel_hub.model.variant import parse_label
from tests.unit.build.machines import machine, recipe

CPU = '[kernel.a]\nbackend = "cpu"\ndepends = []\nsrc = ["a.cpp"]\n'


def labels(matrix: Matrix) -> list[str]:
    return [str(job.label) for job in matrix.jobs]


def reasons(matrix: Matrix) -> list[str]:
    return [str(omission) for omission in matrix.omissions]


def alone(found: Recipe) -> dict[str, Recipe]:
    return {"build.toml": found}


def test_the_stable_abi_gives_its_own_number_not_that_of_the_torch_here() -> None:
    matrix = plan(alone(recipe('[torch.stable-abi]\ncpu = "2.11"\n' + CPU)), machine("2.13"))
    assert labels(matrix) == ["torch-stable-abi211-cpu-x86_64-linux"]


def test_classic_torch_gives_the_torch_here_and_its_string_layout() -> None:
    assert labels(plan(alone(recipe("[torch]\n" + CPU)), machine("2.13"))) == ["torch213-cxx11-cpu-x86_64-linux"]


def test_every_label_parses_to_itself() -> None:
    found = {
        "build.toml": recipe('[torch.stable-abi]\ncpu = "2.9"\n' + CPU),
        "build.b.toml": recipe("[torch]\n" + CPU),
        "build.c.toml": recipe("[torch-noarch]\n", backends='["cuda", "tpu"]'),
    }
    matrix = plan(found, machine())
    assert len(matrix.jobs) == 4
    assert [parse_label(str(job.label)) for job in matrix.jobs] == [job.label for job in matrix.jobs]


def test_noarch_has_one_build_for_each_backend_and_needs_no_toolchain() -> None:
    found = recipe(
        '[torch-noarch]\ncuda_capabilities = ["8.0"]\nrocm_archs = ["gfx942"]\n', backends='["xpu", "rocm", "cuda"]'
    )
    bare = replace(machine(), compiler=None, torch=None, python_include=None)
    matrix = plan(alone(found), bare)
    assert labels(matrix) == ["torch-cuda", "torch-rocm", "torch-xpu"]
    assert [job.archs for job in matrix.jobs] == [("8.0",), ("gfx942",), ()]
    assert all(isinstance(job, NoarchJob) for job in matrix.jobs)


def test_a_build_links_the_components_of_its_backend_only() -> None:
    other = '[kernel.b]\nbackend = "rocm"\ndepends = []\nsrc = ["b.cpp"]\n'
    more = CPU.replace("kernel.a", "kernel.c")
    matrix = plan(alone(recipe("[torch]\n" + CPU + other + more, backends='["cpu", "rocm"]')), machine())
    job = matrix.jobs[0]
    assert isinstance(job, NativeJob)
    assert [component.name for component in job.components] == ["a", "c"]


def test_what_is_missing_is_the_reason() -> None:
    found = alone(recipe("[torch]\n" + CPU))
    without = replace(machine(), compiler=None, absent={"compiler": "there is no C++ compiler g++"})
    assert reasons(plan(found, without)) == ["cpu of build.toml: there is no C++ compiler g++"]
    assert reasons(plan(found, replace(machine(), torch=None))) == ["cpu of build.toml: there is no torch here"]


def test_backends_without_a_driven_toolchain_say_which_it_is() -> None:
    matrix = plan(alone(recipe("[torch]\n", backends='["rocm", "xpu", "metal", "tpu"]')), machine())
    assert matrix.jobs == ()
    assert reasons(matrix) == [
        "rocm of build.toml: there is no hipcc of ROCm here",
        "xpu of build.toml: needs Intel's icpx, which this release does not drive",
        "metal of build.toml: needs Xcode on macOS, which this release does not drive",
        "tpu of build.toml: has no compiled builds",
    ]


def test_the_recipes_torch_range_limits_classic_builds_only() -> None:
    limits = '[torch]\nminver = "2.10"\nmaxver = "2.12"\n'
    assert reasons(plan(alone(recipe(limits + CPU)), machine("2.13"))) == [
        "cpu of build.toml: torch 2.13 is here, the recipe asks for 2.12 or older"
    ]
    assert reasons(plan(alone(recipe(limits + CPU)), machine("2.9"))) == [
        "cpu of build.toml: torch 2.9 is here, the recipe asks for 2.10 or newer"
    ]
    assert labels(plan(alone(recipe(limits + CPU)), machine("2.12"))) == ["torch212-cxx11-cpu-x86_64-linux"]
    stable = recipe(limits + 'stable-abi = "2.11"\n' + CPU)
    assert labels(plan(alone(stable), machine("2.13"))) == ["torch-stable-abi211-cpu-x86_64-linux"]


def test_a_torch_older_than_the_stable_abi_cannot_build_for_it() -> None:
    matrix = plan(alone(recipe('[torch.stable-abi]\ncpu = "2.11"\n' + CPU)), machine("2.10"))
    assert reasons(matrix) == [
        "cpu of build.toml: torch 2.10 is here, the stable ABI 2.11 needs its own or a newer one"
    ]


def test_the_order_of_recipes_does_not_change_the_order_of_jobs() -> None:
    first, second = recipe("[torch]\n" + CPU), recipe("[torch-noarch]\n", backends='["cuda", "cann"]')
    one = plan({"build.toml": first, "build.n.toml": second}, machine())
    other = plan({"build.n.toml": second, "build.toml": first}, machine())
    assert one.jobs == other.jobs


def test_tvm_ffi_gives_the_release_here_and_needs_no_torch() -> None:
    found = recipe('[tvm-ffi]\nsrc = ["b.cpp"]\n' + CPU)
    matrix = plan(alone(found), replace(machine(), torch=None, python_include=None))
    assert labels(matrix) == ["tvm-ffi01-cpu-x86_64-linux"]
    missing = plan(alone(found), replace(machine(), tvm_ffi=None, absent={"tvm-ffi": "tvm-ffi is not installed"}))
    assert reasons(missing) == ["cpu of build.toml: tvm-ffi is not installed"]


ROCM = """
[torch]
stable-abi = "2.11"
[kernel.k]
backend = "rocm"
depends = ["torch"]
src = ["k.hip"]
rocm-archs = {archs}
hip-flags = ["-ffast-math"]
[kernel.plain]
backend = "rocm"
depends = ["torch"]
src = ["plain.cpp"]
"""


def with_rocm(version: str = "7.1") -> Machine:
    root = Path("/opt/rocm")
    return replace(machine(), rocm=RocmToolkit(Version(version), root, root / "bin" / "hipcc", root / "lib"))


def rocm_recipe(archs: str = '["gfx942", "gfx90a", "gfx7"]', head: str = "") -> dict[str, Recipe]:
    return alone(
        recipe(
            ROCM.format(archs=archs).replace('stable-abi = "2.11"', head or 'stable-abi = "2.11"'), backends='["rocm"]'
        )
    )


def test_rocm_builds_for_what_is_asked_for_and_made() -> None:
    job = plan(rocm_recipe(), with_rocm()).jobs[0]
    assert isinstance(job, NativeJob)
    assert str(job.label) == "torch-stable-abi211-rocm71-x86_64-linux"
    assert job.archs == ("gfx90a", "gfx942")
    steps = compile_steps(job, "m", Layout(*map(Path, ("/k", "/i", "/o", "/m.so"))), Path("/usr/bin/g++"), None)
    device = next(step.argv for step in steps if step.name == "k: k.hip")
    assert device[0] == "/opt/rocm/bin/hipcc"
    assert {"--offload-arch=gfx90a", "--offload-arch=gfx942", "-ffast-math", "-DUSE_ROCM=1"} <= set(device)
    assert "-fno-gnu-unique" not in device
    plain = next(step.argv for step in steps if step.name == "plain: plain.cpp")
    assert plain[0] == "/usr/bin/g++" and not any("offload" in part for part in plain)


def test_what_rocm_cannot_be_built_for_is_the_reason() -> None:
    assert "for none of the rocm-archs of k" in reasons(plan(rocm_recipe('["gfx7"]'), with_rocm()))[0]
    assert "do without a torch for ROCm" in reasons(plan(rocm_recipe(head='minver = "2.1"'), with_rocm()))[0]
    assert "two digits" in reasons(plan(rocm_recipe(), with_rocm("6.12")))[0]


def crossing() -> Machine:
    """A machine with a compiler for another processor."""
    return replace(machine(), cross={"aarch64": Compiler(Path("/usr/bin/aarch64-linux-gnu-g++"), "g++ 12")})


def test_a_compiler_for_another_processor_makes_a_build_for_it() -> None:
    stable = plan(alone(recipe('[torch]\nstable-abi = "2.11"\n' + CPU)), crossing())
    assert labels(stable) == ["torch-stable-abi211-cpu-aarch64-linux", "torch-stable-abi211-cpu-x86_64-linux"]
    compilers = [job.cross for job in stable.jobs if isinstance(job, NativeJob)]
    assert compilers == [crossing().cross["aarch64"], None]
    tvm_ffi = plan(alone(recipe('[tvm-ffi]\nsrc = ["b.cpp"]\n' + CPU)), crossing())
    assert labels(tvm_ffi) == ["tvm-ffi01-cpu-aarch64-linux", "tvm-ffi01-cpu-x86_64-linux"]


def test_what_cannot_be_made_for_another_processor_says_why_and_is_not_unmade() -> None:
    classic = plan(alone(recipe("[torch]\n" + CPU)), crossing())
    assert reasons(classic) == [
        "cpu of build.toml: torch213-cxx11-cpu-aarch64-linux would be linked with a torch for aarch64, and only the "
        "stable ABI does without"
    ]
    assert (labels(classic), classic.unmade) == (["torch213-cxx11-cpu-x86_64-linux"], ())
    flags = recipe('[torch]\nstable-abi = "2.11"\n' + CPU + 'cxx-flags = ["-mavx2", "-O2"]\n')
    assert "is not built: -mavx2 are flags for one processor" in reasons(plan(alone(flags), crossing()))[0]


def cutlass(*names: str) -> Recipe:
    depends = ", ".join(f'"{name}"' for name in names)
    text = (
        f'[torch]\nstable-abi = "2.11"\n[kernel.k]\nbackend = "cuda"\ndepends = ["torch", {depends}]\nsrc = ["k.cu"]\n'
    )
    return recipe(text, backends='["cuda"]')


def test_headers_that_are_not_here_are_the_reason() -> None:
    matrix = plan(alone(cutlass("cutlass_4_0")), machine(cuda=("13.0",)))
    assert reasons(matrix) == ["cuda of build.toml: component k needs cutlass_4_0, whose headers are not here"]
    assert matrix.omissions[0].remedy == "name the folder of that CUTLASS in CUTLASS_HOME"
    offered = plan(alone(cutlass("cutlass_3_8")), machine(cuda=("13.0",))).omissions[0].remedy
    assert offered.endswith("or fetch it: kernel-hub build --fetch-toolkit cutlass_3_8")
    broken = replace(machine(cuda=("13.0",)), absent={"headers": "/opt/x is no copy of CUTLASS"})
    assert reasons(plan(alone(cutlass("cutlass_3_8")), broken))[0].endswith("not here: /opt/x is no copy of CUTLASS")


def test_headers_that_are_here_go_with_the_jobs_that_use_them() -> None:
    libraries = tuple(HeaderLibrary(name, "3", Path(f"/opt/{name}"), ()) for name in ("cutlass_3_6", "cutlass_3_8"))
    job = plan(alone(cutlass("cutlass_3_8")), replace(machine(cuda=("13.0",)), headers=libraries)).jobs[0]
    assert isinstance(job, NativeJob)
    assert job.headers == libraries[1:]


def test_a_backend_that_has_another_build_is_not_unmade() -> None:
    text = '[torch]\nstable-abi = "2.11"\n[kernel.k]\nbackend = "cuda"\ndepends = ["torch"]\nsrc = ["k.cu"]\n'
    limited = '[general.cuda]\nminver = "12.8"\n' + text
    found = recipe(limited, backends='["cuda", "rocm"]')
    matrix = plan(alone(found), machine(cuda=("12.6", "13.0")))
    assert [omission.backend.value for omission in matrix.omissions] == ["cuda", "rocm"]
    assert [omission.backend.value for omission in matrix.unmade] == ["rocm"]


def test_what_to_do_about_an_omission_goes_with_it() -> None:
    without = replace(machine(), compiler=None, remedies={"compiler": "install g++"})
    assert [item.remedy for item in plan(alone(recipe("[torch]\n" + CPU)), without).omissions] == ["install g++"]
