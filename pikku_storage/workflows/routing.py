"""Set-up of the project's Celery app."""

from __future__ import annotations

from celery import Celery

from pikku_storage.conf import settings

TASKS = ("pikku.orchestrate", "pikku.execute_step", "pikku.relay")
RELAY_ENTRY = "pikku-relay"
SENDING_LIMITS = {"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}
"""Without them a broker that is down blocks the sender for ever."""


def configure(app: Celery) -> None:
    """Make `app` carry workflows: their queue, the relay's beat entry, JSON only. What the project has set already is
    kept.

    Call it after `app.config_from_object(…)`:

        app = Celery("shop")
        app.config_from_object("django.conf:settings", namespace="CELERY")
        configure(app)
    """
    app.add_defaults(_defaults)
    app.autodiscover_tasks(["pikku_storage.workflows"])
    app.on_after_configure.connect(_complete)


def _defaults() -> dict[str, object]:
    """Read when the app is first used, after Django's settings are there."""
    return {
        "accept_content": ["json"],
        "task_serializer": "json",
        "task_routes": {name: {"queue": settings.QUEUE} for name in TASKS},
    }


def _complete(sender: Celery, **kwargs: object) -> None:
    """Add to what the project has set in the same places."""
    sender.conf.broker_transport_options = {**SENDING_LIMITS, **(sender.conf.broker_transport_options or {})}
    interval = settings.RELAY_INTERVAL / 1000
    # A relay message that waited longer than two rounds has been overtaken.
    sender.add_periodic_task(
        interval, sender.signature("pikku.relay"), name=RELAY_ENTRY, queue=settings.QUEUE, expires=2 * interval
    )
