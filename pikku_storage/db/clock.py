"""Time as the database sees it.

Leases compare times, so a worker whose wall clock is off must not take its neighbours' work (engine.md §4). The server
is asked once a minute; in between the monotonic clock counts on, which no clock adjustment touches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

ASK_AGAIN_AFTER = 60.0
"""Seconds between two measurements of the server's time."""

_travelled = timedelta()


class Clock:
    """Counts on from the last time the server told."""

    def __init__(self, ask: Callable[[], datetime | None]) -> None:
        self._ask = ask
        self._asked_at = float("-inf")
        self._told: datetime | None = None

    def now(self) -> datetime:
        """Now, in UTC, cut to milliseconds."""
        elapsed = time.monotonic() - self._asked_at
        if elapsed > ASK_AGAIN_AFTER:
            before = time.monotonic()
            told = self._ask()
            self._asked_at = (before + time.monotonic()) / 2
            self._told = told
            elapsed = time.monotonic() - self._asked_at
        moment = datetime.now(UTC) if self._told is None else self._told + timedelta(seconds=elapsed)
        moment += _travelled
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@contextmanager
def travel(by: timedelta) -> Iterator[None]:
    """For tests: every clock of this process is `by` ahead inside the block; blocks add up."""
    global _travelled
    _travelled += by
    try:
        yield
    finally:
        _travelled -= by
