"""The errors of kernel_hub: one root, one branch per stage, each with a way out and an exit code.

A stage raises; decisions below it return values, and the error carries the value that led to it. Every error answers
`hint()` with what the reader can do next. Network failures are `FetchError` or `ResolutionError`, never
`VerificationError`, and the reverse: "could not reach" and "not trusted" are different facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kernel_hub.build.audit.finding import Finding
    from kernel_hub.model.artifact import Violation
    from kernel_hub.model.selection import Selection


class KernelHubError(Exception):
    """The root of every error that kernel_hub raises on purpose.

    Args:
        message: One or more lines that name the thing at fault.
        hint: What to do next; empty if the message already says it.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self._hint = hint

    def hint(self) -> str:
        """What to do next, or an empty string."""
        return self._hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self._hint}" if self._hint else self.message


class InvalidDocumentError(KernelHubError, ValueError):
    """A text or file that does not follow its grammar.

    Args:
        document: What was read, e.g. "requirement", "metadata.json of build/torch-cpu", "label".
        location: Where in it the fault lies, e.g. "backend.archs[1]"; empty for the whole.
        problem: What is wrong there.
    """

    exit_code = 2

    def __init__(self, document: str, problem: str, *, location: str = "", hint: str = "") -> None:
        self.document = document
        self.location = location
        self.problem = problem
        where = f"{document}: {location}" if location else document
        super().__init__(f"{where}: {problem}", hint=hint)


class ResolutionError(KernelHubError, LookupError):
    """A requirement that names nothing, or nothing that may be used."""

    exit_code = 3


class RepositoryNotFoundError(ResolutionError):
    """The repository does not exist at the source, or this user may not see it."""


