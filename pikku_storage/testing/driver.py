"""Being every worker and the relay, in the process and the transaction of a test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pikku_storage.durations import to_duration_text
from pikku_storage.workflows.dispatch import Message, dispatching_through, waiting_is_no_error
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.engine.waits import LIMIT_KINDS, RATE_LIMIT
from pikku_storage.workflows.querysets import LIVE
from pikku_storage.workflows.records import StepState
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.service import WorkflowService
from pikku_storage.workflows.statuses import RunStatus, StepStatus

WORKER = "test"
"""The worker's name in the history of what a test drives."""
MOST_ROUNDS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A run that has not ended, or one of its open steps, and what it waits for. Its text says it all."""

    run_id: str
    workflow: str
    step_name: str | None
    """`None` if it is the run itself that waits."""
    reason: str
    due_in: timedelta | None
    """How far the clock must go until it is looked at again; `None` if time alone changes nothing."""

    def __str__(self) -> str:
        what = self.workflow if self.step_name is None else f"{self.workflow}, step {self.step_name!r}"
        if self.due_in is None:
            return f"{what}: {self.reason}"
        duration = to_duration_text(round(self.due_in / timedelta(milliseconds=1)))
        return f'{what}: {self.reason}; due after clock.advance("{duration}")'

    def __repr__(self) -> str:
        return f"<{self}>"


class RunUntilIdle:
    """Drives every live run, as far as it goes at the time of the clock. Made by `driving()`."""

    def __init__(self, using: str | None = None) -> None:
        self._service = WorkflowService(using, worker=WORKER)
        self._runtime = Runtime(using, WORKER)

    def __call__(self) -> list[Waiting]:
        """Do what workers and the relay would do now, until nothing is left to do: new runs, queued steps, schedules,
        sleeps and retries that are due, leases that ran out. Schedules that the code declares fire if the test has
        stored them, with `ScheduleService().synchronise()`. Answers with what still waits; an empty list means
        that every run has ended.

        Steps that fail are recorded in their runs, and raise nothing here. Raises `AssertionError` if there is no end.
        """
        for _ in range(MOST_ROUNDS):
            before = self._progress()
            self._round()
            if self._progress() == before:
                return list(self._waiting())
        raise AssertionError(f"Still busy after {MOST_ROUNDS} rounds: {'; '.join(map(str, self._waiting()))}")

    def _round(self) -> None:
        """Rows say what there is to do, so no message is missed, not even one that waits for a commit which a test's
        transaction never has."""
        self._service.relay(synchronise=False)
        for run_id, step_name in self._queued_steps():
            with waiting_is_no_error(run_id):
                self._service.execute_workflow_step(run_id, step_name)
        for run in self._live_runs():
            with waiting_is_no_error(run["id"]):
                self._service.orchestrate_workflow(run["id"])

    def _live_runs(self) -> list[dict[str, Any]]:
        runs = self._runtime.runs.filter(status__in=LIVE).order_by("created_at", "id")
        return [
            dict(row) for row in runs.values("id", "workflow", "status", "error", "due_at", "pass_token", "waits_for")
        ]

    def _queued_steps(self) -> list[tuple[str, str]]:
        steps = self._runtime.steps.filter(run__status__in=LIVE, due_at__isnull=False, queue__isnull=False)
        ready = steps.exclude(status=StepStatus.RUNNING).order_by("created_at", "id")
        return list(ready.values_list("run_id", "step_name"))

    def _progress(self) -> tuple[set[Any], set[Any]]:
        """What every round changes but the last one."""
        runs = self._runtime.runs.order_by().values_list("id", "status")
        steps = self._runtime.steps.order_by().values_list("id", "status", "current_attempt")
        return set(runs), set(steps)

    def _waiting(self) -> Iterator[Waiting]:
        now = self._runtime.now()
        for run in self._live_runs():
            open_steps = [step for step in self._runtime.read_steps(run["id"]) if step.due_at is not None]
            if run["status"] == RunStatus.SUSPENDED:
                reason = f"suspended: {(run['error'] or {}).get('message', 'no reason was stored')}"
                yield _waiting(run, None, reason, run["due_at"], now)
            elif (run["waits_for"] or {}).get("kind") in LIMIT_KINDS:
                # A rate limit is a matter of time; the others are of other runs, or of somebody.
                due_at = run["due_at"] if run["waits_for"]["kind"] == RATE_LIMIT else None
                yield _waiting(run, None, run["waits_for"]["text"], due_at, now)
            elif open_steps:
                for step in open_steps:
                    yield _waiting(run, step.step_name, _reason(step), step.due_at, now)
            else:
                reason = "another worker is inside" if run["pass_token"] else "no step of it is open"
                yield _waiting(run, None, reason, run["due_at"], now)


def _waiting(
    run: dict[str, Any], step_name: str | None, reason: str, due_at: datetime | None, now: datetime
) -> Waiting:
    return Waiting(
        run_id=run["id"],
        workflow=run["workflow"],
        step_name=step_name,
        reason=reason,
        due_in=None if due_at is None else max(due_at - now, timedelta()),
    )


def _reason(step: StepState) -> str:
    if step.is_sleep:
        return "sleeps"
    if step.status == StepStatus.FAILED:
        error = (step.error or {}).get("message", "no error was stored")
        return f"waits for attempt {step.attempt_count + 1} of {step.max_attempts}, after: {error}"
    if step.status == StepStatus.RUNNING:
        return f"runs, on worker {step.claimed_by or '(unknown)'}"
    if step.rpc_name is not None and step.rpc_name not in registry.functions:
        return f"its function {step.rpc_name!r} is not registered here"
    return step.status


class _Nowhere:
    """Takes messages and drops them: what they ask for is in the rows."""

    def send(self, messages: Iterable[Message]) -> None:
        """See `Dispatcher.send`."""


@contextmanager
def driving(using: str | None = None) -> Iterator[RunUntilIdle]:
    """Inside the block no message leaves this process, `start()` only stores a run, and what is stored is carried out
    by calling what the block is given: `run_until_idle()`. `using` picks a database alias."""
    with dispatching_through(_Nowhere()):
        yield RunUntilIdle(using)
