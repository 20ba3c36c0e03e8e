"""Bindings of namespaces to registries, as a variable and configuration files name them.

`KERNEL_HUB_REGISTRIES` holds `namespace=url` entries with spaces between them, or a JSON object; `pyproject.toml` has the
table `[tool.kernel-hub.registries]`, the user's `config.toml` the table `[registries]`. The value of a namespace is a URL, a
folder, or a table of `url` and `token-env`. What cannot be understood is an error: a binding that is passed over would send
the name of a private kernel to the public Hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from kernel_hub.configuration import read_toml, require_known, table_in
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.pattern import Pattern
from kernel_hub.model.requirement import RepoId
from kernel_hub.model.value import dataclass
from kernel_hub.places import is_file, written_json, written_path, written_url

VARIABLE = "KERNEL_HUB_REGISTRIES"
PROJECT_TABLE = "tool.kernel-hub.registries"
# What `kernel_hub.locking.project` reads stands in the same table.
_PROJECT_KEYS = ("dependencies", "registries")
_USER_KEYS = ("registries",)
_KEYS = frozenset({"url", "token-env"})
_COMMA_BETWEEN = Pattern(r",(?=[A-Za-z0-9._-]+=|$)")
_PLAIN_EXAMPLE = f"{VARIABLE}='acme=https://kernels.example labs=/srv/kernels'"
_JSON_EXAMPLE = f'{VARIABLE}=\'{{"acme": {{"url": "https://kernels.example", "token-env": "ACME_TOKEN"}}}}\''
_FORMS = f"write {_PLAIN_EXAMPLE}, or for a registry that needs a token {_JSON_EXAMPLE}"


@dataclass(frozen=True, slots=True)
class Registry:
    """Where a namespace's kernels live.

    Attributes:
        namespace: The part of a repository's name before '/'.
        url: `http(s)://...` of a server, or `file://...` of a registry folder.
        defined_in: The variable or file that says so.
        token_env: The variable that holds a token for it. The Hub's own token is never sent to another registry.
    """

    namespace: str
    url: str
    defined_in: str
    token_env: str | None = None

    @property
    def folder(self) -> Path | None:
        """The registry's folder if it is one on this disk."""
        parts = urlsplit(self.url)
        if parts.scheme != "file":
            return None
        # Imported here, because it brings Python's whole HTTP client along.
        from urllib.request import url2pathname

        return Path(url2pathname(parts.path))


class _Bindings(NamedTuple):
    """A table of namespaces, what defines it, and the folder that relative paths in it start from."""

    table: Mapping[str, Any]
    defined_in: str
    folder: Path


def read_registries(text: str, here: Path, project: Path | None, user: Path) -> dict[str, Registry]:
    """The bindings of the variable, the project and the user, merged by namespace in that order.

    Args:
        text: The variable's value.
        here: The folder that relative paths in it start from.
        project: The `pyproject.toml` that applies.
        user: The user's own file; it need not be there.

    Raises:
        InvalidDocumentError: Naming the variable, or the file and key, at fault.
    """
    bindings = [_Bindings(_of_text(text.strip()), VARIABLE, here)]
    if project is not None:
        bindings.append(_of_project(project))
    if is_file(user):
        document = read_toml(user)
        require_known(document, _USER_KEYS, user)
        bindings.append(_Bindings(table_in(document, user, "registries"), f"{user} [registries]", user.parent))
    return _merged(bindings)


def registries_of_project(project: Path) -> dict[str, Registry]:
    """The bindings of one `pyproject.toml`.

    Raises:
        InvalidDocumentError: Naming the file and key at fault.
    """
    return _merged([_of_project(project)])


