"""A run's history as a sequence of events, and its state at any of them (contract console.md §5). Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import TypeAlias

from pikku_storage.json import Json
from pikku_storage.workflows.records import HistoryEntry
from pikku_storage.workflows.statuses import StepStatus

_LIFECYCLE = {
    StepStatus.PENDING.value: 0,
    StepStatus.SCHEDULED.value: 1,
    StepStatus.RUNNING.value: 2,
    StepStatus.SUCCEEDED.value: 3,
    StepStatus.FAILED.value: 3,
}
_ACTIVE = {StepStatus.PENDING.value, StepStatus.SCHEDULED.value, StepStatus.RUNNING.value}


_Draft: TypeAlias = tuple[datetime, int, StepStatus, HistoryEntry]
"""An event that has no number yet: its time, its rank within that time, what it is, and the attempt it is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEvent:
    """Something that happened to one attempt; `type` is the status it took."""

    seq: int
    at: datetime
    type: str
    step_name: str
    attempt_count: int
    from_step_name: str | None = None
    child_run_id: str | None = None
    """Of `running`, the run that does this attempt, if one does."""
    result: Json = None
    error: dict[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconstructedStep:
    """A step as it was at some point."""

    step_name: str
    status: str
    attempt_count: int
    from_step_name: str | None = None
    result: Json = None
    error: dict[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconstructedState:
    """A run as it was after event `seq` (-1 and no time: before everything).

    `path` has the steps in the order they were first seen, `results` those of steps that have succeeded by then, and
    `phase` is `pending`, `running`, `failed` or `idle`.
    """

    seq: int
    at: datetime | None
    steps: tuple[ReconstructedStep, ...]
    results: dict[str, Json]
    path: tuple[str, ...]
    phase: str


def build_run_timeline(history: Iterable[HistoryEntry]) -> list[TimelineEvent]:
    """The events of these attempts (in the order they were made), by time, then lifecycle, then row, numbered from 0.

    An attempt that began in the millisecond in which the one before it ended comes after that end.
    """
    drafts: list[_Draft] = []
    ended: dict[str, tuple[datetime, int]] = {}
    for entry in history:
        before = ended.get(entry.step_name)
        rank = before[1] + len(_LIFECYCLE) if before is not None and before[0] == entry.created_at else 0
        events = list(_drafts_of(entry, rank))
        drafts += events
        ended[entry.step_name] = (events[-1][0], rank)
    drafts.sort(key=itemgetter(0, 1))
    return [
        TimelineEvent(
            seq=seq,
            at=at,
            type=kind.value,
            step_name=entry.step_name,
            attempt_count=entry.attempt_count,
            from_step_name=entry.from_step_name if kind is StepStatus.PENDING else None,
            child_run_id=entry.child_run_id if kind is StepStatus.RUNNING else None,
            result=entry.result if kind is StepStatus.SUCCEEDED else None,
            error=entry.error if kind is StepStatus.FAILED else None,
        )
        for seq, (at, _rank, kind, entry) in enumerate(drafts)
    ]


def _drafts_of(entry: HistoryEntry, rank: int) -> Iterator[_Draft]:
    def draft(kind: StepStatus, at: datetime) -> _Draft:
        return at, rank + _LIFECYCLE[kind.value], kind, entry

    yield draft(StepStatus.PENDING, entry.created_at)
    if entry.scheduled_at is not None:
        yield draft(StepStatus.SCHEDULED, entry.scheduled_at)
    if entry.running_at is not None:
        yield draft(StepStatus.RUNNING, entry.running_at)
    # The end follows the status, not the stamps: a row written by another program may lack them.
    if entry.status == StepStatus.SUCCEEDED:
        yield draft(StepStatus.SUCCEEDED, entry.succeeded_at or entry.updated_at)
    elif entry.status == StepStatus.FAILED:
        yield draft(StepStatus.FAILED, entry.failed_at or entry.updated_at)


def reconstruct_state_at(timeline: Sequence[TimelineEvent], at: int | datetime | None = None) -> ReconstructedState:
    """The state after the event numbered `at`, or at that instant (both inclusive); the final state without `at`."""
    steps: dict[str, ReconstructedStep] = {}
    last: TimelineEvent | None = None
    for event in timeline:
        if at is not None and (event.at > at if isinstance(at, datetime) else event.seq > at):
            break
        steps[event.step_name] = _after(steps.get(event.step_name), event)
        last = event
    return ReconstructedState(
        seq=-1 if last is None else last.seq,
        at=None if last is None else last.at,
        steps=tuple(steps.values()),
        results={name: step.result for name, step in steps.items() if step.status == StepStatus.SUCCEEDED},
        path=tuple(steps),
        phase=_phase(steps.values()),
    )


def _after(step: ReconstructedStep | None, event: TimelineEvent) -> ReconstructedStep:
    if step is None:
        step = ReconstructedStep(step_name=event.step_name, status=event.type, attempt_count=event.attempt_count)
    step = replace(step, status=event.type, attempt_count=event.attempt_count)
    if event.type == StepStatus.PENDING:
        return replace(step, result=None, error=None, from_step_name=event.from_step_name or step.from_step_name)
    if event.type == StepStatus.SUCCEEDED:
        return replace(step, result=event.result, error=None)
    if event.type == StepStatus.FAILED:
        return replace(step, error=event.error)
    return step


def _phase(steps: Iterable[ReconstructedStep]) -> str:
    statuses = {step.status for step in steps}
    if not statuses:
        return "pending"
    if statuses & _ACTIVE:
        return "running"
    return "failed" if StepStatus.FAILED in statuses else "idle"
