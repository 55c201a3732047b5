"""Set-up of the project's Celery app."""

from __future__ import annotations

from celery import Celery
from celery.signals import task_postrun, task_prerun
from django.db import close_old_connections

from pikku_storage.conf import settings

RELAY_TASK = "pikku.relay"
RELAY_ENTRY = "pikku-relay"
RELAY_EXPIRES = 900
"""Seconds after which a relay message that found no worker is dropped, since later ones overtake it. Celery judges by
the worker's own clock, which may be ahead by minutes, and then must not drop them all."""
SENDING_LIMITS = {"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}
"""Broker transport options. Without them a broker that is down blocks the sender for ever."""
DB_REUSE_MAX = "CELERY_DB_REUSE_MAX"
"""How often Celery lets a worker use its database connection; without it every task connects anew."""


def configure(app: Celery) -> None:
    """Make `app` carry workflows: their tasks, the relay's beat entry, limits for sending, and database connections
    that live as long as `CONN_MAX_AGE` says. What the project has set itself is kept.

    Call it after `app.config_from_object(…)`:

        app = Celery("shop")
        app.config_from_object("django.conf:settings", namespace="CELERY")
        configure(app)
    """
    app.autodiscover_tasks(["pikku_storage.workflows"])
    for signal in (task_prerun, task_postrun):
        signal.connect(_close_obsolete_connections)
    if getattr(app, "configured", False):
        _complete(app)
    else:
        app.on_after_configure.connect(_complete)


def _complete(sender: Celery, **kwargs: object) -> None:
    """Add to the project's settings, once they are read."""
    sender.conf.setdefault(DB_REUSE_MAX, 1_000_000)
    sender.conf.broker_transport_options = {**SENDING_LIMITS, **(sender.conf.broker_transport_options or {})}
    sender.add_periodic_task(
        settings.RELAY_INTERVAL / 1000,
        sender.signature(RELAY_TASK),
        name=RELAY_ENTRY,
        queue=settings.QUEUE,
        expires=RELAY_EXPIRES,
    )


def _close_obsolete_connections(**kwargs: object) -> None:
    """As Django does around each request: what is broken or older than `CONN_MAX_AGE` is closed, the rest is kept."""
    close_old_connections()
