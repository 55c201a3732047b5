"""Rows for the schedules that the code declares.

Processes of different versions may run side by side. Each one brings the rows into step with its own code in its first
round of the relay, and again every few minutes, so that the last one to stay has its way.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.models import WorkflowSchedule
from pikku_storage.workflows.querysets.schedules import BY_CODE
from pikku_storage.workflows.records import Schedule
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules.declarations import Declaration
from pikku_storage.workflows.schedules.fires import Fires

logger = logging.getLogger(__name__)

AGAIN_AFTER = 300.0
"""Seconds between two looks at the rows of the declared schedules."""

_last_looks: dict[str, float] = {}


def keep_in_step(runtime: Runtime) -> None:
    """`synchronise`, if this process has not done it for a while."""
    now = time.monotonic()
    if now - _last_looks.get(runtime.using, float("-inf")) < AGAIN_AFTER:
        return
    # What is cut off between a fire and its run (on MongoDB) is so rare that it need not be looked for in each round.
    runtime.engine.recover(WorkflowSchedule)
    synchronise(runtime)
    # What is rolled back, as in a test, is looked at again.
    transaction.on_commit(partial(_last_looks.__setitem__, runtime.using, now), using=runtime.using)


def synchronise(runtime: Runtime) -> int:
    """Bring the rows into step with the code; answers how many were changed. One read if none need be.

    Every write is guarded by what was read: of several processes one does it, and what an operator has paused stays
    paused.
    """
    rows = runtime.schedules.filter(**BY_CODE).values(*Schedule.COLUMNS)
    stored = {row["name"]: Schedule(**row) for row in rows}
    declared = {
        name: definition.schedule
        for name, definition in list(registry.workflows.items())
        if definition.schedule is not None
    }
    at = runtime.now()
    changed = sum(_declare(runtime, name, each, stored.get(name), at) for name, each in declared.items())
    for name, schedule in stored.items():
        if name not in declared and not schedule.undeclared and runtime.schedules.undeclare(schedule.id, at=at):
            logger.warning("Schedule %s is not in the code any more and does not fire", name)
            changed += 1
    return changed


def _declare(runtime: Runtime, name: str, declaration: Declaration, seen: Schedule | None, at: datetime) -> bool:
    said = {
        "workflow": name,
        "cron": declaration.cron,
        "timezone": declaration.zone,
        "catch_up": declaration.catch_up.value,
        "overlap": declaration.overlap.value,
        "undeclared": False,
    }
    if seen is None:
        return _add(runtime, name, said, at)
    changes = {column: value for column, value in said.items() if getattr(seen, column) != value}
    if not changes:
        return False
    if seen.enabled and {"cron", "timezone"} & changes.keys():
        changes["next_fire_at"] = Fires(declaration.cron, declaration.zone).after(at)
    return runtime.schedules.declare_again(seen, {**changes, "updated_at": at})


def _add(runtime: Runtime, name: str, said: dict[str, Any], at: datetime) -> bool:
    values = {
        **said,
        **BY_CODE,
        "id": WorkflowSchedule.id_of(name),
        "name": name,
        "input": {},
        "enabled": True,
        "next_fire_at": Fires(said["cron"], said["timezone"]).after(at),
        "created_at": at,
        "updated_at": at,
    }
    if runtime.schedules.add(values):
        return True
    if not runtime.schedules.filter(pk=values["id"], **BY_CODE).exists():
        logger.error(
            "The schedule that the code declares for workflow %s is not in force, because an operator has made one of "
            "that name. Delete that, or make it under another name",
            name,
        )
    return False
