"""Celery tasks. Messages carry ids only; what to do is read from the database, and a claim there makes a second
delivery harmless."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

from pikku_storage.workflows.dispatch import waiting_is_no_error
from pikku_storage.workflows.service import WorkflowService

_OPTIONS: dict[str, Any] = {
    # A worker that dies gives its message back; the claim decides whether there is still something to do.
    "acks_late": True,
    "reject_on_worker_lost": True,
    "ignore_result": True,
    "serializer": "json",
    # Retries are rows with due times, not messages.
    "max_retries": 0,
    "bind": True,
}


def _service(task: Task[Any, Any], using: str | None) -> WorkflowService:
    return WorkflowService(using=using, worker=task.request.hostname)


@shared_task(name="pikku.orchestrate", **_OPTIONS)
def orchestrate(self: Task[Any, Any], run_id: str, using: str | None = None) -> None:
    """Carry a run on as far as it goes."""
    with waiting_is_no_error(run_id):
        _service(self, using).orchestrate_workflow(run_id)


@shared_task(name="pikku.execute_step", **_OPTIONS)
def execute_step(self: Task[Any, Any], run_id: str, step_name: str, using: str | None = None) -> None:
    """Carry out a queued step, and the run after it if that was what it waited for."""
    with waiting_is_no_error(run_id):
        _service(self, using).execute_workflow_step(run_id, step_name)


@shared_task(name="pikku.relay", **_OPTIONS)
def relay(self: Task[Any, Any], using: str | None = None) -> None:
    """One round of looking for what is due."""
    _service(self, using).relay()
