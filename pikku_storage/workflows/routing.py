"""Set-up of the project's Celery app."""

from __future__ import annotations

from celery import Celery

from pikku_storage.conf import settings

RELAY_TASK = "pikku.relay"
RELAY_ENTRY = "pikku-relay"
RELAY_EXPIRES = 60
"""Seconds after which a relay message that found no worker is overtaken by later ones."""
SENDING_LIMITS = {"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}
"""Broker transport options. Without them a broker that is down blocks the sender for ever."""


def configure(app: Celery) -> None:
    """Make `app` carry workflows: their tasks, the relay's beat entry, limits for sending. What the project has set
    itself is kept.

    Call it after `app.config_from_object(…)`:

        app = Celery("shop")
        app.config_from_object("django.conf:settings", namespace="CELERY")
        configure(app)
    """
    app.autodiscover_tasks(["pikku_storage.workflows"])
    app.on_after_configure.connect(_complete)


def _complete(sender: Celery, **kwargs: object) -> None:
    """Add to the project's settings, once they are read."""
    sender.conf.broker_transport_options = {**SENDING_LIMITS, **(sender.conf.broker_transport_options or {})}
    sender.add_periodic_task(
        settings.RELAY_INTERVAL / 1000,
        sender.signature(RELAY_TASK),
        name=RELAY_ENTRY,
        queue=settings.QUEUE,
        expires=RELAY_EXPIRES,
    )
