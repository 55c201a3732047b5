"""Celery tasks of webhooks. Messages carry ids only, and a claim in the database makes a second one harmless."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

from pikku_storage.messages import CLAIMED
from pikku_storage.webhooks.service import WebhookService


@shared_task(name="pikku.webhooks.deliver", **CLAIMED)
def deliver(self: Task[Any, Any], delivery_id: str, using: str | None = None) -> None:
    """Make one attempt, if it is due."""
    WebhookService(using, worker=self.request.hostname).deliver(delivery_id)


@shared_task(name="pikku.webhooks.relay", **CLAIMED)
def relay(self: Task[Any, Any], using: str | None = None) -> None:
    """Look for what is due, and send its messages again."""
    WebhookService(using, worker=self.request.hostname).relay()
