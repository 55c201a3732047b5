"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from pikku_storage.db.clock import Time, passing
from pikku_storage.db.fields import cut
from pikku_storage.durations import Duration, to_milliseconds


class FrozenClock(Time):
    """The engine's time in a test. It begins at the real time, and nothing but the test and inline runs move it: an
    inline run that must wait moves it to the moment it waits for, and does not wait.

    It is the engine's clock only. `datetime.now()` and what reads it go on as ever.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moment: datetime | None = None

    def now(self, told: Callable[[], datetime] | None = None) -> datetime:
        """The engine's time, aware and in UTC."""
        with self._lock:
            if self._moment is None:
                self._moment = cut(datetime.now(UTC) if told is None else told())
            return self._moment

    def advance(self, duration: Duration) -> datetime:
        """Move on by milliseconds, a text such as `"2h"`, or a `timedelta`; answers with the new time.

        What became due is not done by this, but by whoever looks next: `run_until_idle()`, or a relay. Raises
        `ValueError` for what is no duration.
        """
        return self.advance_to(self.now() + timedelta(milliseconds=to_milliseconds(duration)))

    def advance_to(self, moment: datetime) -> datetime:
        """Move on to an aware time. Raises `ValueError` for one that is past."""
        now = self.now()
        if moment < now:
            raise ValueError(f"The clock is at {now.isoformat()} already; it cannot go back to {moment.isoformat()}")
        with self._lock:
            self._moment = cut(moment.astimezone(UTC))
            return self._moment

    def sleep(self, seconds: float) -> None:
        """See `Time.sleep`: time passes at once."""
        self.advance_to(self.now() + timedelta(seconds=seconds))

    def __repr__(self) -> str:
        return f"<FrozenClock {self.now().isoformat()}>"


@contextmanager
def frozen_clock() -> Iterator[FrozenClock]:
    """The engine's time stands still inside the block, but for what the clock it is given is told."""
    clock = FrozenClock()
    with passing(clock):
        yield clock
