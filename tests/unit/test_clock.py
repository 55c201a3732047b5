"""The clock that asks the database server."""

import time
from datetime import UTC, datetime, timedelta

from pikku_storage.db.clock import Clock


def test_a_slow_answer_is_asked_for_again() -> None:
    # The first answer is 40 ms old when it arrives, as with a connection that is only just being made.
    delays = iter([0.04, 0.0])
    asked: list[float] = []

    def ask() -> datetime:
        delay = next(delays)
        asked.append(delay)
        time.sleep(delay)
        return datetime.now(UTC)

    off = abs(Clock(ask).now() - datetime.now(UTC))
    assert asked == [0.04, 0.0]
    assert off < timedelta(milliseconds=10)


def test_a_prompt_answer_is_asked_for_once() -> None:
    asked: list[int] = []

    def ask() -> datetime:
        asked.append(1)
        return datetime.now(UTC)

    clock = Clock(ask)
    clock.now()
    clock.now()
    assert asked == [1]
