"""Periods of the chart, cut into buckets of the viewer's hours or days. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True, slots=True)
class Period:
    """So many whole hours or days up to now, the current one included."""

    key: str
    label: str | Promise
    buckets: int
    is_daily: bool

    def starts(self, now: datetime) -> list[datetime]:
        """When each bucket begins, the oldest first, as UTC. A day is the viewer's, also if it has 23 hours."""
        local = timezone.localtime(now)
        if not self.is_daily:
            # Subtracted in UTC: an hour stays one where clocks are changed.
            hour = local.replace(minute=0, second=0, microsecond=0).astimezone(UTC)
            return [hour - timedelta(hours=back) for back in reversed(range(self.buckets))]
        days = [local.date() - timedelta(days=back) for back in reversed(range(self.buckets))]
        return [datetime(day.year, day.month, day.day, tzinfo=local.tzinfo).astimezone(UTC) for day in days]

    def name_of(self, start: datetime) -> str:
        """What stands below a bucket: `14:00`, or `03-28`."""
        return f"{timezone.localtime(start):{'%m-%d' if self.is_daily else '%H:%M'}}"


PERIODS = {
    period.key: period
    for period in (
        Period("24h", _("Last 24 hours"), 24, is_daily=False),
        Period("14d", _("Last 14 days"), 14, is_daily=True),
    )
}


def period_of(key: str | None) -> Period:
    """The period of that key; the first one for any other."""
    return PERIODS.get(key or "", PERIODS["24h"])
