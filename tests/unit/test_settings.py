"""The environment and configuration files as a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.settings import Settings, load_settings
from kernel_hub.trust import TrustRules


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    def read(folder: Path | None = None, **environ: str) -> Settings:
        return load_settings(
            {"HF_HOME": str(tmp_path / "hf"), "XDG_CONFIG_HOME": str(tmp_path / "xdg"), **environ}, folder or tmp_path
        )

    return read


def test_defaults_lie_beside_the_hugging_face_cache(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    settings = read()
    assert settings.endpoint == "https://huggingface.co"
    assert settings.hub_cache == tmp_path / "hf" / "hub"
    assert settings.home == tmp_path / "hf" / "kernel_hub"
    assert settings.mode == "online"
    assert settings.telemetry


def test_the_hub_variables_are_honoured(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    settings = read(
        HF_ENDPOINT="http://127.0.0.1:9/",
        HF_HUB_CACHE=str(tmp_path / "c"),
        HF_HUB_OFFLINE="1",
        HF_TOKEN="t",
        DO_NOT_TRACK="1",
        KERNEL_HUB_FRESHNESS="0",
        KERNEL_HUB_VERIFY="always",
    )
    assert settings.endpoint == "http://127.0.0.1:9"
    assert settings.hub_cache == tmp_path / "c"
    assert settings.mode == "offline"
    assert settings.token == "t"
    assert not settings.telemetry
    assert settings.freshness_s == 0
    assert settings.verify_always


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_HUB_OFFLINE", "maybe"),
        ("KERNEL_HUB_MODE", "later"),
        ("KERNEL_HUB_FRESHNESS", "soon"),
        ("KERNEL_HUB_FRESHNESS", "inf"),
        ("HF_ENDPOINT", "hub.example"),
        ("KERNEL_HUB_OVERRIDES", "{"),
        ("KERNEL_HUB_OVERRIDES", "acme/axpy"),
        ("KERNEL_HUB_OVERRIDES", "acme/axpy="),
        ("LOCAL_KERNELS", "axpy=/x"),
        ("KERNEL_HUB_REGISTRIES", "acme"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(read, name: str, value: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidDocumentError) as caught:
        read(**{name: value})
    assert name in str(caught.value) or value.partition("=")[0] in str(caught.value)


def test_registries_merge_by_namespace_environment_first(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    project = tmp_path / "project" / "deep"
    project.mkdir(parents=True)
    (project.parent / "pyproject.toml").write_text(
        '[tool.kernel-hub.registries]\nacme = "http://127.0.0.1:1"\nlocal = "reg"\nother = "http://127.0.0.1:2"\n'
    )
    user = tmp_path / "xdg" / "kernel_hub"
    user.mkdir(parents=True)
    (user / "config.toml").write_text('[registries]\nacme = "http://127.0.0.1:3"\nmine = "file:///srv/kernels"\n')
    settings = read(folder=project, KERNEL_HUB_REGISTRIES="other=http://127.0.0.1:4")
    urls = {name: registry.url for name, registry in settings.registries.items()}
    assert urls == {
        "acme": "http://127.0.0.1:1",
        "local": (project.parent / "reg").as_uri(),
        "other": "http://127.0.0.1:4",
        "mine": "file:///srv/kernels",
    }
    assert settings.registries["local"].folder == project.parent / "reg"
    assert settings.registries["acme"].folder is None
    assert "pyproject.toml" in settings.registries["acme"].defined_in


def test_a_registry_may_name_the_variable_of_its_token(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "pyproject.toml").write_text(
        '[tool.kernel-hub.registries]\nacme = { url = "http://127.0.0.1:1", token-env = "ACME_TOKEN" }\n'
    )
    assert read().registries["acme"].token_env == "ACME_TOKEN"


@pytest.mark.parametrize("url", ["http://user:secret@127.0.0.1/", "ftp://x/y", ""])
def test_a_registry_url_that_is_not_one_is_refused_without_showing_a_secret(read, tmp_path: Path, url: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "pyproject.toml").write_text(f'[tool.kernel-hub.registries]\nacme = "{url}"\n')
    with pytest.raises(InvalidDocumentError, match="acme") as caught:
        read()
    assert "secret" not in str(caught.value)


def test_a_configuration_file_that_is_no_toml_is_named(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "pyproject.toml").write_text("[tool")
    with pytest.raises(InvalidDocumentError, match=r"pyproject\.toml"):
        read()


def test_trust_files_of_the_user_and_the_project_are_read_together(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert read().trust == TrustRules()
    assert read().trust_file == tmp_path / "xdg" / "kernel_hub" / "trust.toml"
    (tmp_path / "mine.toml").write_text('[[allow]]\npublisher = "mine"\n')
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "kernel-hub-trust.toml").write_text('digest = "required"\n[[allow]]\npublisher = "ours"\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    settings = read(below, KERNEL_HUB_TRUST=str(tmp_path / "mine.toml"))
    assert [str(entry.scope) for entry in settings.trust.allowed] == ["mine/*", "ours/*"]
    assert settings.trust.digest == "required"
    assert settings.trust_file == tmp_path / "mine.toml"


def test_a_fault_of_a_trust_file_names_file_and_key(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "mine.toml").write_text('[[allow]]\npublishr = "mine"\n')
    with pytest.raises(InvalidDocumentError, match=r"mine\.toml: allow\[0\]\.publishr: unknown key"):
        read(KERNEL_HUB_TRUST=str(tmp_path / "mine.toml"))


@pytest.mark.parametrize(
    ("text", "location", "hint"),
    [
        ('[tool.kernel-hub.registrys]\nacme = "http://127.0.0.1:1"\n', "tool.kernel-hub.registrys", "'registries'"),
        ('[tool.kernel-hub.registry]\nacme = "http://127.0.0.1:1"\n', "tool.kernel-hub.registry", "'registries'"),
        ("[tool.kernel-hub]\nzzz = 1\n", "tool.kernel-hub.zzz", "dependencies, registries"),
        ('[tool.kernel_hub.registries]\nacme = "http://127.0.0.1:1"\n', "tool.kernel_hub", "[tool.kernel-hub]"),
    ],
)
def test_a_key_of_the_project_that_nobody_reads_is_an_error(  # type: ignore[no-untyped-def]
    read, tmp_path: Path, text: str, location: str, hint: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(InvalidDocumentError, match=r"pyproject\.toml") as caught:
        read()
    assert caught.value.location == location
    assert hint in caught.value.hint()


def test_what_other_readers_of_the_project_know_is_no_error(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    text = (
        '[tool.kernel-hub.dependencies]\n"acme/a" = 1\n[tool.other]\nx = 1\n[tool.kernels.dependencies]\n"acme/b" = 1\n'
    )
    (tmp_path / "pyproject.toml").write_text(text)
    assert read().registries == {}


def test_a_key_of_the_users_file_that_nobody_reads_is_an_error(read, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "mine.toml").write_text('[registry]\nacme = "http://127.0.0.1:1"\n')
    with pytest.raises(InvalidDocumentError, match=r"mine\.toml: registry: unknown key") as caught:
        read(KERNEL_HUB_CONFIG=str(tmp_path / "mine.toml"))
    assert "'registries'" in caught.value.hint()


def test_a_named_configuration_that_is_not_there_is_an_error_and_the_usual_one_need_not_be(
    read, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    assert read().registries == {}
    with pytest.raises(InvalidDocumentError, match=r"KERNEL_HUB_CONFIG: names .*absent\.toml, which does not exist"):
        read(KERNEL_HUB_CONFIG=str(tmp_path / "absent.toml"))
    assert read(KERNEL_HUB_CONFIG="/dev/null").registries == {}


def test_a_namespace_in_another_case_than_the_bound_one_is_refused(read) -> None:  # type: ignore[no-untyped-def]
    settings = read(KERNEL_HUB_REGISTRIES="Acme=http://127.0.0.1:1")
    assert settings.registry_of("Acme") is not None
    assert settings.registry_of("labs") is None
    with pytest.raises(InvalidDocumentError, match="KERNEL_HUB_REGISTRIES: binds 'Acme'") as caught:
        settings.registry_of("acme")
    assert "'Acme'" in caught.value.hint()
    both = read(KERNEL_HUB_REGISTRIES="Acme=http://127.0.0.1:1 acme=http://127.0.0.1:2")
    found = both.registry_of("acme")
    assert found is not None and found.url == "http://127.0.0.1:2"


def test_the_json_form_of_the_variable_names_the_variable_of_a_token(read) -> None:  # type: ignore[no-untyped-def]
    registry = read(
        KERNEL_HUB_REGISTRIES='{"acme": {"url": "http://127.0.0.1:1/", "token-env": "ACME_TOKEN"}}'
    ).registries["acme"]
    assert (registry.url, registry.token_env) == ("http://127.0.0.1:1", "ACME_TOKEN")


@pytest.mark.parametrize(
    "text",
    [
        "acme",
        "acme=",
        "=http://127.0.0.1:1",
        "ac/me=http://127.0.0.1:1",
        "{",
        '{"acme": 1}',
        "acme=http://127.0.0.1:1,labs=http://127.0.0.1:2",
        "acme=http://127.0.0.1:1, labs=http://127.0.0.1:2",
    ],
)
def test_a_binding_that_cannot_be_read_names_the_variable_and_shows_both_forms(read, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InvalidDocumentError) as caught:
        read(KERNEL_HUB_REGISTRIES=text)
    assert caught.value.document == "KERNEL_HUB_REGISTRIES"
    assert "acme=https://" in caught.value.hint() and "token-env" in caught.value.hint()
