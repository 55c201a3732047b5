"""Celery tasks of webhooks. Messages carry ids only, and a claim in the database makes a second one harmless."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

from pikku_storage.webhooks.service import WebhookService

_OPTIONS: dict[str, Any] = {
    "acks_late": True,
    "reject_on_worker_lost": True,
    "ignore_result": True,
    "serializer": "json",
    # Retries are rows with due times, not messages.
    "max_retries": 0,
    "bind": True,
}


@shared_task(name="pikku.webhooks.deliver", **_OPTIONS)
def deliver(self: Task[Any, Any], delivery_id: str, using: str | None = None) -> None:
    """Make one attempt, if it is due."""
    WebhookService(using, worker=self.request.hostname).deliver(delivery_id)


@shared_task(name="pikku.webhooks.relay", **_OPTIONS)
def relay(self: Task[Any, Any], using: str | None = None) -> None:
    """Look for what is due, and send its messages again."""
    WebhookService(using, worker=self.request.hostname).relay()
