"""How the Celery tasks of all apps are delivered whose messages carry ids only."""

from __future__ import annotations

from typing import Any

CLAIMED: dict[str, Any] = {
    # A worker that dies gives its message back; the claim decides whether there is still something to do.
    "acks_late": True,
    "reject_on_worker_lost": True,
    "ignore_result": True,
    "serializer": "json",
    # Retries are rows with due times, not messages.
    "max_retries": 0,
    "bind": True,
}
"""Options of a task that claims in the database what it is told of."""
