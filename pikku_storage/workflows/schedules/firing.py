"""The part of the relay that looks at schedules that are due.

Any number of relays may run at once. A fire is one write: the schedule goes on to its next fire, by compare-and-swap,
together with the run, whose id is made from the schedule's name and the time of the fire. So there is one run for each
fire however many relays see it, and whatever dies in between.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from pikku_storage.conf import settings
from pikku_storage.db.operations import Insert
from pikku_storage.exceptions import WorkflowInputError
from pikku_storage.workflows.definitions import BaseWorkflow
from pikku_storage.workflows.engine.relay import BATCH, Batch, safely
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.engine.starting import run_values
from pikku_storage.workflows.engine.versions import store_version
from pikku_storage.workflows.limits import not_after
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.querysets import LIVE, with_wire_type
from pikku_storage.workflows.records import Schedule
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules.fires import Fires
from pikku_storage.workflows.schedules.policies import CatchUp, Overlap
from pikku_storage.workflows.schedules.wire import key_of, wire_of

logger = logging.getLogger(__name__)

MOST_CAUGHT_UP = 100
"""How many missed fires are started at most; those before them are not."""
_ON_TIME = timedelta(minutes=1)


def relay_schedules(runtime: Runtime, *, limit: int = BATCH) -> Batch:
    """Start what is due by the clock, the longest due first."""
    now = runtime.now()
    due = runtime.schedules.filter(next_fire_at__lte=now, undeclared=False).order_by("next_fire_at")
    rows = [Schedule(**row) for row in due.values(*Schedule.COLUMNS)[:limit]]
    started: list[str] = []
    for schedule in rows:
        started += safely(f"schedule {schedule.name}", partial(_see_to, runtime, schedule, now)) or []
    return Batch(len(rows), started)


def run_of(runtime: Runtime, schedule: Schedule, fire_at: datetime, *, at: datetime) -> dict[str, Any]:
    """The columns of the run of a fire.

    It is made whether or not this process knows the workflow, and whether or not the input fits it: a run that cannot
    go on is suspended, says why, and waits for the code.
    """
    definition = registry.workflows.get(schedule.workflow)
    values = run_values(
        schedule.workflow,
        definition,
        schedule.input,
        owner_id=schedule.owner_id,
        wire=wire_of(schedule, fire_at),
        idempotency_key=key_of(schedule, fire_at),
        inline=False,
        controlled=_flow_control(schedule, definition, at),
        at=at,
    )
    return {**values, "due_at": not_after(runtime.patience_end(at), values["deadline_at"]), "redrives": 0}


def _flow_control(schedule: Schedule, definition: BaseWorkflow | None, at: datetime) -> dict[str, Any]:
    """What the input says about priority, keys and deadline; where it cannot be told, nothing."""
    if definition is not None:
        try:
            return definition.flow_control(schedule.input, at=at)
        except WorkflowInputError as error:
            logger.warning("A run of schedule %s has no priority, keys and deadline: %s", schedule.name, error)
    return dict.fromkeys(("priority", "deadline_at", "concurrency_key", "rate_limit_key"))


def keep_version(runtime: Runtime, schedule: Schedule) -> None:
    """Store the definition that the schedule's runs start with, if this process knows it."""
    definition = registry.workflows.get(schedule.workflow)
    if definition is not None:
        store_version(runtime, definition)


def _see_to(runtime: Runtime, schedule: Schedule, now: datetime) -> list[str]:
    """Start the runs of the fires up to now; answers with their ids."""
    fires = Fires(schedule.cron, schedule.timezone)
    future = fires.after(now)
    due = _to_start(schedule, fires, now)
    if due[:1] != [schedule.next_fire_at]:
        chosen = f"the first one started is that at {due[0]}" if due else "none of them is started"
        logger.warning("Schedule %s missed fires since %s; %s", schedule.name, schedule.next_fire_at, chosen)
    if not due:
        runtime.schedules.fire(schedule, next_fire_at=future, at=now)
    started = []
    for fire_at, next_fire_at in zip(due, [*due[1:], future], strict=True):
        run = None if _previous_is_live(runtime, schedule, fire_at) else run_of(runtime, schedule, fire_at, at=now)
        if not _go_on(runtime, schedule, fire_at, next_fire_at, run, now):
            # Another relay was faster, or the schedule is not what it was.
            break
        schedule = replace(schedule, next_fire_at=next_fire_at)
        if run is not None:
            schedule = replace(schedule, last_fire_at=fire_at, last_run_id=run["id"])
            started.append(run["id"])
            runtime.hint(runtime.message(run["id"], priority=run["priority"]))
    return started


def _go_on(
    runtime: Runtime,
    schedule: Schedule,
    fire_at: datetime,
    next_fire_at: datetime,
    run: Mapping[str, Any] | None,
    now: datetime,
) -> bool:
    if run is None:
        return runtime.schedules.fire(schedule, next_fire_at=next_fire_at, at=now)
    keep_version(runtime, schedule)
    insert = Insert(WorkflowRun, with_wire_type(run))
    return runtime.schedules.fire(schedule, next_fire_at=next_fire_at, at=now, fire_at=fire_at, run=insert)


def _to_start(schedule: Schedule, fires: Fires, now: datetime) -> list[datetime]:
    """Those of the due fires that the schedule's policy wants started, oldest first."""
    assert schedule.next_fire_at is not None  # noqa: S101 - only such rows are due
    count = MOST_CAUGHT_UP if schedule.catch_up == CatchUp.ALL else 1
    due = fires.last(count, start=schedule.next_fire_at, end=now)
    if schedule.catch_up == CatchUp.SKIP:
        # A relay that looks less often than once a minute misses nothing by that.
        patience = max(_ON_TIME, 2 * timedelta(milliseconds=settings.RELAY_INTERVAL))
        return [fire for fire in due if now - fire <= patience]
    return due


def _previous_is_live(runtime: Runtime, schedule: Schedule, fire_at: datetime) -> bool:
    if schedule.overlap == Overlap.ALLOW or schedule.last_run_id is None:
        return False
    is_live = runtime.runs.filter(pk=schedule.last_run_id, status__in=LIVE).exists()
    if is_live:
        logger.warning(
            "Schedule %s: the fire at %s is skipped, because run %s is live",
            schedule.name,
            fire_at,
            schedule.last_run_id,
        )
    return is_live
