"""`metadata.json` of a build: read strictly, written byte for byte as the ecosystem writes it.

Repository format, section (c). Unknown keys are accepted everywhere, because newer writers add some (kept in the file, not
in the value). Bad provenance and a bad digest are errors, not ignored. Leaves out: comparing the digest with a tree (see
`kernel_hub.verify`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, TypeAlias, assert_never

from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import BackendKind, parse_kind
from kernel_hub.model.digest import Digest, DigestAlgorithm, Manifest
from kernel_hub.model.document import JsonObject, load_json
from kernel_hub.model.pattern import DIGITS, LOWER, Pattern, Word
from kernel_hub.model.provenance import Provenance, SourceState, read_provenance
from kernel_hub.model.requirement import ExactVersion, RepoId, Requirement
from kernel_hub.model.split import OWN_KEY, file_archs_to_json, read_file_archs
from kernel_hub.model.value import dataclass

__all__ = [
    "MAX_BYTES",
    "AtFixedRevision",
    "AtVersion",
    "KernelDependency",
    "Metadata",
    "Provenance",
    "SourceState",
    "check_git_url",
    "is_kernel_name",
    "python_name",
]

MAX_BYTES = 1 << 20
NAME_RULE = "at least two of lower-case letters, digits and '-', from a letter on, not ending in '-'"
_BUILT_WITH = "built-with"
_KERNEL_NAME = Word(LOWER, f"{LOWER}{DIGITS}-", last=f"{LOWER}{DIGITS}")
_THREE_NUMBERS = Pattern(r"[0-9]{1,18}\.[0-9]{1,18}\.[0-9]{1,18}")
_GIT_URL = Pattern(r"(?:git|ssh|git\+ssh|git\+https|git\+http)://[^/\s\[\]]+(?:/.*)?", re.IGNORECASE)
# A browser's rules, which the ecosystem applies to these two, do not care how many slashes follow.
_WEB_URL = Pattern(r"https?:/*[^/\s\[\]]+(?:/.*)?", re.IGNORECASE)
_SCP_FORM = Pattern(r"[^/:\s]+@[^/:\s]+:[^/].*")


def is_kernel_name(text: str) -> bool:
    """Whether `text` may be a kernel's name: lower-case letters, digits and '-', from a letter, not ending in '-'."""
    return len(text) > 1 and _KERNEL_NAME.matches(text)


def python_name(kernel_name: str) -> str:
    """The name of the Python package of a kernel: '-' becomes '_'."""
    return kernel_name.replace("-", "_")


def check_git_url(text: str) -> bool:
    """Whether `text` is a git URL of the format: a scheme that git fetches from, or `user@host:path`."""
    return any(form.fullmatch(text) for form in (_GIT_URL, _WEB_URL, _SCP_FORM))


@dataclass(frozen=True, slots=True)
class AtVersion:
    """A kernel dependency on a version branch."""

    repo: RepoId
    version: int


@dataclass(frozen=True, slots=True)
class AtFixedRevision:
    """A kernel dependency on a branch, tag or commit."""

    repo: RepoId
    revision: str


KernelDependency: TypeAlias = AtVersion | AtFixedRevision


