"""A handle on one run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from pikku_storage.async_twins import AsyncTwins
from pikku_storage.exceptions import (
    WorkflowRunCancelledError,
    WorkflowRunFailedError,
    WorkflowRunNotFoundError,
    WorkflowRunSuspendedError,
)
from pikku_storage.json import Json
from pikku_storage.workflows.records import Run, StepState
from pikku_storage.workflows.statuses import END_STATUSES, RunStatus
from pikku_storage.workflows.timeline import TimelineEvent

if TYPE_CHECKING:
    from pikku_storage.workflows.operations import WorkflowOperations

FIRST_POLL = 0.010
POLL_FACTOR = 1.6
LONGEST_POLL = 0.500
"""Seconds between looks at a run that is waited for (contract services.md §0)."""


class WorkflowRunHandle(AsyncTwins):
    """A run by its id. Properties read the database each time they are asked; in async code use `await handle.aget()`.

    The twin of `wait` is `await_`.
    """

    def __init__(self, service: WorkflowOperations, run_id: str, *, created: bool = True) -> None:
        self._service = service
        self.id = run_id
        self.created = created
        """Whether this call made the run; `False` if its idempotency key found an earlier one."""

    def __repr__(self) -> str:
        return f"<WorkflowRunHandle {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkflowRunHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def get(self) -> Run:
        """The run as it is now; raises `WorkflowRunNotFoundError` if it is gone."""
        run = self._service.get_run(self.id)
        if run is None:
            raise WorkflowRunNotFoundError(self.id)
        return run

    @property
    def status(self) -> str:
        """running, suspended, completed, failed or cancelled."""
        return self.get().status

    @property
    def output(self) -> Json:
        """What the body returned; `None` until the run is completed."""
        return self.get().output

    @property
    def error(self) -> dict[str, Json] | None:
        """`{message, code?, name?, stack?}` of a failed, cancelled or suspended run."""
        return self.get().error

    @property
    def state(self) -> dict[str, Json]:
        """The run's state."""
        return self._service.get_run_state(self.id)

    @property
    def waits_for(self) -> dict[str, Json] | None:
        """What the run waits for: `{kind, text, since}` and more; `None` while it works, and once it has ended."""
        return self.get().waits_for

    @property
    def queue_position(self) -> int | None:
        """Which place it has before the limit that it waits for, 1 for the next one; `None` if it waits for none."""
        return self._service.get_queue_position(self.id)

    def wait(self, timeout: float | None = None) -> WorkflowRunHandle:
        """Wait until the run ends or is suspended; answers with this handle. Raises `TimeoutError` after `timeout`
        seconds."""
        wait_for_end(self.get, timeout=timeout)
        return self

    def result(self, timeout: float | None = None) -> Json:
        """Wait for the end, and answer with the output.

        Raises `WorkflowRunFailedError`, `WorkflowRunCancelledError`, and `WorkflowRunSuspendedError` for a run that
        waits for somebody.
        """
        return output_of(wait_for_end(self.get, timeout=timeout))

    async def await_(self, timeout: float | None = None) -> WorkflowRunHandle:
        """As `wait`, without holding a thread meanwhile."""
        await self._ended(timeout)
        return self

    async def aresult(self, timeout: float | None = None) -> Json:
        """As `result`, without holding a thread meanwhile."""
        return output_of(await self._ended(timeout))

    async def _ended(self, timeout: float | None) -> Run:
        pauses = GrowingPauses(timeout=timeout)
        while (run := await self.aget()).status not in END_STATUSES:
            await asyncio.sleep(pauses.after(run))
        return cast("Run", run)

    @property
    def parent(self) -> WorkflowRunHandle | None:
        """The run whose step this run does; `None` if it does none."""
        parent_id = self.get().parent_run_id
        return None if parent_id is None else self._service.get_handle(parent_id)

    def children(self) -> list[WorkflowRunHandle]:
        """The runs that do steps of this one, one for each attempt, oldest first."""
        return [self._service.get_handle(run.id) for run in self._service.list_child_runs(self.id)]

    def steps(self) -> list[StepState]:
        """The steps so far, oldest first."""
        return self._service.list_step_states(self.id)

    def timeline(self) -> list[TimelineEvent]:
        """What happened so far, in order."""
        return self._service.get_run_timeline(self.id) or []

    def cancel(self, reason: str | None = None, *, by: Any = None, compensate: bool = False) -> bool:
        """Stop before the next step; `False` if the run had ended already. See `WorkflowService.cancel_workflow`."""
        return self._service.cancel_workflow(self.id, reason, by=by, compensate=compensate)

    def resume(self, *, reason: str | None = None, by: Any = None) -> bool:
        """Look at a waiting or suspended run again, now; `False` if it has ended."""
        return self._service.resume_workflow(self.id, reason=reason, by=by)

    def approve(self, reason: str, decision: Json, *, by: Any = None) -> None:
        """Answer an approval of this run: see `WorkflowService.approve_step`."""
        self._service.approve_step(self.id, reason, decision, by=by)

    def retry(self, *, reason: str | None = None, by: Any = None) -> WorkflowRunHandle:
        """Try again what failed: see `WorkflowService.retry_run`."""
        return self._service.retry_run(self.id, reason=reason, by=by)

    def fork(
        self, from_step: str, data: Mapping[str, Any] | None = None, *, reason: str | None = None, by: Any = None
    ) -> WorkflowRunHandle:
        """Go on from a step in a new run: see `WorkflowService.fork_run`."""
        return self._service.fork_run(self.id, from_step, data, reason=reason, by=by)


def output_of(run: Run) -> Json:
    """The output of a run that is over; raises what its end means to a caller."""
    if run.status == RunStatus.FAILED:
        raise WorkflowRunFailedError(run.id, run.error)
    if run.status == RunStatus.CANCELLED:
        raise WorkflowRunCancelledError(run.id)
    if run.status == RunStatus.SUSPENDED:
        raise WorkflowRunSuspendedError(run.id, run.error)
    return run.output


def wait_for_end(
    read: Callable[[], Run],
    *,
    timeout: float | None = None,
    ceiling: float = LONGEST_POLL,
    sleep: Callable[[float], None] = time.sleep,
) -> Run:
    """Read until the run is over, at growing intervals of 10 ms to `ceiling`; raises `TimeoutError` after `timeout`
    seconds."""
    pauses = GrowingPauses(timeout=timeout, ceiling=ceiling)
    while (run := read()).status not in END_STATUSES:
        sleep(pauses.after(run))
    return run


class GrowingPauses:
    """How long to wait before each next look: 10 ms, growing to `ceiling`, and never beyond the deadline."""

    def __init__(self, *, timeout: float | None, ceiling: float = LONGEST_POLL) -> None:
        self._timeout = timeout
        self._deadline = float("inf") if timeout is None else time.monotonic() + timeout
        self._ceiling = ceiling
        self._next = FIRST_POLL

    def after(self, run: Run) -> float:
        """Seconds to wait now that `run` was seen unfinished; raises `TimeoutError` past the deadline."""
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError(f"Run {run.id} is still {run.status} after {self._timeout} s")
        pause = min(self._next, self._ceiling, remaining)
        self._next *= POLL_FACTOR
        return pause
