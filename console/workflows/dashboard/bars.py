"""The chart of runs over time: bars in percent of its width and in pixels of its height. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from console.templatetags.pikku_console import state_label
from console.workflows.dashboard.periods import Period
from console.workflows.dashboard.reads import Histogram
from pikku_storage.workflows.statuses import RunStatus

HEIGHT = 120
"""Pixels of the highest bar."""
_SMALLEST = 2.0
"""Pixels of a part that is there at all."""
ORDER = (RunStatus.COMPLETED, RunStatus.RUNNING, RunStatus.SUSPENDED, RunStatus.CANCELLED, RunStatus.FAILED)
"""From the bottom up: what failed is on top."""


@dataclass(frozen=True, slots=True)
class Part:
    """A status's part of a bar; `y` is its upper edge."""

    status: str
    count: int
    y: str
    height: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bucket. `x` and `width` are percentages."""

    name: str
    total: int
    by_status: Sequence[int]
    parts: Sequence[Part]
    x: str
    width: str
    middle: str
    is_partial: bool
    is_named: bool


@dataclass(frozen=True, slots=True)
class Chart:
    """The bars, oldest first. `top` is what the highest of them stands for."""

    bars: Sequence[Bar]
    top: int
    statuses: Sequence[tuple[str, str, int]]
    """Status, its word, and how many runs have it."""
    is_partial: bool

    height = HEIGHT

    @property
    def total(self) -> int:
        """All runs that were counted."""
        return sum(bar.total for bar in self.bars)


def chart_of(histogram: Histogram, period: Period, starts: Sequence[datetime]) -> Chart:
    """The chart of these counts."""
    totals = [sum(histogram.counts[status][number] for status in RunStatus.values) for number in range(len(starts))]
    top, across = max(totals, default=0), 100 / len(starts)
    bars = []
    for number, start in enumerate(starts):
        by_status = [histogram.counts[status][number] for status in ORDER]
        is_partial = histogram.partial_until is not None and start < histogram.partial_until
        bars.append(
            Bar(
                name=period.name_of(start),
                total=totals[number],
                by_status=by_status,
                parts=_parts(by_status, top),
                x=f"{number * across + across * 0.1:.3f}%",
                width=f"{across * 0.8:.3f}%",
                middle=f"{(number + 0.5) * across:.3f}%",
                is_partial=is_partial,
                is_named=number % (2 if period.is_daily else 4) == 0,
            )
        )
    statuses = [(status.value, state_label(status.value), sum(histogram.counts[status])) for status in ORDER]
    return Chart(bars, top, statuses, histogram.partial_until is not None)


def _parts(by_status: Sequence[int], top: int) -> list[Part]:
    parts, base = [], float(HEIGHT)
    for status, count in zip(ORDER, by_status, strict=True):
        if count:
            height = max(_SMALLEST, count / top * (HEIGHT - _SMALLEST * len(ORDER)))
            base -= height
            parts.append(Part(status.value, count, f"{base:.1f}", f"{height:.1f}"))
    return parts
