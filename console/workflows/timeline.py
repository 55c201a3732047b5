"""Lanes and bars of a run's timeline, built from its steps and attempts. Pure functions; positions come later."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from django.utils.translation import gettext, ngettext

from console.formatting import ago, duration, round_duration, short_id
from console.workflows.records import AttemptRow, RunRow, StepRow
from console.workflows.states import ACTIVE, State, state_of, state_of_group
from console.workflows.timescale import Span
from pikku_storage.workflows.statuses import StepStatus
from pikku_storage.workflows.timeline import ReconstructedState, TimelineEvent, build_run_timeline

BarKind = Literal["queued", "ran", "failed", "running", "waiting"]
EventKey = tuple[str, int, str]
_Piece = tuple[BarKind, datetime, datetime, StepStatus, StepStatus | None]
"""Kind, start, end, and the events that begin and end it; PENDING as the end is that of the next attempt."""

_TIMES = "\N{MULTIPLICATION SIGN}"
_ITEM = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One stretch of an attempt. `first` and `last` are the numbers of the events that begin and end it, if any."""

    kind: BarKind
    start: datetime
    end: datetime
    attempt: int
    name: str
    is_sleep: bool = False
    is_gate: bool = False
    first: int | None = None
    last: int | None = None

    @property
    def title(self) -> str:
        """What it was, in words. Only bars that are shown are asked for it: looking up translations takes time."""
        words = {
            "queued": gettext("queued"),
            "ran": gettext("succeeded"),
            "failed": gettext("failed"),
            "running": gettext("running"),
            "waiting": self._waiting_title,
        }
        return gettext("%(step)s · attempt %(n)d · %(what)s · %(took)s") % {
            "step": self.name,
            "n": self.attempt,
            "what": words[self.kind],
            "took": duration(self.end - self.start),
        }

    @property
    def _waiting_title(self) -> str:
        if self.is_gate:
            return gettext("waits for a person")
        return gettext("sleep") if self.is_sleep else gettext("waits for the next attempt")

    @property
    def is_busy(self) -> bool:
        """Whether work was done or asked for, rather than waited for."""
        return self.kind != "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A step of the timeline, or a fan-out with its items as `children`."""

    name: str
    state: State
    bars: tuple[Bar, ...]
    step_id: str | None = None
    function: str = ""
    note: str = ""
    attempts: int = 1
    compensates: str | None = None
    child_run_id: str | None = None
    run_id: str = ""
    children: tuple[Lane, ...] = field(default=())

    @property
    def start(self) -> datetime:
        """When it first appeared."""
        return self.bars[0].start

    @property
    def end(self) -> datetime:
        """The end of its last bar."""
        return max(bar.end for bar in self.bars)

    def walk(self) -> Iterable[Lane]:
        """The lanes of steps: itself, or its items."""
        return self.children or (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A run's lanes in order of first appearance, and its events."""

    lanes: tuple[Lane, ...]
    events: tuple[TimelineEvent, ...]
    start: datetime
    end: datetime

    def busy(self) -> Iterable[Span]:
        """When something was queued or running."""
        return ((bar.start, bar.end) for lane in self.steps() for bar in lane.bars if bar.is_busy)

    def steps(self) -> Iterable[Lane]:
        """The lanes of steps, without those of fan-outs."""
        return (step for lane in self.lanes for step in lane.walk())


def build_timeline(run: RunRow, steps: Sequence[StepRow], attempts: Sequence[AttemptRow], *, now: datetime) -> Timeline:
    """The timeline of a run as it is at `now`. What is still open ends at `now`, or with the run."""
    by_step: dict[str, list[AttemptRow]] = defaultdict(list)
    for attempt in attempts:
        by_step[attempt.step_id].append(attempt)
    events = build_run_timeline(
        attempt.as_history(step, number) for step in steps for number, attempt in enumerate(by_step[step.id], start=1)
    )
    last = max((event.at for event in events), default=run.created_at)
    limit = max(last, run.ended_at or now, run.created_at)
    builder = _LaneBuilder(
        run_id=run.id,
        is_live=not run.is_terminal,
        now=now,
        limit=limit,
        seq={(event.step_name, event.attempt_count, event.type): event.seq for event in events},
    )
    order = {name: index for index, name in reversed(list(enumerate(event.step_name for event in events)))}
    lanes = [builder.lane(step, by_step[step.id]) for step in steps]
    groups = {step.id: step.group for step in steps if step.group is not None}
    lanes.sort(key=lambda lane: (order.get(lane.name, len(order)), lane.start))
    # A run may have begun before its first step by the clock of another machine only; the scale must hold both.
    start = min([run.created_at, *(lane.start for lane in lanes)])
    return Timeline(
        lanes=tuple(_grouped(lanes, groups)),
        events=tuple(events),
        start=start,
        end=max(limit, start + timedelta(milliseconds=1)),
    )


def at_moment(lane: Lane, state: ReconstructedState) -> Lane:
    """The lane with the states that its steps had then; what was not there yet is `unreached`."""
    return _recoloured(lane, {step.step_name: step.status for step in state.steps})


def _recoloured(lane: Lane, statuses: Mapping[str, str]) -> Lane:
    if lane.children:
        children = tuple(_recoloured(child, statuses) for child in lane.children)
        return replace(lane, children=children, state=state_of_group(child.state for child in children))
    status = statuses.get(lane.name)
    is_wait = all(bar.kind == "waiting" for bar in lane.bars)
    return replace(lane, state=State.UNREACHED if status is None else state_of(status, is_wait=is_wait))


def select_lanes(lanes: Iterable[Lane], *, state: str = "", name: str = "") -> list[Lane]:
    """The lanes whose state is `state` and whose name or function holds `name`; of a fan-out, the items that do."""
    wanted = name.casefold()
    chosen = []
    for lane in lanes:
        if lane.children:
            children = tuple(child for child in lane.children if _is_wanted(child, state, wanted))
            if children:
                chosen.append(replace(lane, children=children))
        elif _is_wanted(lane, state, wanted):
            chosen.append(lane)
    return chosen


def _is_wanted(lane: Lane, state: str, name: str) -> bool:
    return (not state or lane.state == state) and (
        not name or name in lane.name.casefold() or name in lane.function.casefold()
    )


def _grouped(lanes: Iterable[Lane], groups: Mapping[str, str]) -> Iterable[Lane]:
    """Put the items of each fan-out, and what undoes them, under one lane where the first of them stood."""
    items: dict[str, list[Lane]] = defaultdict(list)
    group_of: dict[str, str] = {}
    for lane in lanes:
        group = groups.get(lane.step_id or "")
        if group is not None and lane.name.startswith(f"{group}["):
            group_of[lane.name] = group
    for lane in lanes:
        group = group_of.get(lane.name) or group_of.get(lane.compensates or "")
        if group is not None:
            items[group].append(lane)
    for lane in lanes:
        group = group_of.get(lane.name) or group_of.get(lane.compensates or "")
        if group is None:
            yield lane
        elif items.get(group):
            yield _group_lane(group, items.pop(group))


def _group_lane(name: str, children: list[Lane]) -> Lane:
    children.sort(key=lambda child: (_item_index(child.name, name), child.name))
    state = state_of_group(child.state for child in children)
    done = sum(child.state is State.SUCCEEDED for child in children)
    failed = sum(child.state is State.FAILED for child in children)
    note = gettext("%(done)d of %(all)d") % {"done": done, "all": len(children)}
    if failed:
        note += " · " + gettext("%(n)d failed") % {"n": failed}
    functions = {child.function for child in children if child.compensates is None}
    function = f"{functions.pop() if len(functions) == 1 else ''} {_TIMES} {len(children)}"
    return Lane(
        name=name,
        state=state,
        bars=tuple(_group_bars(name, children, state)),
        function=function.strip(),
        note=note,
        attempts=sum(child.attempts for child in children),
        children=tuple(children),
    )


def _group_bars(name: str, children: Sequence[Lane], state: State) -> Iterable[Bar]:
    bars = [bar for child in children for bar in child.bars]
    working = [bar for bar in bars if bar.kind in {"ran", "failed", "running"}]
    first = min(bars, key=lambda bar: bar.start)
    begun = min(working, key=lambda bar: bar.start, default=None)
    if begun is None or begun.start > first.start:
        until = max(bar.end for bar in bars) if begun is None else begun.start
        kind: BarKind = "waiting" if state is State.WAITING else "queued"
        yield Bar(
            kind=kind,
            start=first.start,
            end=until,
            attempt=1,
            name=name,
            first=first.first,
            last=None if begun is None else begun.first,
        )
    if begun is not None:
        kinds: dict[State, BarKind] = {State.FAILED: "failed", State.RUNNING: "running", State.QUEUED: "running"}
        end = max(bar.end for bar in bars)
        open_ended = state in ACTIVE
        yield Bar(
            kind=kinds.get(state, "waiting" if state is State.WAITING else "ran"),
            start=begun.start,
            end=end,
            attempt=1,
            name=name,
            first=begun.first,
            last=None if open_ended else max((bar.last for bar in bars if bar.last is not None), default=None),
        )


def _item_index(name: str, group: str) -> int:
    found = _ITEM.match(name, len(group))
    return int(found[1]) if found else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaneBuilder:
    run_id: str
    is_live: bool
    now: datetime
    limit: datetime
    seq: Mapping[EventKey, int]

    def lane(self, step: StepRow, attempts: Sequence[AttemptRow]) -> Lane:
        is_sleep = is_sleeping_step(step, attempts)
        retry_is_due = self.is_live and step.due_at is not None
        state = state_of(step.status, is_wait=is_sleep or step.is_gate, retry_is_due=retry_is_due)
        bars = tuple(self._bars(step, attempts, is_sleep, state)) or (self._placeholder(step),)
        return Lane(
            name=step.step_name,
            state=state,
            bars=bars,
            step_id=step.id,
            function=self._function(step, is_sleep),
            note=self._note(step, state, is_sleep, bars),
            attempts=max(step.attempt, len(attempts)),
            compensates=step.compensates,
            child_run_id=step.child_run_id,
            run_id=self.run_id,
        )

    def _bars(self, step: StepRow, attempts: Sequence[AttemptRow], is_sleep: bool, state: State) -> Iterable[Bar]:
        for number, attempt in enumerate(attempts, start=1):
            following = attempts[number] if number < len(attempts) else None
            pieces = self._wait(attempt) if is_sleep or step.is_gate else self._work(attempt)
            waits = following is not None or state is State.WAITING
            if attempt.status == StepStatus.FAILED and waits:
                pieces = (*pieces, self._delay(attempt, following))
            for kind, start, end, first, last in pieces:
                if end > start or kind in {"ran", "failed", "running"}:
                    next_begins = last is StepStatus.PENDING
                    yield Bar(
                        kind=kind,
                        start=start,
                        end=max(start, end),
                        attempt=number,
                        name=step.step_name,
                        is_sleep=is_sleep,
                        is_gate=step.is_gate,
                        first=self.seq.get((step.step_name, number, first.value)),
                        last=None if last is None else self.seq.get((step.step_name, number + next_begins, last.value)),
                    )

    def _wait(self, attempt: AttemptRow) -> tuple[_Piece, ...]:
        until = attempt.ended_at or self.limit
        return (("waiting", attempt.created_at, until, StepStatus.PENDING, _ending(attempt)),)

    def _work(self, attempt: AttemptRow) -> tuple[_Piece, ...]:
        until = attempt.ended_at or self.limit
        ending = _ending(attempt)
        begun = attempt.running_at
        if begun is None and ending is None:
            return (("queued", attempt.created_at, until, StepStatus.PENDING, None),)
        # What was settled without having been begun is a mark at its end.
        begun_at, beginning = (until, ending) if begun is None else (begun, StepStatus.RUNNING)
        kind: BarKind = "running" if ending is None else "ran" if ending is StepStatus.SUCCEEDED else "failed"
        return (
            ("queued", attempt.created_at, begun_at, StepStatus.PENDING, beginning),
            (kind, begun_at, until, beginning or StepStatus.RUNNING, ending),
        )

    def _delay(self, attempt: AttemptRow, following: AttemptRow | None) -> _Piece:
        since = attempt.ended_at or attempt.created_at
        until = self.limit if following is None else following.created_at
        return ("waiting", since, until, StepStatus.FAILED, StepStatus.PENDING)

    def _placeholder(self, step: StepRow) -> Bar:
        """Of a step whose attempts another program lost."""
        kind: BarKind = "failed" if step.status == StepStatus.FAILED else "queued"
        return Bar(kind=kind, start=step.created_at, end=step.updated_at, attempt=1, name=step.step_name)

    def _function(self, step: StepRow, is_sleep: bool) -> str:
        if step.is_gate:
            return gettext("approval") if step.is_approval else gettext("suspension")
        if not is_sleep:
            return step.rpc_name or ""
        planned = step.planned
        if planned is None:
            if step.due_at is None:
                return gettext("sleep")
            planned = step.due_at - step.created_at
        return gettext("sleep %(length)s") % {"length": round_duration(planned)}

    def _note(self, step: StepRow, state: State, is_sleep: bool, bars: Sequence[Bar]) -> str:
        last = bars[-1]
        if step.is_gate and (self.is_live or state not in ACTIVE):
            return self._gate_note(step, state, last)
        if state is State.WAITING and step.due_at is not None:
            return self._due_note(step.due_at, is_sleep)
        if not self.is_live and state in ACTIVE:
            return gettext("not finished")
        if state is State.QUEUED:
            return gettext("queued %(length)s") % {"length": duration(last.end - last.start)}
        if state is State.RUNNING:
            text = gettext("running %(length)s") % {"length": duration(last.end - last.start)}
            if step.attempt > 1:
                text += " · " + gettext("attempt %(n)d") % {"n": step.attempt}
            return text
        if is_sleep:
            return gettext("slept %(length)s") % {"length": round_duration(last.end - last.start)}
        if step.child_run_id:
            return gettext("child %(id)s") % {"id": short_id(step.child_run_id)}
        if step.attempt > 1:
            if state is State.FAILED:
                return gettext("failed after %(n)d attempts") % {"n": step.attempt}
            return ngettext("%(n)d attempt", "%(n)d attempts", step.attempt) % {"n": step.attempt}
        return ""

    def _gate_note(self, step: StepRow, state: State, bar: Bar) -> str:
        if state is State.WAITING:
            planned = step.planned
            if planned is not None and (left := step.created_at + planned - self.now) > timedelta():
                return gettext("waits for a person · %(left)s left") % {"left": duration(left)}
            return gettext("waits for a person")
        if state is State.FAILED:
            return gettext("not answered")
        return gettext("waited %(length)s") % {"length": round_duration(bar.end - bar.start)}

    def _due_note(self, due_at: datetime, is_sleep: bool) -> str:
        left = due_at - self.now
        if left <= timedelta():
            return gettext("due %(ago)s") % {"ago": ago(due_at, self.now)}
        text = gettext("%(left)s left") if is_sleep else gettext("next attempt in %(left)s")
        return text % {"left": duration(left)}


def is_sleeping_step(step: StepRow, attempts: Sequence[AttemptRow]) -> bool:
    """Whether a step is a delay: no function, and its attempt was due at a time instead of being carried out."""
    return step.rpc_name is None and any(
        attempt.scheduled_at is not None and attempt.running_at is None for attempt in attempts
    )


def _ending(attempt: AttemptRow) -> StepStatus | None:
    return None if attempt.ended_at is None else StepStatus(attempt.status)
