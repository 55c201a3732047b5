"""Durations as the contract writes them: `500`, `"500ms"`, `"2s"`, `"5min"`, `"1hour"`, `"2days"`, `"1week"`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

Duration: TypeAlias = int | float | str | timedelta
"""A number of milliseconds, a text such as `"2s"`, or a `timedelta`."""

_SECOND = 1_000
_UNITS = {
    "ms": 1,
    **dict.fromkeys(("s", "sec", "second", "seconds"), _SECOND),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60 * _SECOND),
    **dict.fromkeys(("h", "hour", "hours"), 3_600 * _SECOND),
    **dict.fromkeys(("d", "day", "days"), 86_400 * _SECOND),
    **dict.fromkeys(("w", "week", "weeks"), 604_800 * _SECOND),
    **dict.fromkeys(("y", "year", "years"), 31_557_600 * _SECOND),
}
_SHOWN = ("d", "h", "min", "s", "ms")
_TEXT = re.compile(r"([0-9]+)([a-z]+)")


def to_milliseconds(duration: Duration) -> int:
    """Milliseconds in `duration` (contract services.md §0).

    A text is digits immediately followed by a lower-case unit (ms, s, sec, second(s), m, min, minute(s), h, hour(s), d,
    day(s), w, week(s), y, year(s)); no sign, space or decimals. Raises `ValueError` for anything else, and for a
    negative number.
    """
    if isinstance(duration, timedelta):
        duration = duration / timedelta(milliseconds=1)
    if isinstance(duration, str):
        match = _TEXT.fullmatch(duration)
        if match is None or match[2] not in _UNITS:
            raise ValueError(
                f"Invalid duration format: {duration}. Use formats like '2s', '5s', '5min', '1hour', '2days', '1week'"
            )
        return int(match[1]) * _UNITS[match[2]]
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        raise ValueError(f"Invalid duration: {duration!r} is neither milliseconds nor a text like '2s'")
    if not 0 <= duration < float("inf"):
        raise ValueError(f"Invalid duration: {duration!r} is negative or not a number")
    return int(duration)


def to_duration_text(milliseconds: int) -> str:
    """The shortest text for that many milliseconds, in the largest unit up to days that needs no rest: `"2h"`,
    `"90min"`."""
    unit = next(unit for unit in _SHOWN if milliseconds % _UNITS[unit] == 0 and (milliseconds or unit == "ms"))
    return f"{milliseconds // _UNITS[unit]}{unit}"
