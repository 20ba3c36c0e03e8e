"""Stage 4, verify: an artifact becomes a verified artifact, or nothing of it is ever imported.

`steps` has the order of the checks. `artifact_tree` opens files without being led astray, `identities` reads them,
`stamps` saves reading them again, `differences` compares, and `messages` says what was found.
"""

from __future__ import annotations

from kernel_hub.verify.messages import describe
from kernel_hub.verify.stamps import Stamps
from kernel_hub.verify.steps import METADATA, backend_of_label, verify

__all__ = ["METADATA", "Stamps", "backend_of_label", "describe", "verify"]
