"""`kernel-hub trust`, `new-key`, `sign` and `verify` as a user meets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.artifacts import write_build


@pytest.fixture
def run(run: Run) -> Run:
    """As ever, and takes paths too."""
    return lambda *words: run(*map(str, words))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_build(tmp_path / "kernel" / "build" / "torch-cpu", {"__init__.py": ""})
    write_build(tmp_path / "kernel" / "build" / "torch-cuda", {"__init__.py": ""}, backend={"type": "cuda"})
    return tmp_path / "kernel"


class TestTrust:
    def test_what_is_added_is_listed_and_can_be_removed(self, run, home: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
        monkeypatch.setenv("USER", "alice")
        added = run("trust", "add", "acme/axpy", "--reason", "read it")
        assert (added.code, added.out) == (0, f"{home / 'trust.toml'} now allows acme/axpy\n")
        assert "allows already" in run("trust", "add", "acme/axpy").out
        listed = run("trust", "list")
        assert listed.out.startswith("acme/axpy  by alice on ")
        assert "read it" in listed.out
        (entry,) = run("trust", "list", "--json").json["allowed"]
        assert (entry["scope"], entry["added_by"], entry["reason"]) == ("acme/axpy", "alice", "read it")
        assert run("trust", "remove", "acme/axpy", "--json").json["removed"] == 1
        assert "did not allow" in run("trust", "remove", "acme/axpy").out
        assert run("trust", "list").out == "no trust file allows or demands anything\n"

    def test_the_project_has_a_file_of_its_own(self, run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
        assert run("trust", "add", "acme", "--project").code == 2
        (tmp_path / "pyproject.toml").write_text("")
        assert run("trust", "add", "acme", "--project").code == 0
        assert 'publisher = "acme"' in (tmp_path / "kernel-hub-trust.toml").read_text()
        assert run("trust", "list").out.startswith("acme/*")

    @pytest.mark.parametrize(
        "words",
        [
            ("trust",),
            ("trust", "allow", "acme"),
            ("trust", "add"),
            ("trust", "remove"),
            ("trust", "list", "acme"),
            ("trust", "add", "acme/axpy@main"),
            ("trust", "add", "acme", "--signer", "nobody"),
        ],
    )
    def test_a_wrong_command_line_changes_nothing(self, run, home: Path, words: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
        assert run(*words).code == 2
        assert not (home / "trust.toml").exists()

    def test_the_line_that_a_refusal_prints_allows_the_kernel(self, run, registry, home: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
        from kernel_hub.model.requirement import RepoId
        from kernel_hub.model.source import PublisherStanding
        from kernel_hub.settings import load_settings
        from kernel_hub.trust import NotTrusted, Subject, Trusted

        subject = Subject(RepoId("acme", "axpy"), "0f" * 20, "code", lambda: PublisherStanding(False, "it says so"))
        refused = load_settings().trust.decide(subject)
        assert isinstance(refused, NotTrusted)
        line = refused.remedy.split("kernel-hub ")[1].split(",")[0]
        assert run(*line.split()).code == 0
        assert isinstance(load_settings().trust.decide(subject), Trusted)


class TestSigning:
    def test_a_signature_is_made_believed_and_lost_with_the_build(self, run, home: Path, project: Path) -> None:  # type: ignore[no-untyped-def]
        made = run("new-key", home / "key.pem", "--name", "ci")
        assert made.code == 0
        (home / "trust.toml").write_text(made.out.partition("\n\n")[2])
        assert run("verify", project, "--signer", "ci").code == 6
        signed = run("sign", project, "--key", home / "key.pem", "--repo", "acme/axpy")
        assert signed.code == 0
        assert signed.out.count("signed: ") == 2
        verified = run("verify", project, "--signer", "ci")
        assert (verified.code, verified.out) == (
            0,
            "torch-cpu: verified, signed by ci\ntorch-cuda: verified, signed by ci\n",
        )
        (project / "build" / "torch-cpu" / "metadata.json").write_text("{}")
        refused = run("verify", project, "--signer", "ci", "--json")
        assert refused.code == 6
        assert [build["verified"] for build in refused.json["builds"]] == [False, True]
        assert refused.json["builds"][0]["error"]["type"] == "SignatureInvalidError"

    def test_a_key_is_not_overwritten(self, run, home: Path) -> None:  # type: ignore[no-untyped-def]
        assert run("new-key", home / "key.pem", "--name", "ci").code == 0
        content = (home / "key.pem").read_bytes()
        assert run("new-key", home / "key.pem", "--name", "ci").code == 2
        assert (home / "key.pem").read_bytes() == content

    def test_the_private_key_is_never_printed(self, run, home: Path) -> None:  # type: ignore[no-untyped-def]
        printed = (
            run("new-key", home / "key.pem", "--name", "ci").out
            + run("new-key", home / "b", "--name", "ci", "--json").out
        )
        secret = (home / "key.pem").read_text().splitlines()[1]
        assert secret not in printed
        assert "PRIVATE" not in printed

    def test_what_is_no_key_is_a_typed_error(self, run, home: Path, project: Path) -> None:  # type: ignore[no-untyped-def]
        (home / "key.pem").write_text("nonsense")
        result = run("sign", project, "--key", home / "key.pem")
        assert result.code == 2
        assert "key.pem" in result.err

    def test_a_missing_key_is_a_typed_error(self, run, home: Path, project: Path) -> None:  # type: ignore[no-untyped-def]
        result = run("sign", project, "--key", home / "gone.pem")
        assert result.code == 2
        assert "gone.pem" in result.err


class TestVerify:
    def test_every_build_is_named_with_its_verdict(self, run, project: Path) -> None:  # type: ignore[no-untyped-def]
        write_build(project / "build" / "torch-rocm", {"__init__.py": ""}, algorithm=None, backend={"type": "rocm"})
        (project / "build" / "torch-cuda" / "extra.py").write_text("")
        result = run("verify", project)
        assert result.code == 6
        assert "torch-cpu: verified\n" in result.out
        assert "torch-cuda: refused: " in result.out
        assert "extra.py: not in the manifest" in result.out
        assert "torch-rocm: no digest to verify\n" in result.out

    def test_a_digest_can_be_required(self, run, project: Path) -> None:  # type: ignore[no-untyped-def]
        write_build(project / "build" / "torch-cpu", {}, algorithm=None)
        assert run("verify", project).code == 0
        assert run("verify", project, "--require-digest").code == 6

    def test_one_build_can_be_verified_alone(self, run, project: Path) -> None:  # type: ignore[no-untyped-def]
        assert run("verify", project / "build" / "torch-cpu").out == "torch-cpu: verified\n"

    def test_an_unknown_signer_and_a_folder_without_builds_are_usage_errors(
        self, run, project: Path, tmp_path: Path
    ) -> None:  # type: ignore[no-untyped-def]
        assert run("verify", project, "--signer", "who").code == 2
        assert run("verify", tmp_path).code == 2
        assert run("verify", tmp_path / "gone").code == 2

    def test_nothing_of_a_build_is_imported(self, run, project: Path) -> None:  # type: ignore[no-untyped-def]
        write_build(project / "build" / "torch-cpu", {"__init__.py": "raise AssertionError('imported')\n"})
        assert run("verify", project).code == 0
