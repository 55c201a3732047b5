"""Runs that another program had under way when they were brought over: they are held until somebody resumes them.

A held run is suspended, says why in its error, and nothing of it is due. Its steps are as they were. When it is
resumed, what they wait for is made due, so that the relay and the next pass see to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.engine.waits import waits_for_error
from pikku_storage.workflows.errors import (
    IMPORTED,
    RPC_NOT_FOUND,
    VERSION_CONFLICT,
    WORKFLOW_NOT_FOUND,
    coded_error,
)
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.statuses import RunStatus, StepStatus

_LOOKED_AFTER = {RPC_NOT_FOUND, WORKFLOW_NOT_FOUND, VERSION_CONFLICT}
"""Suspended with one of these, a run of ours is looked at again by itself."""
PAGE = 500


def hold(values: dict[str, Any]) -> None:
    """Hold the run that is about to be written with these values, if it would go on by itself."""
    error = values["error"] if isinstance(values["error"], dict) else {}
    is_running = values["status"] == RunStatus.RUNNING
    if is_running or (values["status"] == RunStatus.SUSPENDED and error.get("code") in _LOOKED_AFTER):
        why = "running" if is_running else f"suspended ({error.get('message')})"
        message = f"The run was brought over while it was {why}. Nothing of it is carried out until it is resumed."
        held = coded_error(IMPORTED, message)
        since = values["updated_at"] or values["created_at"]
        waits_for = None if since is None else waits_for_error(held, since)
        values.update(status=RunStatus.SUSPENDED.value, error=held, waits_for=waits_for)


def is_held(run: Run) -> bool:
    """Whether the run was brought over and has not been resumed since."""
    return run.status == RunStatus.SUSPENDED and (run.error or {}).get("code") == IMPORTED


def take_up(runtime: Runtime, run_id: str) -> None:
    """Somebody resumes a held run: what its steps wait for is due.

    An attempt that was under way is lost, a step that was to be tried again is tried again, and a sleep ends when it
    would have.
    """
    now = runtime.now()
    rows = runtime.steps.filter(run_id=run_id, due_at__isnull=True).exclude(status=StepStatus.SUCCEEDED)
    for row in list(rows.values(*StepState.COLUMNS)):
        step = StepState.from_row(row)
        due_at = _due(step, now)
        if due_at is not None:
            runtime.steps.postpone(step.step_id, seen=None, due_at=due_at, redrives=0)


def _due(step: StepState, now: datetime) -> datetime | None:
    if step.is_sleep:
        duration = step.data["duration"]
        is_number = isinstance(duration, int | float) and not isinstance(duration, bool)
        return step.created_at + timedelta(milliseconds=duration) if is_number else now
    if step.is_gate or (step.status == StepStatus.FAILED and not step.has_attempts_left):
        return None
    return now


def held_runs(using: str | None) -> Iterator[str]:
    """The ids of all held runs, a page at a time."""
    runs = Runtime(using).runs.filter(status=RunStatus.SUSPENDED).order_by("pk")
    last = ""
    while page := list(runs.filter(pk__gt=last).values_list("pk", "error")[:PAGE]):
        last = page[-1][0]
        yield from (run_id for run_id, error in page if (error or {}).get("code") == IMPORTED)
