"""The acting user of Celery tasks, signed: who acted where the task was sent, and proof of it.

A signature covers the task's name, its id, its arguments, and what is to follow it (chains, chords, callbacks): a
message that was changed in the broker, or made there, acts for nobody. It does not keep a message from being delivered
twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from celery.signals import before_task_publish, task_postrun, task_prerun
from kombu.utils.json import dumps

from pikku_storage.access import celery as unsigned
from pikku_storage.access.acting import begin, end
from pikku_storage.conf import settings
from pikku_storage.crypto import queue_identity
from pikku_storage.deployments import checks  # noqa: F401 - who signs is told by `manage.py check` what is missing
from pikku_storage.exceptions import WeakKeyMaterialError

logger = logging.getLogger(__name__)

HEADER = "pikku_identity"
_UNSIGNED = ((before_task_publish, unsigned._send), (task_prerun, unsigned._begin), (task_postrun, unsigned._end))
_TOKEN = "_pikku_signed_acting"  # noqa: S105 - names an attribute
_FOLLOWING = ("callbacks", "errbacks", "chain", "chord")
_warned: set[str] = set()
_signing = False


def sign_celery_messages() -> None:
    """Let tasks that this process sends or carries out know the acting user, by a signed header. Call it where the
    Celery app is made, in every process, in place of `carry_through_celery`, whose unsigned header is then neither sent
    nor believed."""
    global _signing
    _signing = True
    for signal, receiver in _UNSIGNED:
        signal.disconnect(receiver)
    before_task_publish.connect(_send)
    task_prerun.connect(_begin)
    task_postrun.connect(_end)


def is_signing() -> bool:
    """Whether `sign_celery_messages` was called in this process."""
    return _signing


def _send(headers: dict[str, Any] | None = None, body: Any = None, **kwargs: Any) -> None:
    if headers is None:
        return
    user_id = unsigned.sender_of(headers)
    if user_id is None:
        return
    secret = _secret()
    if secret is None:
        return
    try:
        args, options, following = body
        data = _data(args, options, following)
        headers[HEADER] = queue_identity.sign(secret, user_id, headers["task"], data, headers["id"])
    except WeakKeyMaterialError as error:
        _warn_once(f"Tasks are sent without their acting user: {error}")
    except (TypeError, ValueError, KeyError) as error:
        logger.warning(
            "The task %s is sent without its acting user, because it is no JSON message of protocol 2: %s",
            headers.get("task"),
            error,
        )


def _begin(task: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, **_: Any) -> None:
    # An eager task is carried out where it is called.
    if not task.request.is_eager:
        # For a project that calls `carry_through_celery` all the same, and later.
        task.request.__dict__.pop(unsigned.HEADER, None)
        setattr(task.request, _TOKEN, begin(_verified(task, args, kwargs or {})))


def _end(task: Any, **kwargs: Any) -> None:
    token = task.request.__dict__.pop(_TOKEN, None)
    if token is not None:
        end(token)


def _verified(task: Any, args: Sequence[Any], options: Mapping[str, Any]) -> str | None:
    request = task.request
    token = getattr(request, HEADER, None)
    if token is None:
        return None
    secret = _secret()
    if secret is None:
        return None
    try:
        data = _data(args, options, {name: getattr(request, name, None) for name in _FOLLOWING})
        user_id = queue_identity.verify(secret, token, task.name, data, request.id)
    except WeakKeyMaterialError as error:
        _warn_once(f"Tasks are carried out without their acting user: {error}")
        return None
    except (TypeError, ValueError, RecursionError):
        user_id = None
    if user_id is None:
        logger.error(
            "The task %s[%s] is carried out for nobody: its identity was signed for another message, or with another "
            "secret.",
            task.name,
            request.id,
        )
    return user_id


def _data(args: Sequence[Any], options: Mapping[str, Any], following: Mapping[str, Any]) -> Any:
    """What is signed, as it is after the broker: with the types that Celery writes as JSON, and reads again."""
    rest = {name: following.get(name) or None for name in _FOLLOWING}
    return json.loads(dumps({"args": list(args), "kwargs": dict(options), **rest}))


def _secret() -> str | None:
    secret = settings.QUEUE_IDENTITY_SECRET
    if secret is None:
        _warn_once("PIKKU_STORAGE['QUEUE_IDENTITY_SECRET'] is missing, so who sent a task is neither signed nor known.")
    return secret


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        logger.warning(text)