def registry_of(registries: Mapping[str, Registry], namespace: str) -> Registry | None:
    """The registry that a namespace is bound to, or None.

    Raises:
        InvalidDocumentError: If only another spelling of the namespace is bound: a slip must not lead to the Hub.
    """
    found = registries.get(namespace)
    if found is not None:
        return found
    for name, registry in registries.items():
        if name.lower() == namespace.lower():
            raise InvalidDocumentError(
                registry.defined_in,
                f"binds {name!r} to a registry, and {namespace!r} was asked for, which is written differently",
                hint=f"write {name!r} in both places, or bind {namespace!r} too",
            )
    return None


def _of_text(text: str) -> Mapping[str, Any]:
    if text.startswith("{"):
        value = written_json(text, VARIABLE, hint=_FORMS)
        return value if isinstance(value, dict) else {}
    pairs = {}
    for entry in text.split():
        namespace, found, url = entry.partition("=")
        if not found or not namespace or not url:
            raise InvalidDocumentError(VARIABLE, f"{entry!r} is not of the form namespace=url", hint=_FORMS)
        if _COMMA_BETWEEN.search(url):
            raise InvalidDocumentError(VARIABLE, f"{entry!r} holds a comma: spaces separate entries", hint=_FORMS)
        pairs[namespace] = url
    return pairs


def _of_project(project: Path) -> _Bindings:
    document = read_toml(project)
    tools = table_in(document, project, "tool")
    if "kernel_hub" in tools:
        raise InvalidDocumentError(
            str(project), "unknown key", location="tool.kernel_hub", hint="did you mean [tool.kernel-hub]?"
        )
    table = table_in(document, project, "tool", "kernel-hub")
    require_known(table, _PROJECT_KEYS, project, inside="tool.kernel-hub")
    entries = table_in(document, project, "tool", "kernel-hub", "registries")
    return _Bindings(entries, f"{project} [{PROJECT_TABLE}]", project.parent)


def _merged(bindings: Iterable[_Bindings]) -> dict[str, Registry]:
    found: dict[str, Registry] = {}
    for table, defined_in, folder in bindings:
        for namespace, entry in table.items():
            found.setdefault(namespace, _registry(namespace, entry, defined_in, folder))
    return found


def _registry(namespace: str, entry: object, defined_in: str, folder: Path) -> Registry:
    """One binding: a URL or folder, or a table with `url` and optionally `token-env`."""
    forms = _FORMS if defined_in == VARIABLE else "write a URL, a folder, or { url = ..., token-env = 'NAME' }"
    try:
        RepoId.parse(f"{namespace}/name")
    except InvalidDocumentError:
        raise InvalidDocumentError(
            defined_in, f"{namespace!r} is no namespace: it is the part of a name before '/'", hint=forms
        ) from None
    table = entry if isinstance(entry, dict) else {"url": entry}
    url, token_env = table.get("url"), table.get("token-env")
    if not isinstance(url, str) or not url or not set(table) <= _KEYS:
        problem = "is neither a URL or folder nor a table of 'url' and 'token-env'"
        raise InvalidDocumentError(defined_in, problem, location=namespace, hint=forms)
    if token_env is not None and not isinstance(token_env, str):
        raise InvalidDocumentError(
            defined_in, "is not the name of a variable", location=f"{namespace}.token-env", hint=forms
        )
    parts = written_url(url, f"{defined_in}: {namespace}")
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise InvalidDocumentError(
            defined_in, f"{url!r} names a folder of another host", location=namespace, hint="write file:///folder"
        )
    if parts.username or parts.password:
        raise InvalidDocumentError(
            defined_in,
            "a registry's URL may not hold credentials",
            location=namespace,
            hint="write { url = ..., token-env = 'NAME' } and put the token into that variable",
        )
    if parts.scheme in ("http", "https", "file"):
        return Registry(namespace, url.rstrip("/"), defined_in, token_env)
    if "://" in url:
        raise InvalidDocumentError(defined_in, f"{url!r} is neither http(s):// nor file://", location=namespace)
    return Registry(
        namespace, (folder / written_path(url, f"{defined_in}: {namespace}")).resolve().as_uri(), defined_in, token_env
    )
