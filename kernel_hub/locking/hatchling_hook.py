"""What hatchling calls when it builds a project that names this hook:

    [build-system]
    requires = ["hatchling", "kernel-hub"]

    [tool.hatch.build.hooks.kernel-hub]

The lock goes into the metadata of wheels and of editable installs (`extra_metadata/kernel-hub.lock`), and into source
distributions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from kernel_hub.locking.shipping import lock_to_ship


class KernelLockHook(BuildHookInterface[Any]):
    """Adds the lock to what is built."""

    PLUGIN_NAME = "kernel-hub"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling's build hook interface."""
        del version
        path = lock_to_ship(Path(self.root))
        if path is None:
            return
        if self.target_name == "wheel":
            build_data["extra_metadata"][str(path)] = path.name
        else:
            build_data["artifacts"].append(f"/{path.name}")


@hookimpl
def hatch_register_build_hook() -> type[KernelLockHook]:
    """Tell hatchling of the hook."""
    return KernelLockHook
