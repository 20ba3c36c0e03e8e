"""`kernel-status.toml` at a repository's root: what its owner says of the whole kernel.

Repository format, section (f). So far a kernel can only have moved:

    kind = "redirect"
    destination = "acme/axpy-ng"
    revision = "v2"               # optional
"""

from __future__ import annotations

from typing import Any, TypeAlias

from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.requirement import AtRevision, RepoId, Requirement
from kernel_hub.model.value import dataclass

FILE_NAME = "kernel-status.toml"
MAX_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Redirect:
    """The kernel lives in another repository.

    Attributes:
        destination: That repository.
        revision: The branch, tag or commit to take there; None leaves the choice to whoever asks.
    """

    destination: RepoId
    revision: str | None = None

    def follow(self, asked: Requirement) -> Requirement:
        """The requirement that stands in for `asked` at the destination.

        Without a revision of its own a redirect keeps the version that was asked for: `main`, which older readers take
        then, holds no builds where versions have branches of their own.
        """
        if self.revision is not None:
            return Requirement.parse(f"{self.destination}@{self.revision}")
        return Requirement(self.destination, asked.wish)


@dataclass(frozen=True, slots=True)
class UnknownStatus:
    """A status of a kind that this release does not know; the kernel is used as it is, with a note."""

    kind: str


KernelStatus: TypeAlias = Redirect | UnknownStatus


def parse_status(content: bytes, *, name: str = FILE_NAME) -> KernelStatus:
    """Read the bytes of a `kernel-status.toml`.

    Args:
        content: The file's bytes.
        name: What to call it in errors.

    Raises:
        InvalidDocumentError: If it is too long, no TOML, or a redirect without a proper destination.
    """
    if len(content) > MAX_BYTES:
        raise InvalidDocumentError(name, f"is longer than {MAX_BYTES} bytes")
    # Imported here, because most kernels have no such file.
    import tomllib

    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidDocumentError(name, f"is not TOML: {error}") from error
    kind = _text(document, "kind", name)
    if kind != "redirect":
        return UnknownStatus(kind)
    destination = _text(document, "destination", name)
    revision = _text(document, "revision", name) if "revision" in document else None
    try:
        redirect = Redirect(RepoId.parse(destination), revision)
        if revision is not None and not isinstance(Requirement.parse(destination, revision=revision).wish, AtRevision):
            raise InvalidDocumentError("revision", f"{revision!r} is not a revision")
    except InvalidDocumentError as error:
        raise InvalidDocumentError(name, error.problem) from error
    return redirect


def _text(document: dict[str, Any], key: str, name: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidDocumentError(name, "is missing, or not a text", location=key)
    return value
