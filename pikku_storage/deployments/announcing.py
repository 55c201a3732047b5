"""Processes that register themselves: web processes by `announce()`, Celery workers by `announce_workers()`."""

from __future__ import annotations

import atexit
import logging
import os
import socket
from typing import TYPE_CHECKING, Any

from celery.signals import worker_ready, worker_shutdown

from pikku_storage.conf import settings
from pikku_storage.deployments.serving import remote_functions
from pikku_storage.ids import new_token

if TYPE_CHECKING:
    from pikku_storage.deployments.service import DeploymentService

logger = logging.getLogger(__name__)

WORKER_SCHEME = "celery"
_announced: list[tuple[str, DeploymentService]] = []
"""Endpoints, and what keeps each of them registered."""


def announce(endpoint: str | None = None) -> str | None:
    """Register this web process, with the functions that it serves to others, until it ends. Call it at the end of
    `wsgi.py` or `asgi.py`.

    `endpoint` is where others reach it, by default `DEPLOYMENT_ENDPOINT`; without either, nothing happens. Answers with
    the id of the deployment, which is a new one for each process. A process that is forked from this one registers
    itself too.
    """
    endpoint = endpoint or settings.DEPLOYMENT_ENDPOINT
    if endpoint is None:
        return None
    service = _new_service()
    deployment_id = f"{socket.gethostname()}-{os.getpid()}-{new_token()[:8]}"
    service.announce(deployment_id, endpoint, remote_functions)
    _announced.append((endpoint, service))
    return deployment_id


def withdraw() -> None:
    """Undo `announce`; the end of the process does it too."""
    while _announced:
        _endpoint, service = _announced.pop()
        try:
            service.stop()
        except Exception as error:  # noqa: BLE001 - its time to live ends it too
            logger.warning("A deployment is not withdrawn, and counts as up a little longer: %s", error)


def announce_workers() -> None:
    """Let the Celery workers of this project register themselves, while they run. They take messages and no calls, so
    they serve no function. Call it where the Celery app is made."""
    worker_ready.connect(_worker_begins)
    worker_shutdown.connect(_worker_ends)


def _new_service() -> DeploymentService:
    # Not before the apps are ready, as they are not yet where a Celery app is made.
    from pikku_storage.deployments.service import DeploymentService

    return DeploymentService()


def _worker_begins(sender: Any, **kwargs: Any) -> None:
    service, address = _new_service(), f"{WORKER_SCHEME}://{sender.hostname}"
    service.announce(sender.hostname, address, tuple)
    _announced.append((address, service))


def _worker_ends(**kwargs: Any) -> None:
    withdraw()


def _begin_anew() -> None:
    """In a process that was just forked: threads have stayed behind, and what is registered is the parent's."""
    endpoints = [endpoint for endpoint, _service in _announced if not endpoint.startswith(f"{WORKER_SCHEME}:")]
    _announced.clear()
    for endpoint in endpoints:
        announce(endpoint)


atexit.register(withdraw)
os.register_at_fork(after_in_child=_begin_anew)
