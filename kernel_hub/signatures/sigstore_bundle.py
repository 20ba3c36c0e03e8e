"""Sigstore bundles, verified without network: the only module that imports `sigstore`.

The trust root is the one that the package `sigstore` carries, so it is as current as that package. An identity must be
vouched for by its issuer, and be one of the signer's; for a workflow, the repository that it ran for must be the signer's too.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_hub.errors import TrustUnknownError
from kernel_hub.trust.signer import SigstoreSigner

if TYPE_CHECKING:
    from sigstore.models import TrustedRoot
    from sigstore.verify.policy import VerificationPolicy

MAX_BYTES = 1 << 20
_EMBEDDED = ("https%3A%2F%2Ftuf-repo-cdn.sigstore.dev", "trusted_root.json")


def bundle_fault(bundle: bytes, message: bytes, signer: SigstoreSigner, *, trusted_root: Path | None = None) -> str:
    """Why a bundle is not the signer's signature over a message; empty if it is.

    Args:
        bundle: The bundle's bytes.
        message: What it must sign.
        signer: Whose it must be.
        trusted_root: Another trust root than the embedded one, for a Sigstore of one's own.

    Raises:
        TrustUnknownError: If the package that can tell is not installed.
    """
    try:
        from sigstore.errors import Error, VerificationError
        from sigstore.models import Bundle, InvalidBundle
        from sigstore.verify import Verifier
    except ImportError as error:
        raise TrustUnknownError(
            f"the Sigstore signature could not be checked: the package 'sigstore' cannot be imported ({error})",
            hint="pip install 'kernel-hub[sign]'",
        ) from error
    if len(bundle) > MAX_BYTES:
        return f"the bundle is longer than {MAX_BYTES} bytes"
    verifier = Verifier(trusted_root=_trusted_root(trusted_root))
    try:
        verifier.verify_artifact(message, Bundle.from_json(bundle), _policy(signer))
    except (InvalidBundle, VerificationError, Error, ValueError) as error:
        return f"{error}" or type(error).__name__
    return ""


def _trusted_root(path: Path | None) -> TrustedRoot:
    from importlib.resources import as_file, files

    from sigstore.models import TrustedRoot

    if path is not None:
        return TrustedRoot.from_file(str(path))
    # The package's own way to its embedded root writes a copy into the user's folders, which may be read-only.
    embedded = files("sigstore").joinpath("_store", *_EMBEDDED)
    if embedded.is_file():
        with as_file(embedded) as location:
            return TrustedRoot.from_file(str(location))
    from sigstore.models import ClientTrustConfig

    logging.getLogger("kernel_hub").debug("sigstore keeps its trust root elsewhere; asking it")
    return ClientTrustConfig.production(offline=True).trusted_root


def _policy(signer: SigstoreSigner) -> VerificationPolicy:
    from sigstore.verify import policy

    if signer.source_repository is None:
        return policy.AnyOf([policy.Identity(identity=name, issuer=signer.issuer) for name in signer.identities])
    return policy.AllOf(
        [
            policy.OIDCIssuer(signer.issuer),
            policy.OIDCIssuerV2(signer.issuer),
            policy.OIDCSourceRepositoryURI(signer.source_repository),
            policy.AnyOf([policy.OIDCBuildSignerURI(uri) for uri in signer.identities]),
        ]
    )
