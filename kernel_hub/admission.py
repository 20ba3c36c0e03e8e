"""Where a trust decision becomes an exception."""

from __future__ import annotations

from typing import assert_never

from kernel_hub.errors import TrustUnknownError, UntrustedPublisherError
from kernel_hub.model.requirement import Requirement
from kernel_hub.trust import CouldNotCheck, Decision, NotTrusted, Trusted, TrustedIfSigned


def may_run(decision: Decision | None) -> bool:
    """Whether a decision allows code to run, if need be once a signature was seen.

    None means that nobody was asked: a folder is the caller's own code.
    """
    return decision is None or isinstance(decision, Trusted | TrustedIfSigned)


def admit(requirement: Requirement, decision: Decision | None) -> None:
    """Refuse what may not run.

    Args:
        requirement: What was asked for, for the message.
        decision: What the policy says; None for a folder of the caller's.

    Raises:
        UntrustedPublisherError: If the policy does not allow the kernel.
        TrustUnknownError: If whether it does could not be found out.
    """
    match decision:
        case None | Trusted() | TrustedIfSigned():
            return
        case NotTrusted(reason, remedy):
            raise UntrustedPublisherError(f"{requirement}: {reason}", hint=remedy)
        case CouldNotCheck(reason, remedy):
            raise TrustUnknownError(f"{requirement}: {reason}", hint=remedy)
        case _:
            assert_never(decision)
