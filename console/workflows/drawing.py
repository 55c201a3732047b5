"""From lanes to what the template writes: percentages as text, pages, and the state at a moment. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from console.workflows.states import State
from console.workflows.timeline import Bar, Lane, Timeline, at_moment, select_lanes
from console.workflows.timescale import Mark, Scale, idle_stretches, percent
from pikku_storage.workflows.timeline import reconstruct_state_at

LANES_PER_PAGE = 70
ITEMS_PER_GROUP = 25
ITEMS_PER_PAGE = 100
"""How many items of fan-outs a page shows in all; the rest is a page of its own."""
NESTED_LANES = 40
"""How many lanes of an opened child run are shown; the rest is on its own page."""
OPEN_UP_TO = 12
"""A fan-out with more items than this is folded at first."""

_LEAST_WIDTH = 0.35
_TICKS = 400
"""The slider's track has room for so many ticks; more would be a solid line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneQuery:
    """What a viewer wants to see of the timeline. `at` is an event's number, `None` the present."""

    state: str = ""
    name: str = ""
    group: str = ""
    page: int = 1
    hides_idle: bool = False
    at: int | None = None
    opened: tuple[str, ...] = ()
    """The child runs whose own lanes are shown beneath the steps that they do."""

    @property
    def is_filtered(self) -> bool:
        """Whether some lanes are left out on purpose."""
        return bool(self.state or self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBar:
    """A bar in percent of the track."""

    kind: str
    x: str
    width: str
    title: str
    first: int | None
    last: int | None
    is_future: bool
    is_open: bool
    span: tuple[int, int] | None = None
    """Of a bar of another run: its ends in milliseconds after the start of the scale, in place of events."""

    @property
    def pattern(self) -> str:
        """The name of the hatching that fills it, if any."""
        return self.kind if self.kind in {"waiting", "queued"} else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A short text beside the last bar, on the side that has room."""

    text: str
    x: str
    dx: int
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLane:
    """A lane with its bars in place."""

    lane: Lane
    bars: tuple[DrawnBar, ...]
    note: Note | None
    children: tuple[DrawnLane, ...] = ()
    hidden_children: int = 0
    is_open: bool = False
    nested: Nested | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """The lanes of the run that does a step, on the scale of the run that asked for it."""

    lanes: tuple[DrawnLane, ...]
    hidden: int


@dataclass(frozen=True, slots=True)
class Tick:
    """An event, or several that fall together, on the slider's track."""

    position: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One page of the timeline."""

    lanes: tuple[DrawnLane, ...]
    marks: tuple[Mark, ...]
    folds: tuple[tuple[str, str], ...]
    ticks: tuple[Tick, ...]
    cursor: str
    veil: str
    page: int
    pages: int
    total: int
    matching: int
    scale: Scale

    @property
    def has_folds(self) -> bool:
        """Whether idle time was folded away."""
        return bool(self.folds)


def draw(timeline: Timeline, query: LaneQuery, nested: Mapping[str, Timeline] = MappingProxyType({})) -> Chart:
    """The page of the timeline that `query` asks for; `nested` has the timelines of the opened child runs."""
    scale = scale_of(timeline, hides_idle=query.hides_idle)
    lanes: Sequence[Lane] = timeline.lanes
    if query.at is not None:
        state = reconstruct_state_at(timeline.events, query.at)
        lanes = [at_moment(lane, state) for lane in lanes]
    if query.group:
        lanes = [child for lane in lanes if lane.children and lane.name == query.group for child in lane.children]
    total = len(lanes)
    lanes = select_lanes(lanes, state=query.state, name=query.name)
    pages = max(1, -(-len(lanes) // LANES_PER_PAGE))
    page = min(max(query.page, 1), pages)
    shown = lanes[(page - 1) * LANES_PER_PAGE : page * LANES_PER_PAGE]
    cursor = 100.0 if query.at is None else _cursor(timeline, scale, query.at)
    return Chart(
        lanes=tuple(_Nesting(nested, scale, query, _moment(timeline, query.at)).draw(shown)),
        marks=tuple(scale.marks()),
        folds=tuple((percent(scale.at(start)), percent(scale.at(end) - scale.at(start))) for start, end in scale.folds),
        ticks=tuple(_ticks(timeline, scale)),
        cursor=percent(cursor),
        veil=percent(100.0 - cursor),
        page=page,
        pages=pages,
        total=total,
        matching=len(lanes),
        scale=scale,
    )


def scale_of(timeline: Timeline, *, hides_idle: bool) -> Scale:
    """The scale of a run's whole timeline."""
    folds = idle_stretches(timeline.busy(), timeline.start, timeline.end) if hides_idle else ()
    return Scale(timeline.start, timeline.end, folds)


def _moment(timeline: Timeline, at: int | None) -> datetime | None:
    """The time of the event that is looked back at; before the first one, the start."""
    if at is None:
        return None
    reached = [event.at for event in timeline.events if event.seq <= at]
    return reached[-1] if reached else timeline.start


def _cursor(timeline: Timeline, scale: Scale, at: int) -> float:
    return scale.at(_moment(timeline, at) or timeline.end)


@dataclass(frozen=True, slots=True)
class _Nesting:
    """Draws lanes, with those of opened child runs beneath the steps that they do."""

    timelines: Mapping[str, Timeline]
    scale: Scale
    query: LaneQuery
    moment: datetime | None
    path: frozenset[str] = frozenset()
    """The child runs that one is inside of."""

    def draw(self, lanes: Iterable[Lane]) -> Iterable[DrawnLane]:
        """These lanes."""
        room = ITEMS_PER_PAGE
        for lane in lanes:
            children = lane.children[: min(ITEMS_PER_GROUP, room)]
            room -= len(children)
            yield self._lane(lane, children)

    def _lane(self, lane: Lane, children: Sequence[Lane]) -> DrawnLane:
        # What comes later is painted over what came before: a short attempt must not lie under the wait beside it.
        in_order = sorted(lane.bars, key=lambda bar: bar.kind not in {"waiting", "queued"})
        return DrawnLane(
            lane=lane,
            bars=tuple(self._bar(bar) for bar in in_order),
            note=_note(lane, self.scale),
            children=tuple(self._lane(child, ()) for child in children),
            hidden_children=len(lane.children) - len(children),
            is_open=self.query.is_filtered or len(lane.children) <= OPEN_UP_TO or lane.state is State.FAILED,
            nested=self._nested(lane.child_run_id),
        )

    def _bar(self, bar: Bar) -> DrawnBar:
        if not self.path:
            return _draw_bar(bar, self.scale, self.query.at)
        begins, ends = (round((at - self.scale.start) / timedelta(milliseconds=1)) for at in (bar.start, bar.end))
        drawn = replace(_draw_bar(bar, self.scale, None), first=None, last=None, span=(begins, ends))
        if self.moment is None:
            return drawn
        is_future = bar.start > self.moment
        return replace(drawn, is_future=is_future, is_open=not is_future and bar.end > self.moment)

    def _nested(self, run_id: str | None) -> Nested | None:
        timeline = self.timelines.get(run_id or "")
        if run_id is None or timeline is None or run_id in self.path:
            return None
        lanes: Sequence[Lane] = timeline.lanes
        if self.moment is not None:
            state = reconstruct_state_at(timeline.events, self.moment)
            lanes = [at_moment(lane, state) for lane in lanes]
        inside = replace(self, path=self.path | {run_id})
        shown = lanes[:NESTED_LANES]
        return Nested(lanes=tuple(inside.draw(shown)), hidden=len(lanes) - len(shown))


def _draw_bar(bar: Bar, scale: Scale, at: int | None) -> DrawnBar:
    start, end = scale.at(bar.start), scale.at(bar.end)
    width = max(end - start, _LEAST_WIDTH)
    is_future = at is not None and bar.first is not None and bar.first > at
    return DrawnBar(
        kind=bar.kind,
        x=percent(min(start, 100.0 - width)),
        width=percent(width),
        title=bar.title,
        first=bar.first,
        last=bar.last,
        is_future=is_future,
        is_open=at is not None and not is_future and bar.last is not None and bar.last > at,
    )


def _note(lane: Lane, scale: Scale) -> Note | None:
    if not lane.note:
        return None
    start, end = scale.at(lane.start), scale.at(lane.end)
    # What is written takes about a percent for each letter on a wide screen.
    needed = 0.8 * len(lane.note) + 2
    if end + needed <= 100:
        return Note(text=lane.note, x=percent(end), dx=7, anchor="start")
    if start >= needed:
        return Note(text=lane.note, x=percent(start), dx=-7, anchor="end")
    return None


def _ticks(timeline: Timeline, scale: Scale) -> Iterable[Tick]:
    """Where something happened; of several events at one place, the worst."""
    rank = {"pending": 0, "scheduled": 0, "running": 1, "succeeded": 2, "failed": 3}
    found: dict[int, str] = {}
    for event in timeline.events:
        place = round(scale.at(event.at) / 100 * _TICKS)
        if rank[event.type] >= rank.get(found.get(place, ""), -1):
            found[place] = event.type
    return [Tick(percent(place / _TICKS * 100), kind) for place, kind in sorted(found.items())]
