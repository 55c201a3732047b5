"""Starting the virtual users that are due (contract services.md §17)."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pikku_storage.db import engine
from pikku_storage.virtual_users.records import VirtualUserSchedule
from pikku_storage.virtual_users.service import VirtualUserRunStore, VirtualUserScheduleStore
from pikku_storage.virtual_users.statuses import RunStatus

logger = logging.getLogger(__name__)

STALE_AFTER = timedelta(hours=2)
"""A run that is running for longer is given up."""
MILLISECOND = timedelta(milliseconds=1)


class Outcome(StrEnum):
    """What became of a persona that was due."""

    DISPATCHED = "dispatched"
    IN_FLIGHT = "in-flight"
    """It is still running; it stays due."""
    LOST = "lost"
    """Another tick was first."""
    FAILED = "failed"
    """The dispatch failed; the persona waits for its next time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """A persona that was due."""

    persona: str
    outcome: Outcome
    run_id: str | None = None


def tick(dispatch: Callable[[VirtualUserSchedule], str | None], *, using: str | None = None) -> list[Ticked]:
    """Dispatch each persona that is due, once, however many ticks there are.

    `dispatch` starts the run, or sends a message that does, and answers with the run's id if it knows it. The next time
    is written before, so that a persona whose dispatch fails is not tried again at once. One that fails stops no other.
    """
    schedules, runs = VirtualUserScheduleStore(using), VirtualUserRunStore(using)
    runs.recover()
    now = engine(schedules.using).now()
    return [_tick(schedule, now, schedules, runs, dispatch) for schedule in schedules.due(now)]


def next_run_at(schedule: VirtualUserSchedule, now: datetime) -> datetime:
    """A random time within the interval from now, whichever of its bounds is the larger one; never the current one."""
    bounds = sorted((schedule.min_interval_ms, schedule.max_interval_ms))
    later = now + random.randint(*bounds) * MILLISECOND  # noqa: S311 - no secret
    return max(later, schedule.next_run_at + MILLISECOND)


def _tick(
    schedule: VirtualUserSchedule,
    now: datetime,
    schedules: VirtualUserScheduleStore,
    runs: VirtualUserRunStore,
    dispatch: Callable[[VirtualUserSchedule], str | None],
) -> Ticked:
    persona = schedule.persona
    for run in runs.list(persona=persona, status=RunStatus.RUNNING):
        if now - run.created_at < STALE_AFTER:
            return Ticked(persona=persona, outcome=Outcome.IN_FLIGHT, run_id=run.run_id)
        runs.fail(run.run_id, f"Reaped: it was running for more than {STALE_AFTER}")
    later = next_run_at(schedule, now)
    if not schedules.claim(persona, schedule.next_run_at, later):
        return Ticked(persona=persona, outcome=Outcome.LOST)
    try:
        run_id = dispatch(schedule)
    except Exception:
        logger.exception("The virtual user %s could not be dispatched; its next time is %s", persona, later)
        return Ticked(persona=persona, outcome=Outcome.FAILED)
    if run_id is not None:
        schedules.claim(persona, later, later, run_id, at=now)
    return Ticked(persona=persona, outcome=Outcome.DISPATCHED, run_id=run_id)
