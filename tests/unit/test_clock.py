"""The clock that asks the database server."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pikku_storage.db.clock import Clock, Time, passing, travel
from tests.factories import A_MONDAY


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


class Stopped(Time):
    """A time that does not pass."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self, told: Callable[[], datetime]) -> datetime:
        return A_MONDAY

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def test_every_clock_follows_the_time_that_is_put_in_its_place() -> None:
    def ask() -> datetime:
        raise AssertionError("nobody asks for a time that is not used")

    clock, stopped = Clock(ask), Stopped()
    with passing(stopped):
        assert clock.now() == A_MONDAY
        clock.sleep(60)
        with travel(timedelta(hours=1)), travel(timedelta(minutes=1)):
            assert clock.now() == A_MONDAY + timedelta(minutes=61)
            clock.sleep(5)
        assert clock.now() == A_MONDAY
    assert stopped.slept == [60, 5]


def test_time_is_cut_to_milliseconds_and_passes_again_afterwards() -> None:
    clock = Clock(lambda: A_MONDAY + timedelta(microseconds=1_999))
    with travel(timedelta(days=1)):
        assert clock.now().microsecond % 1000 == 0
        assert clock.now() >= A_MONDAY + timedelta(days=1)
    before = clock.now()
    clock.sleep(0.002)
    assert before < clock.now() < A_MONDAY + timedelta(minutes=1)
