"""The acting user of Celery tasks: whoever acted where the task was sent.

A message names the user by id and nothing else, and whoever can write to the broker can write any id. So it says on
whose behalf a task works, for its records, and proves nothing. A workflow does not go by it: there the owner acts, who
is stored with the run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from celery.signals import before_task_publish, task_postrun, task_prerun
from django.core.exceptions import SynchronousOnlyOperation

from pikku_storage.access.acting import begin, current_user_id, end

logger = logging.getLogger(__name__)

HEADER = "pikku_user_id"
_LONGEST = 255
_TOKEN = "_pikku_acting"  # noqa: S105 - names an attribute


def carry_through_celery() -> None:
    """Let tasks that this process sends or carries out know the acting user. Call it where the Celery app is made, in
    every process: without it in the worker nobody acts in a task."""
    before_task_publish.connect(_send)
    task_prerun.connect(_begin)
    task_postrun.connect(_end)


def sender_of(headers: Mapping[str, Any]) -> str | None:
    """Who acts where the task of these headers is sent. A user that cannot be read here is nobody, with a warning."""
    try:
        return current_user_id()
    except SynchronousOnlyOperation:
        logger.warning(
            "The task %s is sent without its acting user, whom an async view has not read yet. Await "
            "acurrent_user_id() before.",
            headers.get("task"),
        )
        return None


def _send(headers: dict[str, Any] | None = None, **kwargs: Any) -> None:
    if headers is None:
        return
    user_id = sender_of(headers)
    if user_id is not None:
        headers[HEADER] = user_id


def _begin(task: Any, **kwargs: Any) -> None:
    # An eager task is carried out where it is called.
    if not task.request.is_eager:
        given = getattr(task.request, HEADER, None)
        is_id = isinstance(given, str) and 0 < len(given) <= _LONGEST
        setattr(task.request, _TOKEN, begin(given if is_id else None))


def _end(task: Any, **kwargs: Any) -> None:
    token = task.request.__dict__.pop(_TOKEN, None)
    if token is not None:
        end(token)
