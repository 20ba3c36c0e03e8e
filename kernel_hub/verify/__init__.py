"""Stage 4, verify: an artifact becomes a verified artifact, or nothing of it is ever imported.

`steps` has the order of the checks, `artifact_tree` opens files without being led astray, and `identities` reads them.
"""

from __future__ import annotations

from kernel_hub.verify.steps import METADATA, backend_of_label, describe, verify

__all__ = ["METADATA", "backend_of_label", "describe", "verify"]
