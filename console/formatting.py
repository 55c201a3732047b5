"""How times, sizes and ids read on the console's pages. Pure functions."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.timesince import timesince, timeuntil
from django.utils.translation import gettext, npgettext_lazy

_SHORT_ENOUGH = 18
_UNITS: dict[str, Any] = {
    "year": npgettext_lazy("after “in” or before “ago”", "%(num)d year", "%(num)d years", "num"),
    "month": npgettext_lazy("after “in” or before “ago”", "%(num)d month", "%(num)d months", "num"),
    "week": npgettext_lazy("after “in” or before “ago”", "%(num)d week", "%(num)d weeks", "num"),
    "day": npgettext_lazy("after “in” or before “ago”", "%(num)d day", "%(num)d days", "num"),
    "hour": npgettext_lazy("after “in” or before “ago”", "%(num)d hour", "%(num)d hours", "num"),
    "minute": npgettext_lazy("after “in” or before “ago”", "%(num)d minute", "%(num)d minutes", "num"),
}
"""Django's own stand alone: a language with cases writes another form after a preposition."""


def duration(length: timedelta) -> str:
    """`350 ms`, `28.0 s`, `3 m 04 s`, `2 h 06 m` or `3 d 04 h`; what is negative reads as nothing."""
    seconds = max(0.0, length.total_seconds())
    if seconds < 0.9995:
        return gettext("%(n)d ms") % {"n": round(seconds * 1000)}
    if seconds < 59.95:
        return gettext("%(n).1f s") % {"n": seconds}
    total = round(seconds)
    if total < 3600:
        return gettext("%(m)d m %(s)02d s") % {"m": total // 60, "s": total % 60}
    if total < 86400:
        return gettext("%(h)d h %(m)02d m") % {"h": total // 3600, "m": total % 3600 // 60}
    return gettext("%(d)d d %(h)02d h") % {"d": total // 86400, "h": total % 86400 // 3600}


def round_duration(length: timedelta) -> str:
    """As `duration`, without what is zero: `2 m`, `1.5 s`, `1 m 30 s`. For axes and for what was planned."""
    milliseconds = round(length.total_seconds() * 1000)
    if milliseconds < 1000:
        return gettext("%(n)d ms") % {"n": milliseconds}
    if milliseconds < 60_000:
        seconds = gettext("%(n)s s")
        return seconds % {"n": f"{milliseconds / 1000:.1f}".removesuffix(".0")}
    total = round(milliseconds / 1000)
    parts = (
        (total // 86400, gettext("%(n)d d")),
        (total % 86400 // 3600, gettext("%(n)d h")),
        (total % 3600 // 60, gettext("%(n)d m")),
        (total % 60, gettext("%(n)d s")),
    )
    return " ".join([text % {"n": number} for number, text in parts if number][:2])


def exact_duration(length: timedelta) -> str:
    """As `round_duration`, with all of it: `4.02 s`, `1 h 2 m 4 s`. For the marks of an axis, which lie close."""
    milliseconds = round(length / timedelta(milliseconds=1))
    if milliseconds < 1000:
        return gettext("%(n)d ms") % {"n": milliseconds}
    total, rest = divmod(milliseconds, 60_000)
    texts = [
        text % {"n": number}
        for number, text in (
            (total // 1440, gettext("%(n)d d")),
            (total % 1440 // 60, gettext("%(n)d h")),
            (total % 60, gettext("%(n)d m")),
        )
        if number
    ]
    if rest:
        texts.append(gettext("%(n)s s") % {"n": f"{rest / 1000:.3f}".rstrip("0").rstrip(".")})
    return " ".join(texts)


def ago(moment: datetime, now: datetime) -> str:
    """`12 s ago`, `7 minutes ago`, `2 days ago`."""
    seconds = (now - moment).total_seconds()
    if seconds < 1:
        return gettext("just now")
    if seconds < 60:
        return gettext("%(n)d s ago") % {"n": int(seconds)}
    return gettext("%(time)s ago") % {"time": timesince(moment, now, time_strings=_UNITS, depth=1)}


def ahead(moment: datetime, now: datetime) -> str:
    """`in 7 minutes`, `in 2 days`; for what is still to come."""
    return gettext("in %(time)s") % {"time": timeuntil(moment, now, time_strings=_UNITS, depth=1)}


def absolute(moment: datetime) -> str:
    """Date, time and zone, in the viewer's zone."""
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S %Z}"


def clock(moment: datetime) -> str:
    """Hours, minutes and seconds, in the viewer's zone."""
    return f"{timezone.localtime(moment):%H:%M:%S}"


def precise_clock(moment: datetime) -> str:
    """As `clock`, with milliseconds."""
    return f"{clock(moment)}.{moment.microsecond // 1000:03d}"


def number(value: int) -> str:
    """A whole number with its thousands set apart, as the language does it."""
    return str(number_format(value, force_grouping=True))


def short_id(identifier: str) -> str:
    """Both ends of a long id: the beginning of ids that were made together is the same."""
    return identifier if len(identifier) <= _SHORT_ENOUGH else f"{identifier[:8]}…{identifier[-6:]}"


def shorten(text: str, limit: int) -> str:
    """The first line's beginning, with an ellipsis if that is not all."""
    line, *more = text.strip().splitlines() or [""]
    return line if len(line) <= limit and not more else f"{line[:limit].rstrip()}…"