class VersionNotFoundError(ResolutionError):
    """No published version satisfies the requirement.

    Attributes:
        available: Every version the repository has, ascending.
    """

    def __init__(self, message: str, *, available: Sequence[int], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.available = tuple(available)


class RevisionNotFoundError(ResolutionError):
    """The branch, tag or commit does not exist in the repository."""


class EntryNotFoundError(RevisionNotFoundError):
    """The commit exists, but has no such file."""


class NotLockedError(ResolutionError):
    """The lock that applies does not hold the kernel, or no lock applies where one must."""


class LockOutdatedError(ResolutionError):
    """The lock and what the project declares do not agree, or what it locks is gone.

    Attributes:
        problems: Each disagreement, one line.
    """

    def __init__(self, message: str, *, problems: Sequence[str], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)


class RedirectError(ResolutionError):
    """A kernel that moved in a circle, or too often."""


class KernelCycleError(ResolutionError):
    """Kernels depend on each other in a circle.

    Attributes:
        kernels: The circle; the first is also the last.
    """

    def __init__(self, kernels: Sequence[str]) -> None:
        super().__init__(
            f"kernels depend on each other in a circle: {' -> '.join(kernels)}",
            hint="tell the publisher of one of them: no loader can load such kernels",
        )
        self.kernels = tuple(kernels)


class SelectionError(KernelHubError):
    """The kernel exists, but not for this machine."""

    exit_code = 4


class NoCompatibleVariantError(SelectionError):
    """No build fits the host.

    Attributes:
        selection: Every build with its verdict; the message shows only the closest ones.
    """

    def __init__(self, message: str, *, selection: Selection, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.selection = selection


class TargetNotServedError(SelectionError):
    """A kernel has no build for a machine that the lock must serve.

    Attributes:
        target: The machine, as text; empty if the kernel has no usable build at all.
    """

    def __init__(self, message: str, *, target: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.target = target


class FetchError(KernelHubError):
    """Bytes could not be obtained or stored."""

    exit_code = 5


class SourceUnavailableError(FetchError):
    """The source cannot be reached, or answers with something that is not its protocol.

    Attributes:
        url: What was asked (a URL, or a folder), without credentials.
        retry_after_s: How long the source asks clients to wait, if it said so.
        status: The HTTP status, if there was an answer.
    """

    def __init__(
        self, message: str, *, url: str, status: int | None = None, retry_after_s: float | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.url = url
        self.status = status
        self.retry_after_s = retry_after_s


class OfflineError(FetchError):
    """The answer is not in the cache and the network may not be used."""


class AccessDeniedError(FetchError):
    """The source knows the repository but refuses it to this user (gated, private, bad token)."""


class LengthMismatchError(FetchError):
    """A file arrived with another size than was announced."""


class BlobMismatchError(FetchError):
    """A file arrived with other bytes than the source's own listing announced."""


class CacheError(FetchError):
    """The local cache cannot be read or written."""


class IncompleteArtifactError(FetchError):
    """A build in the cache lacks files and they cannot be fetched now.

    Attributes:
        missing: Paths inside the build that are absent.
    """

    def __init__(self, message: str, *, missing: Sequence[str], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.missing = tuple(missing)


class ConflictError(FetchError):
    """A reference moved between reading and writing it; nothing was written."""


class VerificationError(KernelHubError):
    """The bytes, or who stands behind them, are not what they must be. Nothing was imported."""

    exit_code = 6


class DigestMismatchError(VerificationError):
    """Files are changed, missing or extra against the manifest.

    Attributes:
        violations: Every difference, listed files in path order, then unknown ones.
    """

    def __init__(self, message: str, *, violations: Sequence[Violation], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.violations = tuple(violations)


class DigestMissingError(VerificationError):
    """The policy asks for a digest and the build's metadata carries none."""


class IdentityMismatchError(VerificationError):
    """The bytes are intact, but they are another build than the one that was asked for.

    Attributes:
        subject: Which property differs, e.g. "version".
        expected: What it had to be.
        found: What the build says.
    """

    def __init__(self, message: str, *, subject: str, expected: str, found: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.subject = subject
        self.expected = expected
        self.found = found


class SignatureMissingError(VerificationError):
    """The policy asks for a signature and the build carries none of those that would do."""


class SignatureInvalidError(VerificationError):
    """The build carries a signature, and it is not what it must be."""


class UntrustedPublisherError(VerificationError):
    """The policy does not allow code from this publisher."""


class TrustUnknownError(VerificationError):
    """Whether the publisher is trusted could not be found out; this is not a verdict about the publisher."""


class UnsafePathError(VerificationError):
    """A path that leaves its artifact, or something that is not a regular file."""


class KernelImportError(KernelHubError, ImportError):
    """A verified kernel whose import failed; nothing of it stays in `sys.modules`."""

    exit_code = 7


class MissingDependencyError(KernelImportError):
    """Python distributions that the kernel needs are not installed.

    Attributes:
        distributions: The names to give to pip.
    """

    def __init__(self, message: str, *, distributions: Sequence[str], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.distributions = tuple(distributions)


class EmptyKernelError(KernelImportError):
    """The build has no entry module."""


class AmbiguousKernelError(KernelImportError):
    """Two different artifacts claim one operator namespace; loading the second would mix them."""


class BuildError(KernelHubError):
    """A kernel could not be built or published."""

    exit_code = 8


class ToolchainError(BuildError):
    """A compiler or library needed for the build is not here."""


class CompileError(BuildError):
    """A compiler or linker failed.

    Attributes:
        command: The argument vector that failed.
        log_path: Where its whole output lies.
    """

    def __init__(self, message: str, *, command: Sequence[str], log_path: Path, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.command = tuple(command)
        self.log_path = log_path


class CheckFailedError(BuildError):
    """A build breaks rules that every build must keep.

    Attributes:
        findings: Every breach.
    """

    def __init__(self, message: str, *, findings: Sequence[Finding], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.findings = tuple(findings)


class PublishRefusedError(BuildError):
    """The builds are not fit to publish, or the target refuses them."""
