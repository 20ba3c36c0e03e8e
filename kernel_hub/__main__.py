"""The command line, as `python -m kernel_hub` and as the installed script.

It imports next to nothing itself, so that an interrupt while the rest is imported ends it as any other does.
"""

from __future__ import annotations

import sys


def run() -> int:
    """Run the command that this process's arguments name; the exit code."""
    try:
        from kernel_hub.cli import main

        return main()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(run())
