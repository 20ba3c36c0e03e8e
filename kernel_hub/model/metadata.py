"""`metadata.json` of a build: read strictly, written byte for byte as the ecosystem writes it.

Repository format, section (c). Unknown keys are accepted everywhere, because newer writers add some (kept in the file, not
in the value). Bad provenance and a bad digest are errors, not ignored. Leaves out: comparing the digest with a tree (see
`kernel_hub.verify`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from packaging.version import Version

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.backend import BackendKind, parse_kind
from kernel_hub.model.digest import Digest, DigestAlgorithm, Manifest
from kernel_hub.model.document import JsonObject, load_json
from kernel_hub.model.requirement import RepoId

MAX_BYTES = 1 << 20
_KERNEL_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_THREE_NUMBERS = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_OBJECT_ID = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?")
_GIT_SCHEMES = ("https", "http", "git", "ssh", "git+ssh", "git+https", "git+http")
_SCP_FORM = re.compile(r"[^/:@\s]+@[^/:@\s]+:[^/\s]\S*")


def is_kernel_name(text: str) -> bool:
    """Whether `text` may be a kernel's name: lower-case letters, digits and '-', from a letter, not ending in '-'."""
    return _KERNEL_NAME.fullmatch(text) is not None


def python_name(kernel_name: str) -> str:
    """The name of the Python package of a kernel: '-' becomes '_'."""
    return kernel_name.replace("-", "_")


def check_git_url(text: str) -> bool:
    """Whether `text` is a git URL of the format: a scheme that git fetches from, or `user@host:path`."""
    scheme, found, rest = text.partition("://")
    if found:
        return scheme in _GIT_SCHEMES and bool(rest) and not rest.startswith("/")
    return _SCP_FORM.fullmatch(text) is not None


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


@dataclass(frozen=True, slots=True)
class SourceState:
    """A commit of sources and whether tracked files differed from it.

    Attributes:
        commit: 40 or 64 lower-case hexadecimal digits.
        dirty: Whether the tree had changes.
    """

    commit: str
    dirty: bool


@dataclass(frozen=True, slots=True)
class Provenance:
    """What built a kernel from what.

    Attributes:
        builder_version: The version of the builder.
        builder: The builder's own sources, if known.
        kernel: The kernel's sources, if known.
    """

    builder_version: str
    builder: SourceState | None = None
    kernel: SourceState | None = None

    @property
    def dirty(self) -> bool:
        """Whether any sources were not exactly those of their commit."""
        return any(state is not None and state.dirty for state in (self.builder, self.kernel))


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
        kernel_name = top.text("name")
        if not is_kernel_name(kernel_name):
            raise top.fault("name", f"{kernel_name!r} is not a kernel name (lower-case letters, digits and '-')")
        backend = top.object("backend")
        return cls(
            name=kernel_name,
            id=top.text("id"),
            version=top.whole("version"),
            license=top.text("license"),
            backend=_backend_kind(backend),
            archs=backend.texts("archs", default=()),
            python_depends=top.texts("python-depends"),
            kernel_depends=tuple(_kernel_dependency(item) for item in top.objects("kernel-depends", default=())),
            upstream=_git_url(top, "upstream"),
            source=_git_url(top, "source"),
            manifest=_manifest(top),
            provenance=_provenance(top),
            kernels_minver=_three_numbers(top),
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
            document["provenance"] = _provenance_to_json(self.provenance)
        if self.kernels_minver is not None:
            document["kernels-minver"] = str(self.kernels_minver)
        return document


def _backend_kind(backend: JsonObject) -> BackendKind:
    text = backend.text("type")
    try:
        return parse_kind(text)
    except InvalidDocumentError as error:
        raise backend.fault("type", error.problem) from error


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


def _provenance(top: JsonObject) -> Provenance | None:
    provenance = top.optional_object("provenance")
    if provenance is None:
        return None
    builder = provenance.object("kernel-builder")
    kernel = provenance.optional_object("kernel")
    has_commit = builder.has("commit") or builder.has("sha")
    if has_commit != builder.has("dirty"):
        raise builder.fault("", "'commit' and 'dirty' come together")
    return Provenance(
        builder_version=builder.text("version"),
        builder=_source_state(builder) if has_commit else None,
        kernel=None if kernel is None else _source_state(kernel),
    )


def _source_state(state: JsonObject) -> SourceState:
    key = "commit" if state.has("commit") else "sha" if state.has("sha") else "commit"
    text = state.text(key)
    if not _OBJECT_ID.fullmatch(text):
        raise state.fault(key, f"{text!r} is not a git object id (40 or 64 hexadecimal digits)")
    return SourceState(text.lower(), state.flag("dirty"))


def _provenance_to_json(provenance: Provenance) -> dict[str, Any]:
    builder: dict[str, Any] = {"version": provenance.builder_version}
    if provenance.builder is not None:
        builder |= _state_to_json(provenance.builder)
    document: dict[str, Any] = {"kernel-builder": builder}
    if provenance.kernel is not None:
        document["kernel"] = _state_to_json(provenance.kernel)
    return document


def _state_to_json(state: SourceState) -> Mapping[str, Any]:
    return {"commit": state.commit, "dirty": state.dirty}


def _three_numbers(top: JsonObject) -> Version | None:
    text = top.optional_text("kernels-minver")
    if text is None:
        return None
    if not _THREE_NUMBERS.fullmatch(text):
        raise top.fault("kernels-minver", f"{text!r} is not of the form 'X.Y.Z'")
    return Version(text)
