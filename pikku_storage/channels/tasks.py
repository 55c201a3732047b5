"""Celery tasks of channels."""

from __future__ import annotations

from celery import shared_task

from pikku_storage.channels.service import ChannelStore, EventHubStore


@shared_task(name="pikku.channels.sweep", ignore_result=True)
def sweep(using: str | None = None) -> None:
    """Remove the channels whose lease ran out, and old events. Idempotent; once a minute is enough."""
    ChannelStore(using).sweep()
    EventHubStore(using).prune_events()
