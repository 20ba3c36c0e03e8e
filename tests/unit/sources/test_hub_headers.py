from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_hub import __version__
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.sources.hub_headers import checked_token, implicit_token, names_token, user_agent_text

FACTS = {"python": "3.11.7", "torch": "2.13.0+cpu"}


def test_the_machine_is_named_unless_telemetry_is_off() -> None:
    on = user_agent_text(None, telemetry=True, host_facts=FACTS)
    assert on == f"kernel_hub/{__version__}; python/3.11.7; torch/2.13.0+cpu"
    assert user_agent_text(None, telemetry=False, host_facts=FACTS) == f"kernel_hub/{__version__}"


@pytest.mark.parametrize("extra", [None, "", " ", ";", " ; ", {}, {" ": " "}, "\t\n"])
def test_a_blank_addition_leaves_no_trace(extra: str | dict[str, str] | None) -> None:
    assert user_agent_text(extra, telemetry=False, host_facts={}) == f"kernel_hub/{__version__}"


@pytest.mark.parametrize("extra", ["app/1; plugin/2", {"app": "1", "plugin": "2"}])
def test_an_addition_is_a_text_or_names_with_values(extra: str | dict[str, str]) -> None:
    assert user_agent_text(extra, telemetry=False, host_facts={}).endswith("; app/1; plugin/2")


@given(st.text() | st.dictionaries(st.text(), st.text()), st.booleans(), st.dictionaries(st.text(), st.text()))
def test_every_user_agent_is_a_valid_header(
    extra: str | dict[str, str], telemetry: bool, facts: dict[str, str]
) -> None:
    found = user_agent_text(extra, telemetry=telemetry, host_facts=facts)
    assert re.fullmatch(r"[\x21-\x7e]+( [\x21-\x7e]+)*", found)


@pytest.mark.parametrize("token", ["", " ", "a b", "a\r\nX-Evil: 1", "ü", "a\0"])
def test_what_cannot_be_a_token_is_refused_without_being_told(token: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        checked_token(token)
    assert not token.strip() or token.strip() not in str(caught.value)


def test_blanks_around_a_token_are_dropped() -> None:
    assert checked_token(" hf_abc\n") == "hf_abc"


def test_the_stored_token_belongs_to_huggingface_hubs_endpoint_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("HF_TOKEN", "hf_stored")
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.example")
    assert implicit_token("https://hub.example") == "hf_stored"
    assert implicit_token("https://hub.example:443/mirror") == "hf_stored"
    assert implicit_token("http://hub.example") is None
    assert implicit_token("https://hub.example:8443") is None
    assert implicit_token("https://other.example") is None
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
    assert implicit_token("https://hub.example") is None


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, False),
        ({"HF_HOME": "/home", "HF_ENDPOINT": "https://hub.example", "TOKEN": "t", "HF_TOKEN": ""}, False),
        ({"HF_TOKEN": "t"}, True),
        ({"HUGGING_FACE_HUB_TOKEN": "t"}, True),
        ({"HF_TOKEN_PATH": "/token"}, True),
        ({"HF_OIDC_RESOURCE": "r"}, True),
    ],
)
def test_variables_that_may_lead_to_a_token_are_known(environ: dict[str, str], told: bool) -> None:
    assert names_token(environ) is told


def test_a_token_in_a_file_is_found_without_any_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.example")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert implicit_token("https://hub.example", environ_names_token=False) is None
    (tmp_path / "token").write_text("hf_stored")
    assert implicit_token("https://hub.example", environ_names_token=False) == "hf_stored"
