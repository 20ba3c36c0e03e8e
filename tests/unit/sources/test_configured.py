"""What a connection costs before there is anything to ask."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError, KernelHubError, RepositoryNotFoundError, SourceUnavailableError
from kernel_hub.model.requirement import RepoId
from kernel_hub.server.exchange import Site
from kernel_hub.settings import Settings, load_settings
from kernel_hub.sources.configured import ask_directly, connect
from tests.support.child import run_python
from tests.support.hub import HubServer

_CONNECT = """
import sys
from pathlib import Path
from kernel_hub.settings import load_settings
from kernel_hub.sources.configured import connect
home = Path(sys.argv[1])
connection = connect(load_settings({"HF_HOME": str(home), "HOME": str(home)}, home), "acme", host_facts={})
print(connection.source.name)
print(sorted(name for name in sys.modules if name.startswith(("huggingface_hub", "kernel_hub.sources."))))
"""


def test_nothing_that_asks_is_imported_before_there_is_a_question(tmp_path: Path) -> None:
    name, modules = run_python(_CONNECT, tmp_path).splitlines()
    assert name == "https://huggingface.co"
    for needless in ("huggingface_hub", "hub_source", "hub_http", "hub_sink", "directory", "registry_store"):
        assert needless not in modules


def test_a_connection_asks_when_it_is_asked(tmp_path: Path) -> None:
    # Port 9 discards: the refused connection is the question that was sent.
    settings = load_settings({"HF_HOME": str(tmp_path), "HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"})
    source = ask_directly(settings, "acme")
    assert source is not None
    assert source.name == "http://127.0.0.1:9"
    with pytest.raises(SourceUnavailableError, match="cannot be reached"):
        source.files(RepoId("acme", "axpy"), "c0ffee" * 6 + "c0de")


def test_an_endpoint_with_credentials_is_refused_before_any_question(tmp_path: Path) -> None:
    endpoint = "https://somebody:secret@hub.test"
    settings = load_settings({"HF_HOME": str(tmp_path), "HOME": str(tmp_path), "HF_ENDPOINT": endpoint})
    with pytest.raises(InvalidDocumentError, match="may not hold credentials") as caught:
        connect(settings, "acme", host_facts={})
    assert "secret" not in str(caught.value)


def _refused(settings: Settings, namespace: str = "acme") -> tuple[KernelHubError, str]:
    """The error of asking for a namespace's versions, and the traceback that a person would see."""
    try:
        connect(settings, namespace, host_facts={}).source.refs(RepoId(namespace, "axpy"))
    except KernelHubError as error:
        return error, traceback.format_exc()
    raise AssertionError("it was answered")


def test_a_registry_that_does_not_answer_is_spoken_of_by_its_own_setting(tmp_path: Path) -> None:
    environ = {"HF_HOME": str(tmp_path), "KERNEL_HUB_REGISTRIES": "acme=http://127.0.0.1:9"}
    error, shown = _refused(load_settings(environ, tmp_path))
    assert "KERNEL_HUB_REGISTRIES" in error.hint() and "running" in error.hint() and "HF_ENDPOINT" not in error.hint()
    assert "127.0.0.1:9" in error.message
    # The HTTP library's frames and their causes say nothing that the message does not say.
    assert shown.count("Traceback") == 1 and "httpcore" not in shown


def test_a_namespace_without_registry_is_said_to_be_looked_up_on_the_hub(hub_server: HubServer, tmp_path: Path) -> None:
    for endpoint in (hub_server.url, "http://127.0.0.1:9"):
        error, _ = _refused(load_settings({"HF_HOME": str(tmp_path), "HF_ENDPOINT": endpoint}, tmp_path))
        assert f"'acme' is looked up at {endpoint} because no registry is bound to it" in error.hint()


@pytest.mark.parametrize("binding", ["acme={}", '{{"acme": {{"url": "{}", "token-env": "ACME_TOKEN"}}}}'])
def test_a_registry_that_wants_a_token_says_how_to_give_it_one(
    start_hub: Callable[..., HubServer], tmp_path: Path, binding: str
) -> None:
    hub = start_hub(site=Site(token="hf_right", private=True))
    environ = {"HF_HOME": str(tmp_path), "KERNEL_HUB_REGISTRIES": binding.format(hub.url)}
    error, _ = _refused(load_settings(environ, tmp_path))
    assert "token-env" in error.hint() and "HF_TOKEN" not in error.hint() and "read" in error.hint()
    assert ("ACME_TOKEN" in error.hint()) == ("ACME_TOKEN" in binding)
    if "ACME_TOKEN" in binding:
        settings = load_settings(environ | {"ACME_TOKEN": "hf_right"}, tmp_path)
        assert isinstance(_refused(settings)[0], RepositoryNotFoundError)


@pytest.mark.parametrize(
    ("prepare", "problem"),
    [
        (lambda folder: None, "does not exist"),
        (Path.touch, "is not a folder"),
        (Path.mkdir, "is no registry"),
    ],
    ids=["absent", "a file", "another folder"],
)
def test_a_folder_that_is_no_registry_is_named_with_its_setting_and_how_to_make_one(
    tmp_path: Path, prepare: Callable[[Path], None], problem: str
) -> None:
    folder = tmp_path / "kernels"
    prepare(folder)
    (tmp_path / "pyproject.toml").write_text('[tool.kernel-hub.registries]\nacme = "kernels"\n')
    settings = load_settings({"HF_HOME": str(tmp_path), "HOME": str(tmp_path)}, tmp_path)
    with pytest.raises(InvalidDocumentError, match=problem) as caught:
        connect(settings, "acme", host_facts={})
    assert "pyproject.toml [tool.kernel-hub.registries]: acme: " in caught.value.message
    assert str(folder) in caught.value.message
    assert f"kernel-hub serve {folder} --create" in caught.value.hint()
    assert f"kernel-hub publish --to {folder}" in caught.value.hint()
