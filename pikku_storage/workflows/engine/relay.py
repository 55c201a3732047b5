"""The relay: finds what is due and sees to it, so that no lost message, worker or broker costs more than time
(engine.md §1).

Any number of relays may run at once: to act on a row a relay first moves its due time on by compare-and-swap, and one
wins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError

from pikku_storage.workflows.engine import children
from pikku_storage.workflows.engine.attempts import settle_attempt
from pikku_storage.workflows.engine.backoff import delay_of
from pikku_storage.workflows.engine.calls import Outcome
from pikku_storage.workflows.engine.deadlines import end_overdue, is_over
from pikku_storage.workflows.engine.open_gates import see_to_gate
from pikku_storage.workflows.engine.queued import follow
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.errors import WORKER_LOST, coded_error
from pikku_storage.workflows.limits import DEFAULT_PRIORITY, not_after
from pikku_storage.workflows.records import StepState
from pikku_storage.workflows.statuses import TERMINAL_RUN_STATUSES, RunStatus, StepStatus

logger = logging.getLogger(__name__)

T = TypeVar("T")

BATCH = 100
_RUN_COLUMNS = (
    "id",
    "status",
    "due_at",
    "redrives",
    "pass_token",
    "priority",
    "deadline_at",
    "cancel_requested_at",
)


@dataclass(frozen=True, slots=True)
class Batch:
    """`seen` rows were due; `driven` are the ids of the runs that were driven on for them."""

    seen: int
    driven: list[str]


def relay_steps(runtime: Runtime, *, limit: int = BATCH) -> Batch:
    """See to the steps that are due, oldest first; within a batch, the highest priority first."""
    now = runtime.now()
    columns = (*StepState.COLUMNS, "run__status", "run__priority")
    rows = list(runtime.steps.filter(due_at__lte=now).order_by("due_at").values(*columns)[:limit])
    woken: dict[str, None] = {}
    for row in sorted(rows, key=lambda row: _urgency(row["run__priority"])):
        run = {name: row.pop(f"run__{name}") for name in ("status", "priority")}
        step = StepState.from_row(row)
        if safely(f"run {step.run_id}", partial(_see_to_step, runtime, step, run, now, woken)):
            woken[step.run_id] = None
    return Batch(len(rows), list(woken))


def relay_answers(runtime: Runtime, *, limit: int = BATCH) -> Batch:
    """See to the answers that no pass has judged, oldest first."""
    now = runtime.now()
    rows = list(
        runtime.answers.filter(due_at__lte=now)
        .order_by("due_at")
        .values("id", "run_id", "step_name", "due_at", "redrives", "run__status", "run__priority")[:limit]
    )
    driven = [row["run_id"] for row in rows if safely(row["run_id"], partial(_see_to_answer, runtime, row, now))]
    return Batch(len(rows), driven)


def relay_runs(runtime: Runtime, *, limit: int = BATCH) -> Batch:
    """See to the runs that are due, likewise."""
    now = runtime.now()
    rows = list(runtime.runs.filter(due_at__lte=now).order_by("due_at").values(*_RUN_COLUMNS)[:limit])
    rows.sort(key=lambda row: _urgency(row["priority"]))
    driven = [row["id"] for row in rows if safely(f"run {row['id']}", partial(_see_to_run, runtime, dict(row), now))]
    return Batch(len(rows), driven)


def _urgency(priority: int | None) -> int:
    return -(DEFAULT_PRIORITY if priority is None else priority)


def safely(row: str, action: Callable[[], T]) -> T | None:
    """One bad row must not keep the others from being seen to; `None` if it is one."""
    try:
        return action()
    except DatabaseError:
        raise
    except Exception:
        logger.exception("The relay could not drive %s on", row)
        return None


def _see_to_step(runtime: Runtime, step: StepState, run: dict[str, Any], now: datetime, woken: dict[str, None]) -> bool:
    has_ended, priority = run["status"] in TERMINAL_RUN_STATUSES, run["priority"]
    if step.awaits_child:
        return children.look_after(runtime, step, now, has_ended=has_ended)
    if step.is_gate:
        see_to_gate(runtime, step, is_over=has_ended, now=now)
        return False
    if step.status == StepStatus.RUNNING:
        return _reclaim(runtime, step, has_ended=has_ended, priority=priority)
    if has_ended:
        runtime.steps.settle_idle(step.run_id)
        return False
    if step.is_sleep:
        at = runtime.now()
        if runtime.steps.succeed(step.step_id, None, at=at, wake=runtime.runs.wake_up(step.run_id, at)):
            runtime.hint(runtime.message(step.run_id, priority=priority))
            return True
        return False
    redrives = (step.redrives or 0) + 1
    if not runtime.steps.postpone(
        step.step_id, seen=step.due_at, due_at=now + delay_of(redrives - 1), redrives=redrives
    ):
        return False
    if step.queue is not None:
        runtime.hint(runtime.message(step.run_id, step.step_name, queue=step.queue, priority=priority))
    elif step.run_id not in woken and runtime.runs.wake(step.run_id, at=now):
        # The step is carried out inside its run. The wake-up is seen to here, so the run itself is not due now.
        _postpone_run(runtime, step.run_id, seen=now, due_at=now + delay_of(0), redrives=0)
        runtime.hint(runtime.message(step.run_id, priority=priority))
    return True


def _reclaim(runtime: Runtime, step: StepState, *, has_ended: bool, priority: int | None) -> bool:
    """The lease ran out or was given up: the attempt ends as lost, and the retry policy says what is next."""
    was_told = step.claimed_by is not None and step.claim_token is None
    reason = "was told to stop" if was_told else "stopped renewing its lease"
    error = coded_error(WORKER_LOST, f"The worker {step.claimed_by or '(unknown)'} {reason}; the attempt is lost")
    outcome = Outcome(error=error, is_final=has_ended)
    after = settle_attempt(
        runtime,
        step,
        outcome,
        token=step.claim_token,
        wakes=not has_ended and step.group is None,
        seen_due=step.due_at,
    )
    if after is None or has_ended:
        return False
    logger.warning(
        "Attempt %s of step %s of run %s: %s", step.attempt_count, step.step_name, step.run_id, error["message"]
    )
    if step.queue is None and not after.is_settled:
        # Its next attempt belongs to a pass, which may be as dead as the attempt; the step's own due time brings the
        # next one.
        delay = None if after.due_at is None else after.due_at - runtime.now()
        runtime.hint(runtime.message(step.run_id, delay=delay, priority=priority))
        return True
    follow(runtime, after, priority=priority, drives=False)
    return True


def _see_to_answer(runtime: Runtime, row: Mapping[str, Any], now: datetime) -> bool:
    """Whoever entered it could not wake the run. An answer that is early waits for its approval."""
    has_ended = row["run__status"] in TERMINAL_RUN_STATUSES
    redrives = (row["redrives"] or 0) + 1
    due_at = None if has_ended else now + delay_of(redrives - 1)
    if not runtime.answers.postpone(row["id"], seen=row["due_at"], due_at=due_at, redrives=redrives) or has_ended:
        return False
    waiting = runtime.steps.filter(run_id=row["run_id"], step_name=row["step_name"], status=StepStatus.RUNNING)
    if not waiting.exists() or not runtime.runs.wake(row["run_id"], at=now):
        return False
    # The wake-up is seen to here, so the run itself is not due now.
    _postpone_run(runtime, row["run_id"], seen=now, due_at=now + delay_of(0), redrives=0)
    runtime.hint(runtime.message(row["run_id"], priority=row["run__priority"]))
    return True


def _see_to_run(runtime: Runtime, row: dict[str, Any], now: datetime) -> bool:
    run_id, deadline_at = row["id"], row["deadline_at"] if row["cancel_requested_at"] is None else None
    if is_over(deadline_at, now):
        end_overdue(runtime, run_id)
        return False
    is_check = row["redrives"] is None and row["pass_token"] is None and row["status"] == RunStatus.RUNNING
    if is_check and _is_looked_after(runtime, run_id, now):
        due_at = not_after(runtime.stalled_end(now), deadline_at)
        runtime.runs.postpone(run_id, seen=row["due_at"], due_at=due_at, redrives=None)
        return False
    redrives = row["redrives"] or 0
    due_at = not_after(now + delay_of(redrives), deadline_at)
    if not _postpone_run(runtime, run_id, seen=row["due_at"], due_at=due_at, redrives=redrives):
        return False
    runtime.hint(runtime.message(run_id, priority=row["priority"]))
    return True


def _is_looked_after(runtime: Runtime, run_id: str, now: datetime) -> bool:
    """Whether a step of the run is under way, and has a due time of its own that will bring it up."""
    under_way = [StepStatus.SCHEDULED, StepStatus.RUNNING]
    return runtime.steps.filter(run_id=run_id, status__in=under_way, due_at__gt=now).exists()


def _postpone_run(runtime: Runtime, run_id: str, *, seen: datetime, due_at: datetime, redrives: int) -> bool:
    return runtime.runs.postpone(run_id, seen=seen, due_at=due_at, redrives=redrives + 1)
