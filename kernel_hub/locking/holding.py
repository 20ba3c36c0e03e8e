"""Holding a load to the lock that applies, beyond the digest that verification compares."""

from __future__ import annotations

from kernel_hub.cache import Cache
from kernel_hub.errors import DigestMismatchError, FetchError, IncompleteArtifactError
from kernel_hub.fetch import is_bytecode
from kernel_hub.model.artifact import Violation, ViolationKind
from kernel_hub.model.lock_peer import ListingDigest
from kernel_hub.model.lock_pin import LockedPin
from kernel_hub.model.selection import Accepted, Variant
from kernel_hub.select import BUILD_FOLDER


def require_listing(locked: LockedPin, variant: Variant, source: str) -> None:
    """Hold a build to the ecosystem's older lock, whose digest is over the listing; verification holds bytes to that.

    Raises:
        DigestMismatchError: If the source lists other files than the lock holds.
    """
    digest = locked.builds.get(variant.name) if locked.builds is not None else None
    if not isinstance(digest, ListingDigest):
        return
    inside = f"{BUILD_FOLDER}/{variant.name}/"
    found = ListingDigest.of((entry.path.removeprefix(inside), entry.blob) for entry in variant.files)
    if found != digest:
        violation = Violation(ViolationKind.CHANGED, f"the listing of {inside[:-1]}", str(digest), str(found))
        raise DigestMismatchError(
            f"{locked.pin} at {source} is not what {locked.found} holds:\n  {violation}",
            violations=(violation,),
            hint="nothing was fetched; the source lists other files under the locked commit: tell its owner",
        )


def not_synced(locked: LockedPin, chosen: Accepted, cache: Cache, error: FetchError) -> IncompleteArtifactError:
    """The error of a locked build that is not whole in the cache, and cannot be fetched because of `error`."""
    inside = f"{BUILD_FOLDER}/{chosen.variant.name}/"
    entries = [entry for entry in chosen.files if not is_bytecode(entry.path)]
    missing = [
        entry.path.removeprefix(inside) for entry in entries if not cache.has(locked.pin.repo, locked.pin.commit, entry)
    ]
    named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    return IncompleteArtifactError(
        f"build {chosen.variant.name} of {locked.pin}, locked by {locked.found}, is not whole in {cache.root}: "
        f"{named or 'nothing'} is missing, and it cannot be fetched now: {error.message}",
        missing=missing,
        hint="with network access, in the project's folder, run: kernel-hub sync",
    )
