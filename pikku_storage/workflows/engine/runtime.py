"""What every part of the engine needs: the database, the way to send messages, and the worker's name."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

from django.db import InterfaceError, OperationalError, router, transaction

from pikku_storage.conf import settings
from pikku_storage.db import Engine, engine
from pikku_storage.exceptions import WorkflowDispatchException
from pikku_storage.json import Json, to_json_object
from pikku_storage.workflows.dispatch import Message, dispatcher, is_inline
from pikku_storage.workflows.models import (
    WorkflowAnswer,
    WorkflowControl,
    WorkflowRate,
    WorkflowRun,
    WorkflowSchedule,
    WorkflowSlot,
    WorkflowStep,
)
from pikku_storage.workflows.querysets import (
    AnswerQuerySet,
    Claim,
    ControlQuerySet,
    RateQuerySet,
    RunQuerySet,
    ScheduleQuerySet,
    SlotQuerySet,
    StepQuerySet,
)
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.statuses import TERMINAL_RUN_STATUSES, RunStatus

logger = logging.getLogger(__name__)

T = TypeVar("T")
_RUN_COLUMNS = tuple(f"run__{name}" for name in Run.COLUMNS)
_PAUSES = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0)


class Runtime:
    """One per service; cheap to make."""

    def __init__(self, using: str | None = None, worker: str | None = None) -> None:
        self._given = using
        self.using = using or router.db_for_write(WorkflowRun)
        self.worker = worker or f"{socket.gethostname()}:{os.getpid()}"

    @cached_property
    def engine(self) -> Engine:
        """The engine of the database."""
        return engine(self.using)

    @cached_property
    def runs(self) -> RunQuerySet:
        """Runs, for state changes and reads."""
        return WorkflowRun.objects.using(self.using)

    @cached_property
    def steps(self) -> StepQuerySet:
        """Steps, for state changes and reads."""
        return WorkflowStep.objects.using(self.using)

    @cached_property
    def answers(self) -> AnswerQuerySet:
        """Answers to approvals, for state changes and reads."""
        return WorkflowAnswer.objects.using(self.using)

    @cached_property
    def schedules(self) -> ScheduleQuerySet:
        """Schedules, for state changes and reads."""
        return WorkflowSchedule.objects.using(self.using)

    @cached_property
    def slots(self) -> SlotQuerySet:
        """Slots of concurrency limits, for state changes and reads."""
        return WorkflowSlot.objects.using(self.using)

    @cached_property
    def rates(self) -> RateQuerySet:
        """Rate limits, likewise."""
        return WorkflowRate.objects.using(self.using)

    @cached_property
    def controls(self) -> ControlQuerySet:
        """What operators have set for workflows, likewise."""
        return WorkflowControl.objects.using(self.using)

    @property
    def is_inline(self) -> bool:
        """Whether this project has no workers, and everything runs in the process that asks for it."""
        return is_inline()

    def now(self) -> datetime:
        """The database's time."""
        return self.engine.now()

    def sleep(self, seconds: float) -> None:
        """Wait here, by the same clock."""
        self.engine.clock.sleep(seconds)

    def lease_end(self, at: datetime) -> datetime:
        """Until when a lease taken at that time holds."""
        return at + timedelta(milliseconds=settings.LEASE)

    def patience_end(self, at: datetime) -> datetime:
        """Until when a message sent at that time is waited for before it is sent again."""
        return at + timedelta(milliseconds=settings.PATIENCE)

    def stalled_end(self, at: datetime) -> datetime:
        """When a run that waits for its steps from that time on is looked at, in case nobody woke it."""
        return at + timedelta(milliseconds=settings.STALLED_AFTER)

    def claim(self, *, after: datetime | None = None) -> Claim:
        """A new claim of this worker, from now on; not before `after`, which another process may have written by a
        clock that is a little ahead."""
        at = self.now() if after is None else max(self.now(), after)
        return Claim(worker=self.worker, at=at, until=self.lease_end(at))

    def read_run(self, run_id: str) -> Run | None:
        """The run, or `None`."""
        rows = self.engine.read(WorkflowRun, {"id": run_id}, Run.COLUMNS)
        return Run.from_row(rows[0]) if rows else None

    def read_steps(self, run_id: str) -> list[StepState]:
        """All steps of the run in one read, oldest first."""
        rows = self.engine.read(WorkflowStep, {"run_id": run_id}, StepState.COLUMNS, order_by=("created_at", "id"))
        return [StepState.from_row(row) for row in rows]

    def read_step(self, run_id: str, step_name: str) -> StepState | None:
        """One step of the run, or `None`."""
        rows = self.engine.read(WorkflowStep, {"run_id": run_id, "step_name": step_name}, StepState.COLUMNS)
        return StepState.from_row(rows[0]) if rows else None

    def read_step_by_id(self, step_id: str) -> StepState | None:
        """The step of that id, or `None`."""
        rows = self.engine.read(WorkflowStep, {"id": step_id}, StepState.COLUMNS)
        return StepState.from_row(rows[0]) if rows else None

    def read_step_and_run(self, run_id: str, step_name: str) -> tuple[StepState, Run] | None:
        """One step together with its run, or `None`."""
        where = {"run_id": run_id, "step_name": step_name}
        rows = self.engine.read(WorkflowStep, where, (*StepState.COLUMNS, *_RUN_COLUMNS))
        if not rows:
            return None
        run = {name: rows[0].pop(f"run__{name}") for name in Run.COLUMNS}
        return StepState.from_row(rows[0]), Run.from_row(run)

    def read_state(self, run_id: str) -> dict[str, Json]:
        """The state of the run; empty for an unknown run."""
        state: dict[str, Json] | None = self.runs.filter(pk=run_id).values_list("state", flat=True).first()
        return state or {}

    def write_state(self, run_id: str, key: str, value: Any) -> bool:
        """Set one key of the state of the run; `False` for an unknown run. Raises `PayloadError`."""
        plain = to_json_object({key: value}, root="$state")[key]
        return self.runs.merge_state(run_id, key, plain, at=self.now())

    def steadily(self, write: Callable[[], T]) -> T:
        """Do a write that must not be lost to a moment's trouble with the database: again for some seconds, on a new
        connection.

        The caller must be able to tell whether an earlier try went through after all. Inside a transaction there is one
        try.
        """
        for pause in _PAUSES:
            try:
                return write()
            except (OperationalError, InterfaceError):
                if self.engine.connection.in_atomic_block:
                    raise
                logger.warning("A write failed; trying again in %s s", pause, exc_info=True)
                self.engine.connection.close()
                time.sleep(pause)
        return write()

    # -- ending --------------------------------------------------------------------------------------------------------

    def set_status(self, run_id: str, status: RunStatus, *, output: Json = None, error: Json = None) -> bool:
        """Set a live run's status from outside of a pass. If that ends it, its gates become due, and are closed by the
        relay if not sooner."""
        at = self.now()
        due_at = self.stalled_end(at) if status is RunStatus.RUNNING else None
        also = [self.steps.gates_due(run_id, at)] if status in TERMINAL_RUN_STATUSES else []
        return self.runs.set_status(run_id, status, at=at, output=output, error=error, due_at=due_at, also=also)

    # -- messages ------------------------------------------------------------------------------------------------------

    def message(
        self,
        run_id: str,
        step_name: str | None = None,
        *,
        queue: str | None = None,
        delay: timedelta | None = None,
        priority: int | None = None,
    ) -> Message:
        """A message about a run of this database; `priority` is the run's own."""
        return Message(
            run_id=run_id,
            step_name=step_name,
            queue=queue,
            countdown=None if delay is None or delay <= timedelta() else delay.total_seconds(),
            using=self._given,
            priority=priority,
        )

    def send(self, messages: Sequence[Message]) -> None:
        """Send now; raises `WorkflowDispatchException`."""
        if messages:
            dispatcher().send(messages)

    def hint(self, *messages: Message) -> None:
        """Send after the commit, if it can be done; what cannot be sent is found by the relay."""
        # A worker holds a delayed message in memory. Long delays are left to the relay, which has them as rows.
        prompt = [message for message in messages if (message.countdown or 0) <= settings.PATIENCE / 1000]
        if prompt:
            transaction.on_commit(lambda: self._send_quietly(prompt), using=self.using)

    def _send_quietly(self, messages: Sequence[Message]) -> None:
        try:
            self.send(messages)
        except WorkflowDispatchException as error:
            logger.warning("Run %s is kept and dispatched later by the relay. %s", messages[0].run_id, error)
