"""`python -m kernel_hub`: the command line without its script."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from kernel_hub.cli import main
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    sys.exit(main())
