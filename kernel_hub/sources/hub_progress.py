"""Progress of downloads as huggingface_hub shows it: its own bar, on a terminal only, and off where it is turned off there.

Leaves out what is downloaded (see `kernel_hub.cache.download`).
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

# Less is here before a bar could be read.
_WORTH_FROM_BYTES = 8 << 20


class TerminalProgress:
    """A listener for downloads that draws a bar while somebody watches a terminal.

    Args:
        stream: Where to draw; default: standard error, as it is when the first download begins.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._bar: Any = None

    def __call__(self, path: str, done_bytes: int, all_bytes: int) -> None:
        """Told the file that something came of, the bytes that are here, and all that were missing."""
        if all_bytes < _WORTH_FROM_BYTES:
            return
        if self._bar is None or self._bar.total != all_bytes:
            self._bar = self._drawn(path, all_bytes)
        # Bytes of a damaged download are taken back, so the number may fall.
        self._bar.update(done_bytes - self._bar.n)
        if done_bytes >= all_bytes:
            self._bar.close()
            self._bar = None

    def _drawn(self, path: str, all_bytes: int) -> Any:
        from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

        draw: Any = tqdm
        return draw(
            total=all_bytes,
            unit="B",
            unit_scale=True,
            desc=f"Fetching {path.split('/')[1] if path.count('/') > 1 else path}",
            # None means: on unless the stream is no terminal.
            disable=None,
            file=self._stream or sys.stderr,
        )
