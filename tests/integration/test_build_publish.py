"""Publishing builds to a registry folder, and what it refuses to publish."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_hub.build.interface import ApiRecord
from kernel_hub.build.pipeline import build
from kernel_hub.build.publish import Status, publish
from kernel_hub.build.sending import Bounds
from kernel_hub.errors import (
    CheckFailedError,
    ConflictError,
    InvalidDocumentError,
    PublishRefusedError,
    UnsafePathError,
)
from kernel_hub.model.metadata import Metadata, Provenance, SourceState
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.source import Addition, FileEntry
from kernel_hub.sources.directory import DirectoryRegistry
from kernel_hub.tree import manifest_of

AXPY = Path(__file__).parents[1] / "vectors" / "recipes" / "axpy"
REPO = RepoId("acme", "axpy")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel's folder with two builds that need no compiler."""
    shutil.copytree(AXPY, tmp_path / "axpy")
    build(tmp_path / "axpy", backends=["cuda", "rocm"])
    return tmp_path / "axpy"


@pytest.fixture
def registry(tmp_path: Path) -> DirectoryRegistry:
    return DirectoryRegistry.create(tmp_path / "registry")


def paths(registry: DirectoryRegistry, branch: str = "v1") -> list[str]:
    return [entry.path for entry in registry.files(REPO, registry.refs(REPO).branches[branch])]


def text(registry: DirectoryRegistry, branch: str, path: str) -> str:
    return registry.read(REPO, registry.refs(REPO).branches[branch], path, limit_bytes=1 << 20).decode()


def put(registry: DirectoryRegistry, branch: str, files: dict[str, bytes]) -> str:
    return registry.commit(
        REPO,
        branch,
        parent=registry.create_branch(REPO, branch),
        additions=[Addition(path, content) for path, content in files.items()],
        deletions=(),
        message="by hand",
    )


def rewrite(folder: Path, **changes: object) -> None:
    """Change a build's metadata and make its digest fit again."""
    metadata = Metadata.parse((folder / "metadata.json").read_bytes())
    changed = replace(metadata, **changes).with_manifest(manifest_of(folder))  # type: ignore[arg-type]
    (folder / "metadata.json").write_bytes(changed.format())


def test_builds_arrive_on_the_versions_branch_and_the_card_on_main(kernel: Path, registry: DirectoryRegistry) -> None:
    report = publish(kernel, registry, REPO)
    assert (report.status, report.branch, report.version, report.card) == (Status.PUBLISHED, "v1", 1, True)
    assert report.labels == ("torch-cuda", "torch-rocm")
    assert report.commit == registry.refs(REPO).branches["v1"]
    assert paths(registry) == sorted(report.added)
    assert set(paths(registry)) == {"api.json", "benchmarks/benchmark.py"} | {
        f"build/{path.relative_to(kernel / 'build').as_posix()}"
        for path in (kernel / "build").rglob("*")
        if path.is_file() and path.name != "CARD.md"
    }
    assert paths(registry, "main") == ["README.md"]


def test_the_card_is_rendered_with_what_the_sources_offer(kernel: Path, registry: DirectoryRegistry) -> None:
    publish(kernel, registry, REPO)
    provenance = Metadata.parse((kernel / "build" / "torch-cuda" / "metadata.json").read_bytes()).provenance
    builder = provenance.builder_version if provenance else ""
    assert text(registry, "main", "README.md") == (
        "---\nlibrary_name: kernels\nlicense: apache-2.0\n---\n\n# acme/axpy version 1\n\n- `axpy`\n\n"
        "Layers: Axpy\nIt has a benchmark.\n\nSources: https://example.org/acme/axpy.git\n"
        '\n## Usage\n\n```python\nfrom kernel_hub import get_kernel\n\nkernel = get_kernel("acme/axpy", version=1)\n```\n'
        "\n## Builds\n\n| backend | framework | system | GPU architectures | build |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| CUDA | any torch | any | 9.0, 8.0 | `torch-cuda` |\n| ROCm | any torch | any |  | `torch-rocm` |\n"
        "\n## Provenance\n\n- `torch-cuda`, `torch-rocm`: sources not stated; "
        f"built by `{builder}`\n"
    )


