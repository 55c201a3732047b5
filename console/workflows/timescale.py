"""From times to positions: a scale in percent, its axis, and idle stretches that can be folded away. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from console.formatting import clock, exact_duration

Span = tuple[datetime, datetime]

_UNITS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 15_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000),
    *(3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000),
    *(86_400_000, 172_800_000, 604_800_000, 1_209_600_000, 2_592_000_000, 31_536_000_000),
)
"""Milliseconds between two marks of an axis that read well."""

_MOST_MARKS = 8
_LAST_LABEL = 95.0
"""A label further right would leave the page."""

_IDLE_SHARE = 0.12
"""A stretch without work is folded if it is longer than this part of all the work."""
_FOLD_WIDTH = 4.0
_MOST_FOLDED = 40.0
"""Percent: the width of one folded stretch, and of all of them."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of the axis."""

    position: str
    label: str


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps the time from `start` to `end` to 0-100 percent; `folds` are stretches that take little room."""

    start: datetime
    end: datetime
    folds: tuple[Span, ...] = ()

    def at(self, moment: datetime) -> float:
        """The position of a time in percent, from 0 to 100."""
        share = min(_FOLD_WIDTH, _MOST_FOLDED / len(self.folds)) if self.folds else 0.0
        room = 100.0 - share * len(self.folds)
        unfolded = (self.end - self.start) - sum((end - start for start, end in self.folds), timedelta())
        moment = min(max(moment, self.start), self.end)
        worked = moment - self.start
        position = 0.0
        for start, end in self.folds:
            if moment <= start:
                break
            inside = min(moment, end) - start
            worked -= inside
            position += share * (inside / (end - start))
        if unfolded > timedelta():
            position += room * (worked / unfolded)
        return min(100.0, max(0.0, position))

    def marks(self) -> list[Mark]:
        """The axis: the start as a time of day, then distances from it. Folded stretches have no marks."""
        length = (self.end - self.start) / timedelta(milliseconds=1)
        shown = length - sum((end - start) / timedelta(milliseconds=1) for start, end in self.folds)
        unit = next((unit for unit in _UNITS if shown / unit <= _MOST_MARKS), _UNITS[-1])
        marks = [Mark(percent(0.0), clock(self.start))]
        last = 0.0
        for moment, step in self._candidates(unit):
            position = self.at(moment)
            if position - last >= 100 / (_MOST_MARKS + 2) and position <= _LAST_LABEL:
                marks.append(Mark(percent(position), f"+{exact_duration(step)}"))
                last = position
        return marks

    def _candidates(self, unit: int) -> Iterable[tuple[datetime, timedelta]]:
        step = timedelta(milliseconds=unit)
        stretches = [self.start, *(end for _, end in self.folds)]
        for begin, end in zip(stretches, [*(start for start, _ in self.folds), self.end], strict=True):
            # The first round distance within the stretch; a stretch after a fold may begin years later.
            count = max(1, -(-(begin - self.start) // step))
            while self.start + count * step <= end:
                yield self.start + count * step, count * step
                count += 1


def percent(value: float) -> str:
    """As SVG wants it, whatever the locale."""
    return f"{value:.2f}".rstrip("0").rstrip(".") + "%"


def idle_stretches(busy: Iterable[Span], start: datetime, end: datetime) -> tuple[Span, ...]:
    """The stretches between `start` and `end` in which nothing was busy, if they are long enough to be folded."""
    merged = _merge(busy)
    work = sum((until - since for since, until in merged), timedelta())
    least = max(work * _IDLE_SHARE, timedelta(milliseconds=50))
    gaps = []
    cursor = start
    for since, until in [*merged, (end, end)]:
        if since - cursor > least:
            gaps.append((cursor, min(since, end)))
        cursor = max(cursor, until)
    return tuple(gap for gap in gaps if gap[1] > gap[0])


def _merge(spans: Iterable[Span]) -> Sequence[Span]:
    merged: list[Span] = []
    for since, until in sorted(spans):
        if merged and since <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until))
        else:
            merged.append((since, until))
    return merged
