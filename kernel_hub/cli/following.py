"""What to do after something was published, copied or served: the binding of its namespaces, and the line that loads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/:%[]@+")


def binding_lines(namespaces: Iterable[str], place: str, *, token_env: str | None = None) -> list[str]:
    """What to set so that namespaces are looked up at a place.

    Args:
        namespaces: Parts of names before '/'.
        place: A folder, or a URL.
        token_env: The variable with the token that reading there needs.
    """
    names = sorted(set(namespaces))
    if not names:
        return []
    # The plain form separates entries by spaces, so a place with other characters is written as a URL.
    if not set(place) <= _PLAIN and "://" not in place:
        from pathlib import Path

        place = Path(place).as_uri()
    if token_env is None:
        value = " ".join(f"{name}={place}" for name in names)
    else:
        import json

        value = json.dumps({name: {"url": place, "token-env": token_env} for name in names})
    return ["to load from it:", f"  export KERNEL_HUB_REGISTRIES='{value}'"]


def loading_line(repo: str, *, version: int | None, branch: str | None = None) -> str:
    """The Python that loads one kernel, for a shell."""
    wanted = f"version={version}" if branch in (None, f"v{version}") else f'revision="{branch}"'
    return f"  python -c 'from kernel_hub import get_kernel; print(get_kernel(\"{repo}\", {wanted}))'"
