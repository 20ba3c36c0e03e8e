"""What a connection costs before there is anything to ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError, SourceUnavailableError
from kernel_hub.model.requirement import RepoId
from kernel_hub.settings import load_settings
from kernel_hub.sources.configured import ask_directly, connect
from tests.support.child import run_python

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
