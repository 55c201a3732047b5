"""Time as the database sees it.

Leases compare times, so a worker whose wall clock is off must not take its neighbours' work (engine.md §4). The server
is asked once a minute; in between the monotonic clock counts on, which no clock adjustment touches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from django.db import Error as DatabaseError

from pikku_storage.db.fields import cut

ASK_AGAIN_AFTER = 60.0
"""Seconds between two measurements of the server's time."""
PROMPT, MOST_QUESTIONS = 0.005, 5
"""An answer is off by up to half the time it took, which may be long (a new connection, a busy machine). So a slow one
is asked for again, and the quickest of five counts."""

_travelled = timedelta()


class Clock:
    """Counts on from the last time the server told."""

    def __init__(self, ask: Callable[[], datetime | None]) -> None:
        self._ask = ask
        # When it was asked and what was told. One attribute, because threads share a clock and the two belong together.
        self._last: tuple[float, datetime | None] = float("-inf"), None

    def now(self) -> datetime:
        """Now, in UTC, cut to milliseconds."""
        asked_at, told = self._last
        if time.monotonic() - asked_at > ASK_AGAIN_AFTER:
            asked_at, told = self._last = self._ask_again()
        moment = datetime.now(UTC) if told is None else told + timedelta(seconds=time.monotonic() - asked_at)
        return cut(moment + _travelled)

    def _ask_again(self) -> tuple[float, datetime | None]:
        best, told_best = float("inf"), self._last
        for _ in range(MOST_QUESTIONS):
            before = time.monotonic()
            try:
                told = self._ask()
            except DatabaseError:
                # A clock that has been told once can count on; an outcome must not be lost for the sake of its time.
                if told_best[1] is None:
                    raise
                return told_best
            took = time.monotonic() - before
            if took < best:
                best, told_best = took, (before + took / 2, told)
            if told is None or took < PROMPT:
                break
        return told_best


@contextmanager
def travel(by: timedelta) -> Iterator[None]:
    """For tests: every clock of this process is `by` ahead inside the block; blocks add up."""
    global _travelled
    _travelled += by
    try:
        yield
    finally:
        _travelled -= by
