"""Whether code from a repository may run here: pure decisions, before a byte of it is read.

`policy` has the rules as objects, `decision` their answers, `rules` what trust files amount to, `document` the files
themselves, and `signer` whose signatures count. A folder that the caller named is the caller's own code and is never asked
about. Leaves out: looking at signatures (see `kernel_hub.signatures`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kernel_hub.trust.decision import CouldNotCheck, Decision, NotTrusted, Trusted, TrustedIfSigned, Ways
from kernel_hub.trust.policy import (
    AllOf,
    AnyOf,
    NamedBy,
    Policy,
    Subject,
)
from kernel_hub.trust.rules import Demand, Entry, Scope, TrustRules, merged

if TYPE_CHECKING:
    from kernel_hub.trust.document import format_entry, format_trust_file, parse_trust_file
    from kernel_hub.trust.signer import BUILT_IN_SIGNERS, Ed25519Signer, Signer, SigstoreSigner

__all__ = [
    "BUILT_IN_SIGNERS",
    "AllOf",
    "AnyOf",
    "CouldNotCheck",
    "Decision",
    "Demand",
    "Ed25519Signer",
    "Entry",
    "NamedBy",
    "NotTrusted",
    "Policy",
    "Scope",
    "Signer",
    "SigstoreSigner",
    "Subject",
    "TrustRules",
    "Trusted",
    "TrustedIfSigned",
    "Ways",
    "format_entry",
    "format_trust_file",
    "merged",
    "parse_trust_file",
]


# Most loads read no trust file and look at no signature, so these come when they are asked for.
_HOMES = {
    "BUILT_IN_SIGNERS": "kernel_hub.trust.signer",
    "Ed25519Signer": "kernel_hub.trust.signer",
    "Signer": "kernel_hub.trust.signer",
    "SigstoreSigner": "kernel_hub.trust.signer",
    "format_entry": "kernel_hub.trust.document",
    "format_trust_file": "kernel_hub.trust.document",
    "parse_trust_file": "kernel_hub.trust.document",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