def test_the_card_lists_builds_of_earlier_publications_too(kernel: Path, registry: DirectoryRegistry) -> None:
    publish(kernel / "build" / "torch-rocm", registry, REPO)
    assert "torch-cuda" not in text(registry, "main", "README.md")
    report = publish(kernel / "build" / "torch-cuda", registry, REPO)
    card = text(registry, "main", "README.md")
    assert (report.card, "`torch-cuda` |" in card, "`torch-rocm` |" in card) == (True, True, True)
    for folder in ("build/torch-rocm", "build/torch-cuda", "build"):
        again = publish(kernel / folder, registry, REPO)
        assert (again.status, again.card) == (Status.UNCHANGED, False), folder


def test_a_build_there_whose_metadata_is_not_understood_is_listed_and_what_is_no_build_is_not(
    kernel: Path, registry: DirectoryRegistry
) -> None:
    registry.create_repo(REPO)
    put(registry, "v1", {f"build/{name}/metadata.json": b"{}" for name in ("torch-tpu", "latest")})
    put(registry, "v1", {"docs/torch-xpu/metadata.json": b"{}", "build/torch-xpu/more/metadata.json": b"{}"})
    publish(kernel, registry, REPO)
    card = text(registry, "main", "README.md")
    assert "| TPU | any torch | any |  | `torch-tpu` |" in card
    assert "- `torch-tpu`: its metadata cannot be read" in card
    assert "latest" not in card
    assert "torch-xpu" not in card


def test_results_of_benchmarks_are_on_the_card(kernel: Path, registry: DirectoryRegistry) -> None:
    row = {"problem": "large", "element_type": "float32", "unit": "byte", "rate_per_s": 2.5e9}
    (kernel / "benchmarks" / "results").mkdir()
    (kernel / "benchmarks" / "results" / "some.json").write_text(json.dumps({"cpu": "Some CPU", "rows": [row]}))
    publish(kernel, registry, REPO)
    assert "| `large` | `float32` | 2.5 GB/s |" in text(registry, "main", "README.md")


def test_publishing_again_changes_nothing(kernel: Path, registry: DirectoryRegistry) -> None:
    first = publish(kernel, registry, REPO)
    before = dict(registry.refs(REPO).branches)
    again = publish(kernel, registry, REPO)
    assert (again.status, again.added, again.deleted, again.card) == (Status.UNCHANGED, (), (), False)
    assert again.commit == first.commit
    assert again.unchanged == len(first.added)
    assert dict(registry.refs(REPO).branches) == before


def test_only_what_changed_is_sent_and_only_stale_files_of_the_builds_go(
    kernel: Path, registry: DirectoryRegistry
) -> None:
    (kernel / "torch-ext" / "axpy" / "before.py").write_text("")
    build(kernel, backends=["cuda", "rocm"])
    publish(kernel, registry, REPO)
    put(registry, "v1", {"docs/guide.md": b"kept", "build/torch29-cxx11-cpu-x86_64-linux/metadata.json": b"{}"})
    put(registry, "v1", {"build/torch-cuda/old.py": b""})
    (kernel / "torch-ext" / "axpy" / "before.py").unlink()
    (kernel / "torch-ext" / "axpy" / "more.py").write_text("")
    build(kernel, backends=["cuda"])
    report = publish(kernel, registry, REPO)
    assert "build/torch-cuda/more.py" in report.added
    assert "build/torch-cuda/_types.pyi" not in report.added
    assert report.deleted == ("build/torch-cuda/before.py", "build/torch-cuda/old.py")
    assert {"docs/guide.md", "build/torch29-cxx11-cpu-x86_64-linux/metadata.json"} <= set(paths(registry))


def test_one_build_can_be_published_by_itself_beside_the_others(kernel: Path, registry: DirectoryRegistry) -> None:
    publish(kernel / "build" / "torch-rocm", registry, REPO)
    report = publish(kernel / "build" / "torch-cuda", registry, REPO)
    assert report.labels == ("torch-cuda",)
    assert {path.split("/")[1] for path in paths(registry) if path.startswith("build/")} == {"torch-cuda", "torch-rocm"}


