"""Column values of steps and their attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db.models import Model

from pikku_storage.db.operations import InsertMany, OrNull
from pikku_storage.ids import child_run_id
from pikku_storage.workflows.querysets.base import Claim, NewStep
from pikku_storage.workflows.statuses import StepStatus

if TYPE_CHECKING:
    from pikku_storage.workflows.models import WorkflowStepHistory

UNSETTLED_ATTEMPT = [StepStatus.PENDING.value, StepStatus.RUNNING.value, StepStatus.SCHEDULED.value]
"""Statuses of the one attempt of a step that is still open, if any."""


@cache
def history_model() -> type[WorkflowStepHistory]:
    """The model of attempts; models and querysets would import each other otherwise."""
    model: type[WorkflowStepHistory] = apps.get_model("pikku_workflows", "WorkflowStepHistory")
    return model


def saw(attempt: int) -> Any:
    """The condition that a step still is in the attempt its reader saw."""
    # A step that another program wrote may lack the number; that is its first attempt.
    return OrNull(1) if attempt == 1 else attempt


def is_last(attempt: int, max_attempts: int | None) -> bool:
    """Whether no attempt may follow this one, so that its beginning must be durable.

    If the database server crashes and loses the beginning of an attempt, its outcome finds nothing to end, and the
    attempt begins once more: that is the one which a crash costs anyway. The last one must not begin twice.
    """
    return attempt == max_attempts


def claimed(claim: Claim, *, attempt: int) -> dict[str, Any]:
    """What makes a step running under `claim`."""
    return {
        "status": StepStatus.RUNNING.value,
        "current_attempt": attempt,
        "claim_token": claim.token,
        "claimed_by": claim.worker,
        "due_at": claim.until,
        "redrives": None,
    }


def awaiting(step_id: str, *, attempt: int, due_at: datetime) -> dict[str, Any]:
    """What makes a step running in that a run of its own does its attempt; `due_at` is when somebody asks after it."""
    return {
        "status": StepStatus.RUNNING.value,
        "current_attempt": attempt,
        "child_run_id": child_run_id(step_id, attempt),
        "claim_token": None,
        "claimed_by": None,
        "due_at": due_at,
        "redrives": None,
    }


def step_row(step: NewStep, state: Mapping[str, Any], at: datetime) -> dict[str, Any]:
    """A new step in its first attempt; `state` has its status and what goes with it."""
    return {
        "id": step.id,
        "run_id": step.run_id,
        "step_name": step.step_name,
        "rpc_name": step.rpc_name,
        "data": step.data,
        "retries": step.retries,
        "retry_delay": step.retry_delay,
        "from_step_name": step.from_step_name,
        "max_attempts": step.max_attempts,
        "group": step.group,
        "queue": step.queue,
        "timeout_ms": step.timeout_ms,
        "current_attempt": 1,
        "created_at": at,
        "updated_at": at,
        **state,
    }


def attempt_row(step_id: str, attempt: int, state: Mapping[str, Any], at: datetime) -> dict[str, Any]:
    """A new attempt of a step in that state."""
    status = state.get("status", StepStatus.PENDING.value)
    return {
        "id": history_model().id_of(step_id, attempt),
        "step_id": step_id,
        "attempt": attempt,
        "status": status,
        "created_at": at,
        "running_at": at if status == StepStatus.RUNNING else None,
        "scheduled_at": at if status == StepStatus.SCHEDULED else None,
        "worker": state.get("claimed_by"),
    }


def insert_of(model: type[Model], rows: Sequence[Mapping[str, Any]]) -> InsertMany:
    """The operation that inserts these rows, which have the same columns. What is one and the same value in all of them
    is said once."""
    # Not what is equal: `1` and `True` are, and differ in JSON.
    common = {
        name: value for name, value in rows[0].items() if name != "id" and all(row[name] is value for row in rows)
    }
    return InsertMany(
        model, common, [{name: value for name, value in row.items() if name not in common} for row in rows]
    )
