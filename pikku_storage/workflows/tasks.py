"""Celery tasks. Messages carry ids only; what to do is read from the database, and a claim there makes a second
delivery harmless."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

from pikku_storage.messages import CLAIMED
from pikku_storage.workflows.dispatch import waiting_is_no_error
from pikku_storage.workflows.service import WorkflowService


def _service(task: Task[Any, Any], using: str | None) -> WorkflowService:
    return WorkflowService(using=using, worker=task.request.hostname)


@shared_task(name="pikku.orchestrate", **CLAIMED)
def orchestrate(self: Task[Any, Any], run_id: str, using: str | None = None) -> None:
    """Carry a run on as far as it goes."""
    with waiting_is_no_error(run_id):
        _service(self, using).orchestrate_workflow(run_id)


@shared_task(name="pikku.execute_step", **CLAIMED)
def execute_step(self: Task[Any, Any], run_id: str, step_name: str, using: str | None = None) -> None:
    """Carry out a queued step, and the run after it if that was what it waited for."""
    with waiting_is_no_error(run_id):
        _service(self, using).execute_workflow_step(run_id, step_name)


@shared_task(name="pikku.relay", **CLAIMED)
def relay(self: Task[Any, Any], using: str | None = None) -> None:
    """One round of looking for what is due."""
    _service(self, using).relay()