def test_a_new_branch_starts_without_builds_of_another_version(kernel: Path, registry: DirectoryRegistry) -> None:
    registry.create_repo(REPO)
    put(registry, "main", {"build/torch-tpu/metadata.json": b"{}", "docs/guide.md": b"kept"})
    report = publish(kernel, registry, REPO)
    assert report.deleted == ("build/torch-tpu/metadata.json",)
    assert "docs/guide.md" in paths(registry)


def test_the_card_of_a_newer_version_stays(kernel: Path, registry: DirectoryRegistry) -> None:
    registry.create_repo(REPO)
    put(registry, "v2", {"x": b""})
    report = publish(kernel, registry, REPO)
    assert not report.card
    assert report.notes == ("the card stays that of version 2, which is newer",)
    assert paths(registry, "main") == []


def test_a_dry_run_says_what_would_be_and_does_nothing(kernel: Path, registry: DirectoryRegistry) -> None:
    report = publish(kernel, registry, REPO, dry_run=True)
    assert (report.status, report.commit) == (Status.PLANNED, None)
    assert registry.repos() == ()
    assert publish(kernel, registry, REPO).added == report.added


def test_a_changed_file_is_refused_by_name(kernel: Path, registry: DirectoryRegistry) -> None:
    (kernel / "build" / "torch-cuda" / "layers.py").write_text("changed")
    (kernel / "build" / "torch-cuda" / "extra.py").write_text("extra")
    (kernel / "build" / "torch-cuda" / "notes.txt").unlink()
    with pytest.raises(PublishRefusedError, match=r"not what its digest says: extra\.py, layers\.py, notes\.txt"):
        publish(kernel, registry, REPO)


def test_bytecode_is_not_published(kernel: Path, registry: DirectoryRegistry) -> None:
    cache = kernel / "build" / "torch-cuda" / "__pycache__"
    cache.mkdir()
    (cache / "layers.cpython-311.pyc").write_bytes(b"bytecode")
    publish(kernel, registry, REPO)
    assert not [path for path in paths(registry) if "pycache" in path]


def test_a_link_is_refused(kernel: Path, registry: DirectoryRegistry) -> None:
    secret = kernel.parent / "secret.py"
    secret.write_text("secret")
    folder = kernel / "build" / "torch-cuda"
    (folder / "linked.py").symlink_to(secret)
    rewrite(folder)
    with pytest.raises(UnsafePathError, match=r"linked\.py is a link"):
        publish(kernel, registry, REPO)


def test_a_build_without_digest_is_refused(kernel: Path, registry: DirectoryRegistry) -> None:
    folder = kernel / "build" / "torch-cuda"
    metadata = Metadata.parse((folder / "metadata.json").read_bytes())
    (folder / "metadata.json").write_bytes(replace(metadata, manifest=None).format())
    with pytest.raises(PublishRefusedError, match="torch-cuda has no digest"):
        publish(kernel, registry, REPO)


def test_builds_of_different_kernels_or_versions_are_refused(kernel: Path, registry: DirectoryRegistry) -> None:
    rewrite(kernel / "build" / "torch-rocm", version=2)
    with pytest.raises(PublishRefusedError, match="torch-rocm has version 2, torch-cuda has 1"):
        publish(kernel, registry, REPO)


def test_a_label_that_says_otherwise_than_the_metadata_is_refused(kernel: Path, registry: DirectoryRegistry) -> None:
    (kernel / "build" / "torch-cuda").rename(kernel / "build" / "torch-xpu")
    with pytest.raises(PublishRefusedError, match="torch-xpu is a build for xpu, its metadata says cuda"):
        publish(kernel, registry, REPO)


def test_a_folder_that_is_no_label_is_refused(kernel: Path, registry: DirectoryRegistry) -> None:
    (kernel / "build" / "torch-cuda").rename(kernel / "build" / "latest")
    with pytest.raises(InvalidDocumentError, match="'latest' is not the name of a build"):
        publish(kernel, registry, REPO)


