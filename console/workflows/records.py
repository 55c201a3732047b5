"""Rows as the console reads them: without their payloads, which load when somebody opens them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pikku_storage.ids import child_run_id
from pikku_storage.workflows.gates import APPROVAL_RPC, GATE_RPCS
from pikku_storage.workflows.records import HistoryEntry
from pikku_storage.workflows.statuses import TERMINAL_RUN_STATUSES, StepStatus

COMPENSATION_SUFFIX = ":onError"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run without input, output and state."""

    id: str
    workflow: str
    status: str
    error: Any
    inline: bool | None
    graph_hash: str | None
    wire: Any
    owner_id: str | None
    idempotency_key: str | None
    last_worker: str | None
    due_at: datetime | None
    created_at: datetime
    updated_at: datetime
    waits_for: Any = None
    parent_run_id: str | None = None
    cancel_request: Any = None

    @property
    def parent_id(self) -> str | None:
        """The run whose step this run does."""
        return self.parent_run_id or self.from_wire("parentRunId")

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended for good."""
        return self.status in TERMINAL_RUN_STATUSES

    @property
    def ended_at(self) -> datetime | None:
        """When it ended; `None` while it lives."""
        return self.updated_at if self.is_terminal else None

    def from_wire(self, key: str) -> str | None:
        """A text of the trigger's record, such as `type`, `parentRunId` or `retryOf`."""
        value = self.wire.get(key) if isinstance(self.wire, Mapping) else None
        return value if isinstance(value, str) and value else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step without input, output and error."""

    id: str
    step_name: str
    rpc_name: str | None
    status: str
    child_run_id: str | None
    retries: int | None
    retry_delay: str | None
    max_attempts: int | None
    from_step_name: str | None
    current_attempt: int | None
    claimed_by: str | None
    group: str | None
    queue: str | None
    due_at: datetime | None
    created_at: datetime
    updated_at: datetime
    planned_ms: str | float | None = None
    """How long a sleep was to take, or an approval may, if the step is one and somebody looked; databases differ in the
    type."""
    approvers: str | None = None
    """Who may answer, if the step is an approval and somebody looked."""

    @property
    def attempt(self) -> int:
        """The number of the current attempt, from 1."""
        return self.current_attempt or 1

    @property
    def planned(self) -> timedelta | None:
        """How long a sleep was to take, or an approval may; `None` if that is not known."""
        if self.planned_ms is None:
            return None
        try:
            return timedelta(milliseconds=float(self.planned_ms))
        except (ValueError, OverflowError):
            return None

    @property
    def awaits_child(self) -> bool:
        """Whether a run of its own does the current attempt, and has not ended."""
        is_noted = self.status == StepStatus.RUNNING and self.child_run_id is not None
        return is_noted and self.child_run_id == child_run_id(self.id, self.attempt)

    @property
    def is_gate(self) -> bool:
        """Whether it waits for a person instead of being carried out."""
        return self.rpc_name in GATE_RPCS

    @property
    def is_approval(self) -> bool:
        """Whether it asks for an answer."""
        return self.rpc_name == APPROVAL_RPC

    @property
    def compensates(self) -> str | None:
        """The name of the step that this one undoes; `None` for an ordinary step."""
        name = self.step_name.removesuffix(COMPENSATION_SUFFIX)
        return name if name and name != self.step_name else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRow:
    """An attempt without its result and error."""

    step_id: str
    status: str
    attempt: int | None
    created_at: datetime
    running_at: datetime | None
    scheduled_at: datetime | None
    succeeded_at: datetime | None
    failed_at: datetime | None
    worker: str | None

    @property
    def ended_at(self) -> datetime | None:
        """When it ended; `None` while it is open. A row of another program may lack the stamp."""
        if self.status == StepStatus.SUCCEEDED:
            return self.succeeded_at or self.running_at or self.created_at
        if self.status == StepStatus.FAILED:
            return self.failed_at or self.running_at or self.created_at
        return None

    def as_history(self, step: StepRow, number: int) -> HistoryEntry:
        """What the timeline is built from, without payloads."""
        return HistoryEntry(
            step_id=step.id,
            step_name=step.step_name,
            rpc_name=step.rpc_name,
            from_step_name=step.from_step_name,
            status=self.status,
            result=None,
            error=None,
            attempt_count=number,
            retries=step.retries,
            retry_delay=step.retry_delay,
            worker=self.worker,
            created_at=self.created_at,
            updated_at=self.created_at,
            running_at=self.running_at,
            scheduled_at=self.scheduled_at,
            succeeded_at=self.succeeded_at,
            failed_at=self.failed_at,
        )
