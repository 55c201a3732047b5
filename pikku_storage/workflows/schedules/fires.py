"""When a schedule fires. Functions of time: no clock, no database.

Local times are those of `cronsim`, which does what Debian's cron does, with one simplification that follows from
`_rewritten`: a schedule whose expression names every hour follows the clock on the wall wherever it goes, and any other
fires exactly once for each local time, also for one that a change of the clock skips (right after it) or repeats (the
first time).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""Names that stand for an expression."""
LONGEST = 255
"""Characters of an expression."""

_SHORTEST_INTERVAL = timedelta(minutes=1)
_INSTANT = timedelta(milliseconds=1)
_NO_MINUTE = 60
_A_YEAR = datetime(2000, 1, 1, tzinfo=UTC)
"""From then on an expression must fire within fifty years, or it never does."""


@dataclass(frozen=True, slots=True)
class Fires:
    """The times at which a cron expression fires in a time zone: whole minutes, given in UTC."""

    cron: str
    timezone: str

    @classmethod
    def of(cls, cron: str, timezone: str) -> Self:
        """Raises `ValueError` for what is no cron expression or no time zone, and for an expression that never
        fires."""
        fires = cls(cron, timezone)
        fires.after(_A_YEAR)
        return fires

    def after(self, moment: datetime) -> datetime:
        """The first fire after `moment`. Raises `ValueError` if there is none within fifty years."""
        for fire in self._all_after(moment):
            return fire
        raise ValueError(f"{self.cron!r} never fires: there is no such date")

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The fires from `start` to `end`, both included, oldest first."""
        for fire in self._all_after(start - _INSTANT):
            if fire > end:
                return
            yield fire

    def last(self, count: int, *, start: datetime, end: datetime) -> list[datetime]:
        """The last `count` fires of `between(start, end)`, oldest first.

        It looks back from `end` in steps that grow, because there may be a million fires since `start`.
        """
        reach = _SHORTEST_INTERVAL * count
        while True:
            begin = max(start, end - reach)
            found = deque(self.between(begin, end), maxlen=count)
            if len(found) == count or begin == start:
                return list(found)
            reach *= 2

    def next(self, count: int, *, after: datetime) -> list[datetime]:
        """The first `count` fires after `after`; fewer if there are no more within fifty years."""
        return list(islice(self._all_after(after), count))

    def _all_after(self, moment: datetime) -> Iterator[datetime]:
        last = moment
        found_by = CronSim(_rewritten(self.cron), local(moment, self.timezone))
        # With a single minute it would jump there as if the clock never changed in between, by half an hour say.
        found_by.minutes = {*found_by.minutes, _NO_MINUTE}
        for fire in found_by:
            # Local times that were skipped all come right after the gap, and those of a repeated hour lie before a
            # moment in its second half.
            if (found := fire.astimezone(UTC)) > last:
                yield found
                last = found


def local(moment: datetime, timezone: str) -> datetime:
    """The moment as the clocks of the time zone show it; raises `ValueError` for what is none."""
    try:
        return moment.astimezone(ZoneInfo(timezone))
    except (KeyError, ValueError, OSError):
        raise ValueError(
            f"{timezone!r} is no time zone that this machine knows; write it as the IANA database does: 'Europe/Berlin'"
        ) from None


def _rewritten(cron: str) -> str:
    """The expression so that `cronsim` has one rule for its hours.

    By itself it follows the clock on the wall if minute *or* hour begin with `*`, so that `*/15 2 * * *` would not fire
    at all on the day on which the hour is skipped.
    """
    fields = _spelled_out(cron).split()
    if len(fields) != 5:
        raise ValueError(
            f"{cron!r} is no cron expression: it has {len(fields)} fields; five are needed: minute, hour, day of the "
            "month, month, day of the week"
        )
    try:
        hours = CronSim(" ".join(fields), _A_YEAR).hours
    except CronSimError as error:
        raise ValueError(f"{cron!r} is no cron expression: {error}") from None
    minute, hour, *days = fields
    if len(hours) == 24:
        return " ".join((minute, "*", *days))
    return " ".join((_without_star(minute, "0-59"), _without_star(hour, "0-23"), *days))


def _without_star(field: str, everything: str) -> str:
    return everything + field.removeprefix("*") if field.startswith("*") else field


def _spelled_out(cron: str) -> str:
    text = cron.strip()
    if not text.startswith("@"):
        return text
    try:
        return NAMED[text.lower()]
    except KeyError:
        raise ValueError(f"{cron!r} is no cron expression: the names are {', '.join(NAMED)}") from None
