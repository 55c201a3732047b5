"""Sending messages. A message is a hint that makes things faster than the relay would; losing one costs time only."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from django.utils.module_loading import import_string
from kombu.exceptions import OperationalError

from pikku_storage.conf import settings
from pikku_storage.exceptions import PikkuMissingMetaError, WorkflowDispatchException, WorkflowRunNotFoundError
from pikku_storage.workflows.limits import DEFAULT_PRIORITY, FIRST

logger = logging.getLogger(__name__)

BROKER_PAUSE = 2.0
"""Seconds for which a broker that took no message is not asked again by this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """`step_name` is `None` for "look at this run". `countdown` is in seconds. `using` is `None` for the default
    database. `priority` is the run's, from 1 to 9, or `None` if it was given none."""

    run_id: str
    step_name: str | None = None
    queue: str | None = None
    countdown: float | None = None
    using: str | None = None
    priority: int | None = None


class Dispatcher(Protocol):
    """What sends messages; `PIKKU_STORAGE["DISPATCHER"]` names the class."""

    def send(self, messages: Iterable[Message]) -> None:
        """Hand the messages to the broker, or raise `WorkflowDispatchException`."""


class CeleryDispatcher:
    """Sends through the project's Celery app.

    A broker that took no message is left alone for a moment, so that many senders (a relay with a thousand due rows)
    do not wait for it one by one.
    """

    def __init__(self) -> None:
        self._down_until = 0.0

    def send(self, messages: Iterable[Message]) -> None:
        """See `Dispatcher.send`; one connection for all."""
        from pikku_storage.workflows import tasks

        if time.monotonic() < self._down_until:
            raise WorkflowDispatchException("The broker took no message a moment ago")
        try:
            with tasks.orchestrate.app.producer_or_acquire() as producer:
                for message in messages:
                    options = {
                        "producer": producer,
                        "queue": message.queue or settings.QUEUE,
                        "countdown": message.countdown,
                        "kwargs": {} if message.using is None else {"using": message.using},
                    }
                    if settings.MESSAGE_PRIORITIES:
                        options["priority"] = priority_at(producer.connection.transport.driver_type, message.priority)
                    if message.step_name is None:
                        tasks.orchestrate.apply_async((message.run_id,), **options)
                    else:
                        tasks.execute_step.apply_async((message.run_id, message.step_name), **options)
        except (OperationalError, OSError) as error:
            self._down_until = time.monotonic() + BROKER_PAUSE
            raise WorkflowDispatchException(f"The broker took no message: {error}") from error


def priority_at(broker: str, priority: int | None) -> int:
    """A run's priority on the scale of a broker: Redis takes 0 first, RabbitMQ the highest number."""
    given = DEFAULT_PRIORITY if priority is None else priority
    return FIRST - given if broker == "redis" else given


@contextmanager
def waiting_is_no_error(run_id: str) -> Iterator[None]:
    """The relay brings up again what waits, so a message that could do nothing for it is done with."""
    try:
        yield
    except WorkflowRunNotFoundError:
        logger.info("Run %s is gone; its message is dropped", run_id)
    except (PikkuMissingMetaError, WorkflowDispatchException) as error:
        logger.warning("Run %s waits: %s", run_id, error)


class InlineDispatcher:
    """Where nothing is sent, what a message would ask for is done here and now (`DISPATCHER` is `None`)."""

    def send(self, messages: Iterable[Message]) -> None:
        """See `Dispatcher.send`. Countdowns are not waited for: what is not due yet is left alone."""
        from pikku_storage.workflows.service import WorkflowService

        for message in messages:
            service = WorkflowService(using=message.using)
            with waiting_is_no_error(message.run_id):
                if message.step_name is None:
                    service.orchestrate_workflow(message.run_id)
                else:
                    service.execute_workflow_step(message.run_id, message.step_name)


@lru_cache(maxsize=8)
def _made(path: str) -> Dispatcher:
    made: Dispatcher = import_string(path)()
    return made


_instead: Dispatcher | None = None


@contextmanager
def dispatching_through(other: Dispatcher) -> Iterator[None]:
    """For tests: every message of this process goes to `other` inside the block, whatever the settings say."""
    global _instead
    before, _instead = _instead, other
    try:
        yield
    finally:
        _instead = before


def is_inline() -> bool:
    """Whether there are no messages, and everything runs in the process that asks for it."""
    return _instead is None and settings.DISPATCHER is None


def dispatcher() -> Dispatcher:
    """What sends messages: the configured dispatcher, or the one that a test has put in its place."""
    if _instead is not None:
        return _instead
    return InlineDispatcher() if settings.DISPATCHER is None else _made(settings.DISPATCHER)
