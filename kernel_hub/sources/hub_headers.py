"""What requests to a Hub say about us: the user agent and the token.

A header's value is visible ASCII without blanks at its ends; a part that is blank, or holds anything else, never makes it
invalid. With telemetry off nothing about the machine is named, not even Python's version.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from kernel_hub import __version__
from kernel_hub.errors import InvalidDocumentError
from kernel_hub.model.pattern import Pattern
from kernel_hub.sources.hub_http import origin

_NOT_VISIBLE = Pattern(r"[^\x21-\x7e]+")
_TOKEN = Pattern(r"[\x21-\x7e]+")
_MAX_PART_CHARS = 200


def user_agent_text(extra: str | Mapping[str, str] | None, *, telemetry: bool, host_facts: Mapping[str, str]) -> str:
    """The user agent: ours, the machine's versions if telemetry is on, and the caller's addition.

    Args:
        extra: A text, or names with values.
        telemetry: Whether the machine's versions may be named.
        host_facts: Those versions.
    """
    parts = [f"kernel_hub/{__version__}"]
    if telemetry:
        parts.extend(f"{name}/{value}" for name, value in host_facts.items())
    if isinstance(extra, Mapping):
        parts.extend(f"{name}/{value}" for name, value in extra.items() if name.strip() and value.strip())
    elif extra:
        parts.extend(extra.split(";"))
    visible = (_NOT_VISIBLE.sub(" ", part).strip()[:_MAX_PART_CHARS].strip() for part in parts)
    return "; ".join(dict.fromkeys(part for part in visible if part))


def checked_token(token: str) -> str:
    """A token without blanks around it.

    Raises:
        InvalidDocumentError: If it cannot be sent; the message does not repeat it.
    """
    text = token.strip()
    if not _TOKEN.fullmatch(text):
        raise InvalidDocumentError("token", "is empty or holds characters that no token has", hint="check HF_TOKEN")
    return text


def names_token(environ: Mapping[str, str]) -> bool:
    """Whether some variable may lead huggingface_hub to a token."""
    return any(
        name.startswith(("HF_", "HUGGING")) and ("TOKEN" in name or "OIDC" in name) and value
        for name, value in environ.items()
    )


def implicit_token(endpoint: str, *, environ_names_token: bool = True) -> str | None:
    """The token that huggingface_hub has stored, if `endpoint` is the one it belongs to.

    Args:
        endpoint: The Hub's URL.
        environ_names_token: See `names_token`. If no variable does, there is a token only in a file, or in a Colab notebook.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN or origin(endpoint) != origin(constants.ENDPOINT):
        return None
    is_notebook = "google.colab" in sys.modules or "IPython" in sys.modules
    # What finds a token takes longer to import than a request to a near server.
    if not (environ_names_token or is_notebook or Path(constants.HF_TOKEN_PATH).exists()):
        return None
    from huggingface_hub import get_token

    token = get_token()
    return checked_token(token) if token and token.strip() else None
