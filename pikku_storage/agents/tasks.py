"""Celery tasks of agents."""

from __future__ import annotations

from celery import shared_task

from pikku_storage.agents.service import AgentStorageService


@shared_task(name="pikku.agents.upkeep", ignore_result=True)
def upkeep(using: str | None = None) -> None:
    """Mark approvals whose time is over, and finish what a crash cut short. Idempotent; once a minute is enough."""
    service = AgentStorageService(using)
    service.recover()
    service.expire_approvals()
