"""Set-up of the project's Celery app."""

from __future__ import annotations

import threading
import time

from celery import Celery
from celery.signals import task_postrun, task_prerun, worker_process_init
from django.db import close_old_connections, connections

from pikku_storage.conf import settings
from pikku_storage.db import documents

RELAY_TASK = "pikku.relay"
RELAY_ENTRY = "pikku-relay"
RELAY_EXPIRES = 900
"""Seconds after which a relay message that found no worker is dropped, since later ones overtake it. Celery judges by
the worker's own clock, which may be ahead by minutes, and then must not drop them all."""
SENDING_LIMITS = {"max_retries": 3, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.5}
"""Broker transport options. Without them a broker that is down blocks the sender for ever."""
DB_REUSE_MAX = "CELERY_DB_REUSE_MAX"
"""How often Celery lets a worker use its database connection; without it every task connects anew."""

STILL_THERE = 1.0
"""Seconds for which a worker's database connection needs no health check after a task."""
_last_task = threading.local()
"""`at`: when this thread, which has connections of its own, last began or ended a task."""


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
    worker_process_init.connect(_leave_clients_to_the_parent)
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
    """As Django does around each request: what is broken or older than `CONN_MAX_AGE` is closed, the rest is kept.

    `CONN_HEALTH_CHECKS` asks the server before each request whether it is still there. A connection of the last second
    is taken to be; to ask before each of a hundred short steps costs as much as one of their writes.
    """
    close_old_connections()
    now = time.monotonic()
    if now - getattr(_last_task, "at", float("-inf")) < STILL_THERE:
        for connection in connections.all(initialized_only=True):
            connection.health_check_done = True  # type: ignore[attr-defined]
    _last_task.at = now


def _leave_clients_to_the_parent(**kwargs: object) -> None:
    """A client of MongoDB that was made before the fork is the parent's."""
    for connection in connections.all(initialized_only=True):
        if connection.vendor == documents.VENDOR:
            connection.close_pool()  # type: ignore[attr-defined]
