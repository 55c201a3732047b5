"""A dispatcher that keeps messages in a list, so that a test decides what becomes of them, and an audit trail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pikku_storage.auditing import AuditEvent
from pikku_storage.db import engine
from pikku_storage.exceptions import PikkuMissingMetaError, WorkflowDispatchException, WorkflowRunNotFoundError
from pikku_storage.workflows.dispatch import Message
from pikku_storage.workflows.service import WorkflowService
from tests.conformance.support import DATABASE

events: list[AuditEvent] = []
keep_event = events.append
"""`PIKKU_STORAGE["AUDIT_SINK"]` of the tests that ask what was audited."""


@dataclass(frozen=True, slots=True)
class Posted:
    """A message in the broker, and from when on a worker may have it."""

    message: Message
    ready_at: datetime


class RecordingDispatcher:
    """`PIKKU_STORAGE["DISPATCHER"]` of the conformance tests: a broker in a list.

    `deliver` hands messages over as a Celery worker would, including what a task swallows. A message with a countdown
    is delivered once the clock has come to it.
    """

    PATH = "tests.conformance.recording.RecordingDispatcher"

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As new: empty, and up."""
        self.posted: list[Posted] = []
        self.sent: list[Message] = []
        self.is_down = False

    def send(self, messages: Iterable[Message]) -> None:
        """See `Dispatcher.send`."""
        if self.is_down:
            raise WorkflowDispatchException("The broker took no message: it is down")
        for message in messages:
            self.sent.append(message)
            self.posted.append(Posted(message, self._now() + timedelta(seconds=message.countdown or 0)))

    # -- what a broker may do ------------------------------------------------------------------------------------------

    def lose_everything(self) -> list[Message]:
        """The broker's content is gone; answers with what it was."""
        lost = [posted.message for posted in self.posted]
        self.posted.clear()
        return lost

    def duplicate_everything(self) -> None:
        """Every message will arrive twice."""
        self.posted = [posted for posted in self.posted for _ in range(2)]

    def deliver(self, *, limit: int = 1_000, worker: str = "worker-1") -> int:
        """Deliver what is ready, and what that brings, until nothing is; answers with the number of messages."""
        delivered = 0
        while (ready := self._ready()) is not None:
            assert delivered < limit, f"still busy after {limit} messages; the next one is {ready.message}"
            self.posted.remove(ready)
            work_on(ready.message, worker=worker)
            delivered += 1
        return delivered

    def deliver_one(self, *, worker: str = "worker-1") -> Message:
        """Deliver the first message that is ready, and nothing it brings."""
        ready = self._ready()
        assert ready is not None, "no message is ready"
        self.posted.remove(ready)
        work_on(ready.message, worker=worker)
        return ready.message

    @property
    def waiting(self) -> list[Message]:
        """What is with the broker, without countdowns and database aliases."""
        return [replace(posted.message, countdown=None, using=None) for posted in self.posted]

    def _ready(self) -> Posted | None:
        now = self._now()
        return next((posted for posted in self.posted if posted.ready_at <= now), None)

    @staticmethod
    def _now() -> datetime:
        return engine(DATABASE).now()


def work_on(message: Message, *, worker: str = "worker-1") -> None:
    """What a worker does with a message; see `pikku_storage.workflows.tasks`."""
    service = WorkflowService(using=message.using, worker=worker)
    if message.step_name is not None:
        service.execute_workflow_step(message.run_id, message.step_name)
        return
    try:
        service.orchestrate_workflow(message.run_id)
    except (WorkflowRunNotFoundError, PikkuMissingMetaError, WorkflowDispatchException):
        return
