"""Celery tasks of deployments."""

from __future__ import annotations

from celery import shared_task

from pikku_storage.deployments.service import DeploymentService


@shared_task(name="pikku.deployments.upkeep", ignore_result=True)
def upkeep(using: str | None = None) -> None:
    """Forget the deployments that have not been up for long. Idempotent; once in a few minutes is enough."""
    DeploymentService(using).sweep()
