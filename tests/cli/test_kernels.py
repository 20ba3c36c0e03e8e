"""`explain`, `has`, `versions`, `info`, `download`: questions about a published kernel."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kernel_hub.server.http import RunningServer, make_app
from kernel_hub.sources.directory import DirectoryRegistry
from tests.cli.conftest import Run, write_host
from tests.support.fake_kernels import fake_build, publish_fake_kernel, write_fake_kernel

CPU, CUDA = "torch-cpu", "torch213-cxx11-cu130-x86_64-linux"
FAR = [f"torch2{minor}-cxx11-cu126-x86_64-linux" for minor in range(5, 10)]


@pytest.fixture
def published(registry: DirectoryRegistry) -> dict[int, str]:
    """`acme/axpy` in two versions; the commits by version."""
    builds = {
        CPU: fake_build(CPU, version=2, python_depends=["einops"]),
        CUDA: fake_build(CUDA, version=2, archs=["9.0"], with_digest=False),
    }
    return {
        1: publish_fake_kernel(registry, version=1, builds=[CPU]),
        2: publish_fake_kernel(registry, version=2, builds=builds),
    }


class TestExplain:
    def test_the_build_that_would_be_loaded_and_why_the_others_would_not(
        self, run: Run, published: dict[int, str], gpu_host: str
    ) -> None:
        result = run("explain", "acme/axpy", "--host", gpu_host)
        assert (result.code, result.err) == (0, "")
        assert f"  chosen: {CUDA}\n" in result.out
        assert f"  does not fit: {CPU}: backend: needs cpu, here cuda\n" in result.out
        assert "carries no digest" in result.out

    def test_json_holds_every_verdict_and_the_machine(self, run: Run, published: dict[int, str], gpu_host: str) -> None:
        answer = run("explain", "acme/axpy", "--host", gpu_host, "--json").json
        assert (answer["version"], answer["commit"], answer["chosen"]) == (2, published[2], CUDA)
        assert [entry["label"] for entry in answer["rejected"]] == [CPU]
        assert answer["trusted"] is True
        assert answer["host"]["devices"] == json.loads(Path(gpu_host).read_text(encoding="utf-8"))["devices"]

    @pytest.mark.parametrize(
        ("words", "version"),
        [
            (["acme/axpy@v1"], 1),
            (["acme/axpy@>=1,<2"], 1),
            (["acme/axpy", "--version", "1"], 1),
            (["acme/axpy", "--version", "<2"], 1),
            (["acme/axpy", "--revision", "v1"], 1),
            (["acme/axpy"], 2),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else None,
    )
    def test_a_version_or_revision_can_be_asked_for(
        self, run: Run, published: dict[int, str], cpu_host: str, words: list[str], version: int
    ) -> None:
        answer = run("explain", *words, "--host", cpu_host, "--json").json
        assert (answer["commit"], answer["chosen"]) == (published[version], CPU)

    def test_a_commit_can_be_asked_for(self, run: Run, published: dict[int, str], cpu_host: str) -> None:
        answer = run("explain", "acme/axpy", "--revision", published[1], "--host", cpu_host, "--json").json
        assert answer["commit"] == published[1]

    def test_a_kernel_without_a_fit_is_an_answer(self, run: Run, published: dict[int, str], tmp_path: Path) -> None:
        arm = write_host(tmp_path / "arm.json", cpu="aarch64", backend="rocm", backend_version="7.1")
        plain, as_json = (run("explain", "acme/axpy", "--host", arm, *extra) for extra in ((), ("--json",)))
        assert plain.code == as_json.code == 0
        assert "  chosen: none\n" in plain.out
        assert "  way out: " in plain.out
        assert as_json.json["chosen"] is None
        assert as_json.json["ways_out"]

    def test_the_closest_builds_are_shown_and_all_of_them_on_request(
        self, run: Run, registry: DirectoryRegistry, gpu_host: str
    ) -> None:
        publish_fake_kernel(registry, builds=FAR)
        short, full = (run("explain", "acme/axpy", "--host", gpu_host, *extra) for extra in ((), ("--all",)))
        assert sum(line.startswith("  does not fit: torch2") for line in short.out.splitlines()) == 3
        assert "  does not fit: 2 more, further off\n" in short.out
        assert [label for label in FAR if f"  does not fit: {label}:" in full.out] == FAR

    def test_verbosely_every_fact_has_its_probe_and_every_build_its_verdict(
        self, run: Run, published: dict[int, str], tmp_path: Path
    ) -> None:
        host = tmp_path / "host.json"
        found = {"cpu": "aarch64", "os": "windows", "probes": {"cpu": "it says so itself"}}
        host.write_text(json.dumps(found), encoding="utf-8")
        short = run("explain", "acme/axpy", "--host", str(host)).out
        long = run("explain", "acme/axpy", "--host", str(host), "--verbose").out
        assert "it says so itself" not in short
        assert re.search(r"cpu +aarch64\n +it says so itself", long)
        for label in (CPU, CUDA):
            assert re.search(rf"does not fit: {label}: .*needs .*, here ", long)

    def test_another_backend_can_be_asked_for(self, run: Run, published: dict[int, str], gpu_host: str) -> None:
        answer = run("explain", "acme/axpy", "--host", gpu_host, "--backend", "cpu", "--json").json
        assert answer["chosen"] == CPU

    def test_the_architecture_takes_part_unless_told_otherwise(
        self, run: Run, published: dict[int, str], tmp_path: Path
    ) -> None:
        devices = [{"index": 0, "name": "A100", "arch": "8.0"}, {"index": 1, "name": "H100", "arch": "9.0"}]
        two = write_host(tmp_path / "two.json", devices=devices)
        words = ("explain", "acme/axpy", "--host", two, "--json")
        assert run(*words).json["chosen"] is None
        assert run(*words, "--device", "1").json["chosen"] == CUDA
        assert run(*words, "--no-arch-check").json["chosen"] == CUDA

    def test_an_override_is_shown(
        self, run: Run, published: dict[int, str], cpu_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = write_fake_kernel(tmp_path / "mine", [CPU])
        monkeypatch.setenv("KERNEL_HUB_OVERRIDES", f"acme/axpy={folder}")
        result = run("explain", "acme/axpy", "--host", cpu_host)
        assert f"override: KERNEL_HUB_OVERRIDES: acme/axpy={folder}" in result.out

    @pytest.mark.parametrize(
        ("words", "kind", "code"),
        [
            (["acme/none"], "RepositoryNotFoundError", 3),
            (["acme/axpy@v9"], "VersionNotFoundError", 3),
            (["acme/axpy", "--revision", "nowhere"], "RevisionNotFoundError", 3),
            (["acme/axpy@v1", "--version", "1"], "InvalidDocumentError", 2),
            (["acme/axpy", "--version", "one"], "InvalidDocumentError", 2),
            (["acme/axpy", "--backend", "abacus"], "InvalidDocumentError", 2),
            (["elsewhere/axpy"], "OfflineError", 5),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else None,
    )
    def test_errors_are_typed_and_carry_their_exit_code(
        self, run: Run, published: dict[int, str], cpu_host: str, words: list[str], kind: str, code: int
    ) -> None:
        plain = run("explain", *words, "--host", cpu_host)
        as_json = run("explain", *words, "--host", cpu_host, "--json")
        assert plain.code == as_json.code == as_json.error["exit_code"] == code
        assert as_json.error["type"] == kind
        assert (plain.out, as_json.err) == ("", "")
        assert plain.err.startswith(f"error: {as_json.error['message']}")

    def test_a_registry_that_is_none_is_named(
        self, run: Run, cpu_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "folder").mkdir()
        monkeypatch.setenv("KERNEL_HUB_REGISTRIES", f"acme={tmp_path / 'folder'}")
        result = run("explain", "acme/axpy", "--host", cpu_host, "--json")
        assert (result.code, result.error["type"]) == (2, "InvalidDocumentError")
        assert str(tmp_path / "folder") in result.error["message"]


class TestHas:
    def test_yes_names_the_build(self, run: Run, published: dict[int, str], gpu_host: str) -> None:
        words = ("has", "acme/axpy", "--host", gpu_host)
        assert (run(*words).code, run(*words).out) == (0, f"yes: {CUDA}\n")
        assert run(*words, "--json").json == {"available": True, "known": True, "reason": CUDA, "error": None}

    @pytest.mark.parametrize(
        ("words", "kind", "code"),
        [
            (["acme/axpy", "--backend", "rocm"], "NoCompatibleVariantError", 4),
            (["acme/none"], "RepositoryNotFoundError", 3),
            (["elsewhere/axpy"], "OfflineError", 5),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, list) else None,
    )
    def test_no_carries_its_reason_and_the_exit_code_of_loading(
        self, run: Run, published: dict[int, str], gpu_host: str, words: list[str], kind: str, code: int
    ) -> None:
        plain = run("has", *words, "--host", gpu_host)
        as_json = run("has", *words, "--host", gpu_host, "--json")
        assert plain.code == as_json.code == code
        # That nobody could be asked is not the answer of somebody who was.
        is_known = kind != "OfflineError"
        assert plain.out.startswith("no: " if is_known else "unknown: ")
        assert ("\n  hint: unset HF_HUB_OFFLINE" in plain.out) != is_known
        assert (as_json.json["available"], as_json.json["known"]) == (False, is_known)
        assert as_json.error["type"] == kind
        assert (plain.err, as_json.err) == ("", "")

    def test_a_dependency_that_is_missing_is_a_no(self, run: Run, registry: DirectoryRegistry, tmp_path: Path) -> None:
        label = "torch-neuron"
        publish_fake_kernel(registry, builds={label: fake_build(label, python_depends=["nki"])})
        neuron = write_host(tmp_path / "neuron.json", backend="neuron", backend_version=None)
        result = run("has", "acme/axpy", "--host", neuron, "--json")
        assert (result.code, result.error["type"]) == (7, "MissingDependencyError")

    def test_a_malformed_name_is_a_usage_fault_and_no_answer(self, run: Run) -> None:
        result = run("has", "axpy", "--json")
        assert (result.code, set(result.json)) == (2, {"error"})


class TestVersions:
    def test_versions_are_listed_oldest_first_with_their_commits(self, run: Run, published: dict[int, str]) -> None:
        assert run("versions", "acme/axpy").out == f"v1 {published[1]}\nv2 {published[2]}\n"
        assert run("versions", "acme/axpy", "--json").json == {
            "repo": "acme/axpy",
            "versions": [{"version": 1, "commit": published[1]}, {"version": 2, "commit": published[2]}],
        }

    def test_a_kernel_without_versions_has_none(self, run: Run, registry: DirectoryRegistry) -> None:
        publish_fake_kernel(registry, branch="draft")
        assert run("versions", "acme/axpy").out == "acme/axpy has no versions\n"
        assert run("versions", "acme/axpy", "--json").json["versions"] == []

    @pytest.mark.parametrize(("repo", "code"), [("acme/none", 3), ("acme/axpy@v1", 2), ("axpy", 2)])
    def test_a_name_that_names_nothing_is_an_error(
        self, run: Run, registry: DirectoryRegistry, repo: str, code: int
    ) -> None:
        assert run("versions", repo).code == run("versions", repo, "--json").error["exit_code"] == code


class TestInfo:
    def test_every_build_is_described_whether_it_fits_or_not(
        self, run: Run, published: dict[int, str], cpu_host: str
    ) -> None:
        answer = run("info", "acme/axpy", "--host", cpu_host, "--json").json
        assert (answer["commit"], answer["version"]) == (published[2], 2)
        cpu, cuda = answer["builds"]
        assert (cpu["label"], cuda["label"]) == (CPU, CUDA)
        assert cpu["files"] == 3
        assert cpu["size_bytes"] == sum(map(len, fake_build(CPU, version=2, python_depends=["einops"]).values()))
        assert cpu["metadata"]["license"] == "Apache-2.0"
        assert cpu["metadata"]["python-depends"] == ["einops"]
        assert cpu["metadata"]["digest"] == {"algorithm": "sha256", "files": 2}
        assert cuda["metadata"]["backend"] == {"type": "cuda", "archs": ["9.0"]}
        assert "digest" not in cuda["metadata"]

    def test_text_says_the_same(self, run: Run, published: dict[int, str], cpu_host: str) -> None:
        result = run("info", "acme/axpy@v2", "--host", cpu_host)
        assert result.code == 0
        for text in (CPU, CUDA, "licence Apache-2.0", "cuda (9.0)", "einops", "sha256 of 2 files", "in 3 files"):
            assert text in result.out

    def test_each_build_has_its_verdict_for_the_machine_that_was_named(
        self, run: Run, published: dict[int, str], cpu_host: str, gpu_host: str
    ) -> None:
        verdicts = {}
        for name, host in (("cpu", cpu_host), ("gpu", gpu_host)):
            cpu, cuda = run("info", "acme/axpy", "--host", host, "--json").json["builds"]
            verdicts[name] = [(build["fits"], build["chosen"]) for build in (cpu, cuda)]
            explained = run("explain", "acme/axpy", "--host", host, "--json").json
            assert [build["label"] for build in (cpu, cuda) if build["chosen"]] == [explained["chosen"]]
        assert verdicts["cpu"] == [(True, True), (False, False)]
        assert verdicts["gpu"][1] == (True, True)
        text = run("info", "acme/axpy", "--host", cpu_host).out
        assert "yes, and is loaded" in text
        assert "no: backend: needs" in text

    def test_a_build_with_bad_metadata_is_described_by_its_fault(
        self, run: Run, registry: DirectoryRegistry, cpu_host: str
    ) -> None:
        publish_fake_kernel(
            registry, builds={CPU: fake_build(CPU), "torch-cuda": {"metadata.json": b"{"}, "torch-xpu": {"a.py": b""}}
        )
        answer = run("info", "acme/axpy", "--host", cpu_host, "--json").json
        assert [build["fault"] is None for build in answer["builds"]] == [True, False, False]
        assert "is not JSON" in answer["builds"][1]["fault"]
        assert "does not exist" in answer["builds"][2]["fault"]

    def test_metadata_that_is_out_of_reach_is_told_from_metadata_that_is_not_there(
        self, run: Run, home: Path, tmp_path: Path, cpu_host: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        registry = DirectoryRegistry.create(tmp_path / "served")
        publish_fake_kernel(registry, builds={CPU: fake_build(CPU), "torch-xpu": {"a.py": b""}})
        with RunningServer(make_app(registry)) as server:
            monkeypatch.setenv("KERNEL_HUB_REGISTRIES", f"acme={server.url}")
            monkeypatch.delenv("HF_HUB_OFFLINE")
            assert run("explain", "acme/axpy", "--host", cpu_host).code == 0
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        answer = run("info", "acme/axpy", "--host", cpu_host, "--json").json
        assert "is not in the cache, and the network may not be used" in answer["builds"][0]["fault"]
        assert "does not exist" in answer["builds"][1]["fault"]

    def test_an_override_is_described_from_its_folder(
        self, run: Run, registry: DirectoryRegistry, cpu_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = write_fake_kernel(tmp_path / "mine", [CPU, "torch-cuda"])
        monkeypatch.setenv("KERNEL_HUB_OVERRIDES", f"acme/axpy={folder}")
        answer = run("info", "acme/axpy", "--host", cpu_host, "--json").json
        assert (answer["commit"], answer["source"]) == (None, str(folder))
        assert [build["files"] for build in answer["builds"]] == [3, 3]

    def test_a_kernel_that_is_not_there_is_an_error(self, run: Run, registry: DirectoryRegistry) -> None:
        assert run("info", "acme/none", "--json").error["type"] == "RepositoryNotFoundError"


class TestDownload:
    def test_the_build_is_verified_and_lies_in_the_cache_of_its_registry(
        self, run: Run, registry: DirectoryRegistry, home: Path
    ) -> None:
        publish_fake_kernel(registry, builds=["torch-universal"])
        answer = run("download", "acme/axpy", "--json").json
        assert Path(answer["path"]).is_relative_to(home)
        assert (Path(answer["path"]) / "__init__.py").is_file()
        assert (answer["label"], answer["has_manifest"]) == ("torch-universal", True)
        assert answer["tree_digest"].startswith("sha256:")
        assert "is verified and lies in" in run("download", "acme/axpy").out

    def test_bytes_that_differ_from_the_manifest_are_refused(self, run: Run, registry: DirectoryRegistry) -> None:
        label = "torch-universal"
        publish_fake_kernel(registry, builds={label: fake_build(label) | {"extra.py": b"x = 1\n"}})
        result = run("download", "acme/axpy", "--json")
        assert (result.code, result.error["type"]) == (6, "DigestMismatchError")

    def test_no_fit_exits_with_4(self, run: Run, registry: DirectoryRegistry) -> None:
        publish_fake_kernel(registry, builds=["torch-cann"])
        result = run("download", "acme/axpy", "--json")
        assert (result.code, result.error["type"]) == (4, "NoCompatibleVariantError")


def test_decisions_are_reported_on_request_only(run: Run, registry: DirectoryRegistry) -> None:
    publish_fake_kernel(registry, builds=["torch-universal"])
    assert run("explain", "acme/axpy", "--json").err == ""
    assert run("explain", "acme/axpy", "--json", "--verbose").json == run("explain", "acme/axpy", "--json").json


def test_a_host_can_come_from_standard_input(run: Run, published: dict[int, str], gpu_host: str) -> None:
    content = Path(gpu_host).read_bytes()
    assert run("has", "acme/axpy", "--host", "-", stdin=content).out == f"yes: {CUDA}\n"
