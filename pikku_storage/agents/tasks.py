"""Celery tasks of agents."""

from __future__ import annotations

from celery import shared_task

from pikku_storage.agents.scoring.service import ScoringService
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.exceptions import AgentError


@shared_task(name="pikku.agents.upkeep", ignore_result=True)
def upkeep(using: str | None = None) -> None:
    """Mark approvals whose time is over, and finish what a crash cut short. Idempotent; once a minute is enough."""
    service = AgentStorageService(using)
    service.recover()
    service.expire_approvals()


@shared_task(
    name="pikku.agents.score_run",
    acks_late=True,
    reject_on_worker_lost=True,
    ignore_result=True,
    serializer="json",
    # A model that does not answer at the moment may do so later. What is declared wrong stays wrong.
    autoretry_for=(Exception,),
    dont_autoretry_for=(AgentError,),
    max_retries=3,
    retry_backoff=10,
)
def score_run(run_id: str, scorer_name: str, using: str | None = None) -> None:
    """Have a scorer grade a run. A second delivery adds no second grade; one that cannot be made fails the task."""
    ScoringService(using).grade_live(run_id, scorer_name)