def requirement_of(dependency: KernelDependency) -> Requirement:
    """The requirement that a kernel's metadata states about another kernel."""
    match dependency:
        case AtVersion(repo, version):
            return Requirement(repo, ExactVersion(version))
        case AtFixedRevision(repo, revision):
            return Requirement.parse(f"{repo}@{revision}")
        case _:
            assert_never(dependency)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a build says of itself.

    Attributes:
        name: The kernel's name.
        id: Unique name of the module's operator namespace.
        version: The kernel's major version, i.e. branch `v<version>`.
        license: Licence id as the Hub names it.
        backend: What it computes on.
        archs: GPU architectures, as written; empty if it names none.
        python_depends: Names from the curated list (see `kernel_hub.model.dependencies`).
        kernel_depends: Other kernels it loads.
        upstream, source: Git URLs as written.
        manifest: Digests of its files.
        provenance: Who built it from what.
        kernels_minver: The least version of the `kernels` client that may load it.
        file_archs: Files that serve some GPU architectures only, with those (see `kernel_hub.model.split`).
        built_with: What compiled it, as the builder wrote it; nothing that a loader decides by (see
            `kernel_hub.build.built_with`).
    """

    name: str
    id: str
    version: int
    license: str
    backend: BackendKind
    archs: tuple[str, ...] = ()
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDependency, ...] = ()
    upstream: str | None = None
    source: str | None = None
    manifest: Manifest | None = None
    provenance: Provenance | None = None
    kernels_minver: Version | None = None
    file_archs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    built_with: Mapping[str, Any] = field(default_factory=dict)

    @property
    def python_name(self) -> str:
        """The name of the kernel's Python package."""
        return python_name(self.name)

    @classmethod
    def parse(cls, content: bytes, *, name: str = "metadata.json") -> Metadata:
        """Read the bytes of a `metadata.json`.

        Args:
            content: The file's bytes.
            name: What to call it in errors, e.g. "build/torch-cpu/metadata.json of acme/axpy".

        Raises:
            InvalidDocumentError: Naming the key at fault: too long, not UTF-8 JSON, a duplicate or missing key, a wrong type.
        """
        top = load_json(content, name=name, limit_bytes=MAX_BYTES)
        try:
            return cls._read(top)
        except InvalidDocumentError as error:
            if error.hint():
                raise
            raise InvalidDocumentError(
                error.document, error.problem, location=error.location, hint=_least_client(top)
            ) from error

    @classmethod
    def _read(cls, top: JsonObject) -> Metadata:
        kernel_name = top.text("name")
        if not is_kernel_name(kernel_name):
            raise top.fault("name", f"{kernel_name!r} is not a kernel name: {NAME_RULE}")
        backend = top.object("backend")
        manifest = _manifest(top)
        return cls(
            name=kernel_name,
            id=top.text("id"),
            version=top.whole("version"),
            license=top.line("license"),
            backend=_backend_kind(backend),
            archs=backend.texts("archs", default=()),
            python_depends=top.texts("python-depends"),
            kernel_depends=_kernel_dependencies(top),
            upstream=_git_url(top, "upstream"),
            source=_git_url(top, "source"),
            manifest=manifest,
            provenance=read_provenance(top),
            kernels_minver=_three_numbers(top),
            file_archs=read_file_archs(top, manifest),
            built_with=_built_with(top),
        )

    def format(self) -> bytes:
        """The bytes that the ecosystem's writer makes: 2-space indent, its key order, no final newline."""
        return json.dumps(self._to_json(), indent=2, ensure_ascii=False).encode("utf-8")

    def with_manifest(self, manifest: Manifest) -> Metadata:
        """This metadata carrying `manifest`."""
        return replace(self, manifest=manifest)

    def _to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "name": self.name,
            "id": self.id,
            "version": self.version,
            "license": self.license,
        }
        if self.upstream is not None:
            document["upstream"] = self.upstream
        if self.source is not None:
            document["source"] = self.source
        document["python-depends"] = list(self.python_depends)
        document["kernel-depends"] = [_dependency_to_json(item) for item in self.kernel_depends]
        backend: dict[str, Any] = {"type": self.backend.value}
        if self.archs:
            backend["archs"] = list(self.archs)
        document["backend"] = backend
        if self.manifest is not None:
            document["digest"] = {
                "algorithm": self.manifest.algorithm.value,
                "files": {path: digest.base64 for path, digest in self.manifest.files.items()},
            }
        if self.provenance is not None:
            document["provenance"] = self.provenance.to_json()
        if self.kernels_minver is not None:
            document["kernels-minver"] = str(self.kernels_minver)
        own: dict[str, Any] = file_archs_to_json(self.file_archs) if self.file_archs else {}
        if self.built_with:
            own[_BUILT_WITH] = self.built_with
        if own:
            document[OWN_KEY] = own
        return document


def _built_with(top: JsonObject) -> Mapping[str, Any]:
    own = top.optional_object(OWN_KEY)
    said = own.value(_BUILT_WITH) if own is not None else None
    return said if isinstance(said, dict) else {}


def _backend_kind(backend: JsonObject) -> BackendKind:
    text = backend.text("type")
    try:
        return parse_kind(text)
    except InvalidDocumentError as error:
        raise backend.fault("type", error.problem) from error


def _kernel_dependencies(top: JsonObject) -> tuple[KernelDependency, ...]:
    if "kernel-depends" not in top.names():
        return ()
    return tuple(_kernel_dependency(item) for item in top.objects("kernel-depends"))


def _kernel_dependency(item: JsonObject) -> KernelDependency:
    item.only("repo-id", "version", "revision")
    try:
        repo = RepoId.parse(item.text("repo-id"))
    except InvalidDocumentError as error:
        raise item.fault("repo-id", error.problem) from error
    if item.has("version") == item.has("revision"):
        raise item.fault("", "needs exactly one of 'version' and 'revision'")
    if item.has("version"):
        return AtVersion(repo, item.whole("version"))
    return AtFixedRevision(repo, item.text("revision"))


def _dependency_to_json(item: KernelDependency) -> dict[str, Any]:
    match item:
        case AtVersion():
            return {"repo-id": str(item.repo), "version": item.version}
        case AtFixedRevision():
            return {"repo-id": str(item.repo), "revision": item.revision}


def _git_url(top: JsonObject, key: str) -> str | None:
    text = top.optional_text(key)
    if text is not None and not check_git_url(text):
        raise top.fault(key, f"{text!r} is not a git URL")
    return text


def _manifest(top: JsonObject) -> Manifest | None:
    digest = top.optional_object("digest")
    if digest is None:
        return None
    text = digest.text("algorithm")
    try:
        algorithm = DigestAlgorithm(text)
    except ValueError:
        raise digest.fault("algorithm", f"{text!r} is neither sha256 nor sha512") from None
    files = digest.object("files")
    read: dict[str, Digest] = {}
    for path in files.names():
        try:
            read[path] = Digest.from_base64(algorithm, files.text(path))
        except InvalidDocumentError as error:
            raise files.fault(path, error.problem) from error
    return Manifest(algorithm, read)


def _three_numbers(top: JsonObject) -> Version | None:
    text = top.optional_text("kernels-minver")
    if text is None:
        return None
    if not _THREE_NUMBERS.fullmatch(text):
        raise top.fault("kernels-minver", f"{text!r} is not of the form 'X.Y.Z'")
    return Version(text)


def _least_client(top: JsonObject) -> str:
    """What the build says of the client that it needs, for a document that this release cannot read."""
    try:
        least = _three_numbers(top)
    except InvalidDocumentError:
        least = None
    return f"the build asks for kernels >= {least}; a newer kernel_hub may read it" if least else ""
