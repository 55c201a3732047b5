"""A worker in a thread of the tests' own process, so that examples with `start()` need no broker."""

import heapq
import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from django.db import connections

from pikku_storage.exceptions import PikkuError
from pikku_storage.workflows.dispatch import Message
from pikku_storage.workflows.service import WorkflowService

RELAY_SECONDS = 0.2


class Mailbox:
    """Messages by the time at which they may be taken."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._order = itertools.count()
        self._messages: list[tuple[float, int, Message]] = []
        self.is_closed = False

    def put(self, message: Message) -> None:
        with self._changed:
            entry = (time.monotonic() + (message.countdown or 0), next(self._order), message)
            heapq.heappush(self._messages, entry)
            self._changed.notify()

    def take(self, patience: float) -> Message | None:
        """The next message that is due within `patience` seconds."""
        with self._changed:
            if not self._messages or self._messages[0][0] > time.monotonic():
                self._changed.wait(patience)
            if not self._messages or self._messages[0][0] > time.monotonic():
                return None
            return heapq.heappop(self._messages)[2]

    def close(self) -> None:
        with self._changed:
            self.is_closed = True
            self._messages.clear()
            self._changed.notify()


mailbox = Mailbox()


class ThreadDispatcher:
    """Hands messages to the thread."""

    def send(self, messages: Iterable[Message]) -> None:
        for message in messages:
            mailbox.put(message)


@contextmanager
def working() -> Iterator[None]:
    """A worker that takes messages, and looks for what is due now and then."""
    global mailbox
    mailbox = box = Mailbox()
    thread = threading.Thread(target=_work, args=(box,), name="docs-worker")
    thread.start()
    try:
        yield
    finally:
        box.close()
        thread.join()


def _work(box: Mailbox) -> None:
    service = WorkflowService(worker="docs")
    relayed = time.monotonic()
    try:
        while not box.is_closed:
            message = box.take(RELAY_SECONDS / 2)
            if message is not None:
                _carry_out(service, message)
            if time.monotonic() - relayed > RELAY_SECONDS and not box.is_closed:
                relayed = time.monotonic()
                service.relay()
    finally:
        connections.close_all()


def _carry_out(service: WorkflowService, message: Message) -> None:
    try:
        if message.step_name is None:
            service.orchestrate_workflow(message.run_id)
        else:
            service.execute_workflow_step(message.run_id, message.step_name)
    except PikkuError:
        # As Celery's tasks do: the run shows what it waits for.
        return