def test_a_folder_without_builds_is_refused(tmp_path: Path, registry: DirectoryRegistry) -> None:
    with pytest.raises(PublishRefusedError, match="holds no build"):
        publish(tmp_path / "nowhere", registry, REPO)


def test_builds_of_uncommitted_sources_are_refused_unless_allowed(kernel: Path, registry: DirectoryRegistry) -> None:
    dirty = Provenance("t", None, SourceState("0" * 40, True))
    rewrite(kernel / "build" / "torch-cuda", provenance=dirty)
    with pytest.raises(PublishRefusedError, match="differ from their commit: torch-cuda"):
        publish(kernel, registry, REPO)
    assert publish(kernel, registry, REPO, allow_dirty=True).notes == (
        "built from sources that differ from their commit: torch-cuda",
    )


def test_main_takes_no_builds(kernel: Path, registry: DirectoryRegistry) -> None:
    with pytest.raises(PublishRefusedError, match="not published to 'main'"):
        publish(kernel, registry, REPO, branch="main")


def test_a_card_that_reaches_for_more_than_its_variables_is_refused(kernel: Path, registry: DirectoryRegistry) -> None:
    (kernel / "build" / "CARD.md").write_text("{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(InvalidDocumentError, match=r"CARD\.md: cannot be rendered: .*unsafe"):
        publish(kernel, registry, REPO)
    assert registry.repos() == ()


def test_a_kernel_without_card_gets_a_plain_one(kernel: Path, registry: DirectoryRegistry) -> None:
    (kernel / "build" / "CARD.md").unlink()
    (kernel / "CARD.md").unlink()
    publish(kernel, registry, REPO)
    readme = text(registry, "main", "README.md")
    assert readme.startswith("---\nlibrary_name: kernels\nlicense: apache-2.0\n---\n\n# acme/axpy\n")
    assert 'get_kernel("acme/axpy", version=1)' in readme


class Meddling(DirectoryRegistry):
    """A registry in which something else happens just before a commit, or that lies about what it holds."""

    moved = False
    hidden = ""

    def commit(
        self, repo: RepoId, branch: str, *, parent: str, additions: Sequence[Addition], deletions: Sequence[str],
        message: str,
    ) -> str:  # fmt: skip
        if self.moved:
            self.moved = False
            super().commit(
                repo, branch, parent=parent, additions=[Addition("x", b"")], deletions=(), message="meanwhile"
            )
        return super().commit(repo, branch, parent=parent, additions=additions, deletions=deletions, message=message)

    def files(self, repo: RepoId, commit: str, prefix: str = "") -> tuple[FileEntry, ...]:
        return tuple(entry for entry in super().files(repo, commit, prefix) if entry.path != self.hidden)


def test_a_branch_that_moves_meanwhile_is_a_conflict_and_keeps_what_it_has(kernel: Path, tmp_path: Path) -> None:
    registry = Meddling.create(tmp_path / "moving")
    registry.moved = True
    with pytest.raises(ConflictError):
        publish(kernel, registry, REPO)
    assert paths(registry) == ["x"]


def test_a_target_that_does_not_show_what_was_sent_is_an_error(kernel: Path, tmp_path: Path) -> None:
    registry = Meddling.create(tmp_path / "lying")
    registry.hidden = "build/torch-cuda/_ops.py"
    with pytest.raises(PublishRefusedError, match=r"shows other files than were sent: build/torch-cuda/_ops\.py"):
        publish(kernel, registry, REPO)


def test_the_report_is_made_of_plain_values(kernel: Path, registry: DirectoryRegistry) -> None:
    report = publish(kernel, registry, REPO)
    json.dumps([report.status.value, str(report.repo), report.target, report.added, report.deleted, report.notes])
    assert report.sent_bytes == sum(entry.size_bytes for entry in registry.files(REPO, str(report.commit)))


def test_builds_are_proposed_to_a_branch_that_stays_where_it_is(kernel: Path, registry: DirectoryRegistry) -> None:
    registry.create_repo(REPO)
    before = put(registry, "v1", {"build/torch-rocm/stale.py": b"1", "docs/guide.md": b"2"})
    report = publish(kernel, registry, REPO, propose=True)
    assert report.status is Status.PROPOSED
    assert report.proposal is not None
    assert (report.proposal.number, report.proposal.commit) == (1, report.commit)
    assert registry.refs(REPO).branches["v1"] == before
    proposed = {entry.path for entry in registry.files(REPO, registry.commit_of(REPO, "refs/pr/1"))}
    assert proposed == {"docs/guide.md", *report.added}
    assert (report.card, paths(registry, "main")) == (False, [])


def test_a_proposal_needs_the_branch(kernel: Path, registry: DirectoryRegistry) -> None:
    registry.create_repo(REPO)
    with pytest.raises(PublishRefusedError, match="has no branch 'v1' to propose builds to"):
        publish(kernel, registry, REPO, propose=True)


def test_what_is_there_already_is_not_proposed(kernel: Path, registry: DirectoryRegistry) -> None:
    publish(kernel, registry, REPO)
    report = publish(kernel, registry, REPO, propose=True)
    assert (report.status, report.proposal) == (Status.UNCHANGED, None)


def test_builds_too_large_for_one_commit_arrive_whole_one_after_the_other(
    kernel: Path, registry: DirectoryRegistry
) -> None:
    bounds = Bounds(files=12)
    report = publish(kernel, registry, REPO, bounds=bounds)
    assert report.notes == ("too large for one commit: 2 commits of whole builds",)
    newest, first, _ = registry.commits(REPO, "v1")
    labels = [
        {entry.path.split("/")[1] for entry in registry.files(REPO, commit, "build")} for commit in (first, newest)
    ]
    assert labels == [{"torch-cuda"}, {"torch-cuda", "torch-rocm"}]
    with pytest.raises(PublishRefusedError, match="a proposal is one"):
        for label in ("torch-cuda", "torch-rocm"):
            entry = kernel / "build" / label / "__init__.py"
            entry.write_text(f"{entry.read_text()}# changed\n")
            rewrite(entry.parent)
        publish(kernel, registry, REPO, bounds=Bounds(files=3), propose=True)


def offered(registry: DirectoryRegistry) -> ApiRecord:
    return ApiRecord.parse(text(registry, "v1", "api.json").encode())


def test_what_the_builds_offer_is_written_beside_them(kernel: Path, registry: DirectoryRegistry) -> None:
    publish(kernel, registry, REPO)
    assert (list(offered(registry).functions), list(offered(registry).layers)) == (["axpy"], ["Axpy"])


def test_a_build_that_drops_what_its_version_offers_is_refused(kernel: Path, registry: DirectoryRegistry) -> None:
    publish(kernel, registry, REPO)
    before = registry.refs(REPO).branches["v1"]
    init = kernel / "build" / "torch-cuda" / "__init__.py"
    init.write_text("def other(x):\n    return x\n\n__all__ = ['other']\n")
    rewrite(init.parent)
    with pytest.raises(CheckFailedError, match=r"axpy is no longer offered .*raise general\.version"):
        publish(kernel, registry, REPO)
    assert registry.refs(REPO).branches["v1"] == before


def test_a_function_more_is_promised_once_every_build_has_it(kernel: Path, registry: DirectoryRegistry) -> None:
    publish(kernel, registry, REPO)
    for label in ("torch-cuda", "torch-rocm"):
        init = kernel / "build" / label / "__init__.py"
        init.write_text(f"{init.read_text()}\n\ndef more(x):\n    return x\n\n\n__all__ += ['more']\n")
        rewrite(init.parent)
    publish(kernel / "build" / "torch-cuda", registry, REPO)
    assert list(offered(registry).functions) == ["axpy"]
    publish(kernel, registry, REPO)
    assert list(offered(registry).functions) == ["axpy", "more"]


def test_the_branch_of_another_version_takes_no_builds(kernel: Path, registry: DirectoryRegistry) -> None:
    with pytest.raises(PublishRefusedError, match="builds of version 1, and 'v5' is the branch of another version"):
        publish(kernel, registry, REPO, branch="v5")
    assert publish(kernel, registry, REPO, branch="next").branch == "next"
