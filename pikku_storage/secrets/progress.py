"""A progress bar for a terminal."""

from __future__ import annotations

import time
from typing import Self, TextIO

WIDTH = 30
INTERVAL = 0.1
"""Seconds between two drawings."""


class ProgressBar:
    """One line that is drawn over and over, and is gone at the end. Without a stream nothing is drawn."""

    def __init__(self, label: str, total: int, stream: TextIO | None) -> None:
        self._label = label
        self._total = total
        self._stream = stream
        self._done = 0
        self._drawn = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._stream is not None:
            self._stream.write("\r\033[K")
            self._stream.flush()

    def advance(self, count: int) -> None:
        """So many more are done."""
        self._done += count
        if self._stream is not None and time.monotonic() - self._drawn > INTERVAL:
            self._drawn = time.monotonic()
            share = min(1.0, self._done / self._total) if self._total else 1.0
            full = "█" * int(share * WIDTH)
            self._stream.write(f"\r\033[K{self._label} {full:░<{WIDTH}} {self._done:,} of {self._total:,}")
            self._stream.flush()
