"""Time as the database sees it.

Leases compare times, so a worker whose wall clock is off must not take its neighbours' work (engine.md §4). The server
is asked once a minute; in between the monotonic clock counts on, which no clock adjustment touches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta

from django.db import Error as DatabaseError

from pikku_storage.db.fields import cut

ASK_AGAIN_AFTER = 60.0
"""Seconds between two measurements of the server's time."""
PROMPT, MOST_QUESTIONS = 0.005, 5
"""An answer is off by up to half the time it took, which may be long (a new connection, a busy machine). So a slow one
is asked for again, and the quickest of five counts."""


class Time:
    """How time passes for the engine in this process: as the database tells, and waiting takes as long as it takes.

    `passing` puts another one in its place.
    """

    def now(self, told: Callable[[], datetime]) -> datetime:
        """Now, in UTC; `told` is what the database's clock says."""
        return told()

    def sleep(self, seconds: float) -> None:
        """Wait in the calling thread, as a run does that is carried out inline."""
        time.sleep(seconds)


_time = Time()


class Clock:
    """Counts on from the last time the server told."""

    def __init__(self, ask: Callable[[], datetime | None]) -> None:
        self._ask = ask
        # When it was asked and what was told. One attribute, because threads share a clock and the two belong together.
        self._last: tuple[float, datetime | None] = float("-inf"), None

    def now(self) -> datetime:
        """Now, in UTC, cut to milliseconds."""
        return cut(_time.now(self._told))

    def sleep(self, seconds: float) -> None:
        """Wait until this clock is that much further."""
        _time.sleep(seconds)

    def _told(self) -> datetime:
        asked_at, told = self._last
        if time.monotonic() - asked_at > ASK_AGAIN_AFTER:
            asked_at, told = self._last = self._ask_again()
        return datetime.now(UTC) if told is None else told + timedelta(seconds=time.monotonic() - asked_at)

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
def passing(other: Time) -> Iterator[None]:
    """For tests: time passes as `other` says inside the block, for every clock and thread of this process."""
    global _time
    before, _time = _time, other
    try:
        yield
    finally:
        _time = before


class _Ahead(Time):
    def __init__(self, other: Time, by: timedelta) -> None:
        self._other = other
        self._by = by

    def now(self, told: Callable[[], datetime]) -> datetime:
        return self._other.now(told) + self._by

    def sleep(self, seconds: float) -> None:
        self._other.sleep(seconds)


def travel(by: timedelta) -> AbstractContextManager[None]:
    """For tests: every clock of this process is `by` ahead inside the block; blocks add up."""
    return passing(_Ahead(_time, by))
