"""What a publisher may write after `--to`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError, KernelHubError, OfflineError, RepositoryNotFoundError
from kernel_hub.model.requirement import RepoId
from kernel_hub.server.exchange import Site
from kernel_hub.settings import Settings, load_settings
from kernel_hub.sources.directory import DirectoryRegistry
from kernel_hub.sources.hub import HubSink
from kernel_hub.sources.target import open_sink
from tests.support.hub import HubServer

HUB_TOKEN, ACME_TOKEN = "hf_" + "h" * 34, "hf_" + "a" * 34


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A Hub at one address, a registry with a token of its own at another."""
    environ = {
        "HF_HOME": str(tmp_path / "hf"),
        "HF_ENDPOINT": "http://127.0.0.1:1",
        "HF_TOKEN": HUB_TOKEN,
        "ACME_TOKEN": ACME_TOKEN,
        "KERNEL_HUB_REGISTRIES": '{"acme": {"url": "http://127.0.0.1:2", "token-env": "ACME_TOKEN"}}',
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    return load_settings(environ, tmp_path)


@pytest.mark.parametrize(
    "prepare", [lambda folder: None, Path.mkdir, DirectoryRegistry.create], ids=["absent", "empty", "registry"]
)
@pytest.mark.parametrize("as_url", [False, True])
def test_a_folder_that_is_absent_or_empty_or_a_registry_is_a_registry(
    settings: Settings, tmp_path: Path, prepare: object, as_url: bool
) -> None:
    folder = tmp_path / "a b"
    assert callable(prepare)
    prepare(folder)
    sink = open_sink(settings, folder.as_uri() if as_url else str(folder))
    sink.create_repo(RepoId("acme", "axpy"))
    assert sink.name == DirectoryRegistry.open(folder).name


def test_a_registry_is_made_only_if_that_is_wanted(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(InvalidDocumentError, match="is no registry"):
        open_sink(settings, str(tmp_path / "absent"), create=False)
    assert not (tmp_path / "absent").exists()


def test_a_registry_is_made_with_its_first_repository(settings: Settings, tmp_path: Path) -> None:
    sink = open_sink(settings, str(tmp_path / "new"))
    with pytest.raises(RepositoryNotFoundError, match="no registry yet"):
        sink.refs(RepoId("acme", "axpy"))
    assert not (tmp_path / "new").exists()
    sink.create_repo(RepoId("acme", "axpy"))
    assert list(sink.refs(RepoId("acme", "axpy")).branches) == ["main"]


def test_a_relative_folder_starts_at_the_working_folder(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_sink(settings, "registry").create_repo(RepoId("acme", "axpy"))
    DirectoryRegistry.open(tmp_path / "registry")


def test_a_folder_that_holds_something_else_is_refused_and_left_alone(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    with pytest.raises(InvalidDocumentError, match="is not empty, and is no registry"):
        open_sink(settings, str(tmp_path / "full"))
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]


@pytest.mark.parametrize(
    ("target", "given", "token"),
    [
        ("http://127.0.0.1:1/", None, HUB_TOKEN),
        ("http://127.0.0.1:2", None, ACME_TOKEN),
        ("http://127.0.0.1:3", None, None),
        ("http://127.0.0.1:3", "hf_" + "g" * 34, "hf_" + "g" * 34),
        ("http://127.0.0.1:1", "hf_" + "g" * 34, "hf_" + "g" * 34),
    ],
    ids=["endpoint", "registry", "stranger", "stranger-given", "endpoint-given"],
)
def test_a_hub_is_sent_the_token_that_was_set_for_it_and_no_other(
    settings: Settings, target: str, given: str | None, token: str | None
) -> None:
    sink = open_sink(settings, target, token=given)
    assert isinstance(sink, HubSink)
    assert sink.name == target.rstrip("/")
    assert sink._token == token


@pytest.mark.parametrize("target", ["", "ftp://127.0.0.1/x", "file://elsewhere/x", "http://"])
def test_what_is_neither_a_folder_nor_a_hub_is_refused(settings: Settings, target: str) -> None:
    with pytest.raises(InvalidDocumentError):
        open_sink(settings, target)


def test_a_hub_is_not_asked_while_the_network_may_not_be_used(tmp_path: Path) -> None:
    environ = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "XDG_CONFIG_HOME": str(tmp_path / "none")}
    offline = load_settings(environ, tmp_path)
    open_sink(offline, str(tmp_path / "registry"))
    with pytest.raises(OfflineError, match=r"127\.0\.0\.1"):
        open_sink(offline, "http://127.0.0.1:1")


def test_a_target_that_refuses_or_does_not_answer_is_spoken_of_as_the_target(
    start_hub: Callable[..., HubServer], settings: Settings
) -> None:
    hub = start_hub(site=Site(token="hf_right"))
    with pytest.raises(KernelHubError, match="writing") as refused:
        open_sink(settings, hub.url, token="hf_wrong").create_repo(RepoId("acme", "axpy"))
    assert "--token-env NAME" in refused.value.hint() and "HF_TOKEN" not in refused.value.hint()
    with pytest.raises(KernelHubError) as dead:
        open_sink(settings, "http://127.0.0.1:9").refs(RepoId("acme", "axpy"))
    assert "--to http://127.0.0.1:9" in dead.value.hint() and "HF_ENDPOINT" not in dead.value.hint()
