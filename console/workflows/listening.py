"""Which Celery workers listen on a queue. They are asked over the broker, which takes a moment, so pages ask apart."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from django.core.cache import cache
from django.utils.module_loading import import_string

from pikku_storage.conf import settings
from pikku_storage.workflows.dispatch import CeleryDispatcher, is_inline

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds for which workers are waited for. All of them answer a broadcast at once or not at all."""
_FRESH = 10
"""Seconds for which an answer is good for everybody who asks."""
_KEY = "pikku_console_queues"


@dataclass(frozen=True, slots=True)
class Listening:
    """The names of the workers that listen on a queue."""

    queue: str
    workers: tuple[str, ...]


def listening_on(queues: Sequence[str]) -> list[Listening] | None:
    """Who listens on each of these queues; `None` where nobody can be asked: no Celery, or a broker that is away or
    does not carry the question."""
    if not queues or is_inline() or not issubclass(import_string(str(settings.DISPATCHER)), CeleryDispatcher):
        return None
    by_worker = cache.get(_KEY)
    if by_worker is None:
        by_worker = _asked()
        if by_worker is None:
            return None
        cache.set(_KEY, by_worker, _FRESH)
    return [
        Listening(queue, tuple(sorted(worker for worker, names in by_worker.items() if queue in names)))
        for queue in queues
    ]


def _asked() -> dict[str, list[str]] | None:
    from pikku_storage.workflows import tasks

    try:
        answers = tasks.orchestrate.app.control.inspect(timeout=PATIENCE).active_queues()
    except Exception:
        # Each transport has errors of its own, and some cannot broadcast.
        logger.warning("The workers could not be asked for their queues", exc_info=True)
        return None
    return {worker: [queue["name"] for queue in queues] for worker, queues in (answers or {}).items()}
