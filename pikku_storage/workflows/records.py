"""What the services answer with: frozen, typed records, no model instances.

Times are aware UTC, ids and statuses are text, and `None` is the contract's *absent*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, ClassVar, Self

from pikku_storage.ids import child_run_id
from pikku_storage.json import Json
from pikku_storage.retry import RetryPolicy
from pikku_storage.workflows.gates import GATE_RPCS
from pikku_storage.workflows.schedules.policies import ScheduleState
from pikku_storage.workflows.statuses import TERMINAL_RUN_STATUSES, StepStatus, Verdict

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as stored (contract `getRun`)."""

    id: str
    workflow: str
    status: str
    input: Json
    output: Json
    error: dict[str, Json] | None
    inline: bool
    graph_hash: str | None
    deterministic: bool
    planned_steps: list[Json] | None
    wire: dict[str, Json]
    owner_id: str | None
    idempotency_key: str | None
    parent_run_id: str | None
    origin_run_id: str | None
    cancel_request: dict[str, Json] | None
    due_at: datetime | None
    wake_token: str | None
    redrives: int | None
    priority: int | None
    deadline_at: datetime | None
    concurrency_key: str | None
    rate_limit_key: str | None
    admitted_at: datetime | None
    waits_for: dict[str, Json] | None
    line: str | None
    lined_up_at: datetime | None
    created_at: datetime
    updated_at: datetime

    COLUMNS: ClassVar[tuple[str, ...]]

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """From a `values(*Run.COLUMNS)` row; columns another program left out get the contract's defaults."""
        wire = row["wire"] or {"type": "unknown"}
        return cls(
            **{
                **row,
                "inline": bool(row["inline"]),
                "deterministic": bool(row["deterministic"]),
                "wire": wire,
                "owner_id": row["owner_id"] or wire.get("pikkuUserId"),
                "planned_steps": row["planned_steps"] or None,
            }
        )

    @classmethod
    def new(cls, values: Mapping[str, Any]) -> Self:
        """The run that was just inserted with these values."""
        return cls.from_row(
            {**dict.fromkeys(cls.COLUMNS), **{name: values[name] for name in cls.COLUMNS if name in values}}
        )

    @property
    def must_end_at(self) -> datetime | None:
        """Its deadline, which does not hold any more once the run is to be undone: that is done to its end."""
        return self.deadline_at if self.cancel_request is None else None

    def deadline_from(self, at: datetime) -> datetime | None:
        """The deadline of another run that begins then and has as much time as this one had."""
        return None if self.deadline_at is None else at + (self.deadline_at - self.created_at)

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended for good."""
        return self.status in TERMINAL_RUN_STATUSES

    @property
    def completed_at(self) -> datetime | None:
        """When the run ended; `None` while it lives."""
        return self.updated_at if self.is_terminal else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepState:
    """A step as stored (contract `getStepState`)."""

    step_id: str
    run_id: str
    step_name: str
    rpc_name: str | None
    data: Json
    status: str
    result: Json
    error: dict[str, Json] | None
    child_run_id: str | None
    branch_taken: str | None
    retries: int | None
    retry_delay: str | None
    from_step_name: str | None
    attempt_count: int
    max_attempts: int
    group: str | None
    queue: str | None
    timeout_ms: int | None
    claim_token: str | None
    claimed_by: str | None
    due_at: datetime | None
    redrives: int | None
    created_at: datetime
    updated_at: datetime

    COLUMNS: ClassVar[tuple[str, ...]]

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """From a `values(*StepState.COLUMNS)` row."""
        values = dict(row)
        values["step_id"] = values.pop("id")
        values["attempt_count"] = values.pop("current_attempt") or 1
        # What another program wrote says only how often to retry.
        values["max_attempts"] = values["max_attempts"] or RetryPolicy(values["retries"]).max_attempts
        return cls(**values)

    @property
    def has_attempts_left(self) -> bool:
        """Whether the retry budget allows another attempt."""
        return self.attempt_count < self.max_attempts

    @property
    def is_settled(self) -> bool:
        """Whether nothing will ever happen to this step again (engine.md §1: nothing is due)."""
        return self.status == StepStatus.SUCCEEDED or (self.status == StepStatus.FAILED and self.due_at is None)

    @property
    def retry_at(self) -> datetime | None:
        """When the next attempt of a failed step may begin; `None` once the relay has called for it (and moved `due_at`
        on)."""
        return self.due_at if self.status == StepStatus.FAILED and self.redrives is None else None

    @property
    def next_at(self) -> datetime:
        """The earliest time of a claim of the step: it was last changed by a clock that may be a little ahead, and no
        two of its attempts begin in the same millisecond, because other programs tell them by that."""
        return self.updated_at + _MILLISECOND if self.status == StepStatus.FAILED else self.updated_at

    @property
    def awaits_child(self) -> bool:
        """Whether a run of its own does this attempt: no worker holds the step, and `due_at` is when somebody asks how
        the run fares."""
        is_noted = self.status == StepStatus.RUNNING and self.child_run_id is not None
        return is_noted and self.child_run_id == child_run_id(self.step_id, self.attempt_count)

    @property
    def is_sleep(self) -> bool:
        """Whether this is a delay and not a call: scheduled, and no function to run."""
        is_delay = self.rpc_name is None and isinstance(self.data, dict) and "duration" in self.data
        return is_delay and self.status == StepStatus.SCHEDULED

    @property
    def is_gate(self) -> bool:
        """Whether this is a suspension or an approval, which nobody carries out."""
        return self.rpc_name in GATE_RPCS

    @property
    def is_open_gate(self) -> bool:
        """Whether it waits for a person."""
        return self.is_gate and self.status == StepStatus.RUNNING


Run.COLUMNS = tuple(field.name for field in fields(Run))
StepState.COLUMNS = tuple(
    {"step_id": "id", "attempt_count": "current_attempt"}.get(field.name, field.name) for field in fields(StepState)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An entry in an approval's trail: somebody's decision, or the approval's expiry."""

    id: str
    run_id: str
    step_name: str
    ordinal: int
    decision: Json
    decided_by: dict[str, Json] | None
    verdict: str | None
    data: Json
    refusal: list[dict[str, Json]] | None
    created_at: datetime
    judged_at: datetime | None
    due_at: datetime | None

    COLUMNS: ClassVar[tuple[str, ...]]

    @property
    def is_expiry(self) -> bool:
        """Whether it says that nobody answered in time."""
        return self.verdict == Verdict.EXPIRED

    @property
    def is_outcome(self) -> bool:
        """Whether it decides the approval, so that nothing can follow it."""
        return self.verdict in {Verdict.ACCEPTED, Verdict.EXPIRED}


Answer.COLUMNS = tuple(field.name for field in fields(Answer))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalOutcome:
    """What `flow.approval` answers with. `status` is `decided` or `expired`; `data` is the validated answer."""

    status: str
    data: Json = None
    decided_by: str | None = None
    scopes: tuple[str, ...] = ()
    decided_at: datetime | None = None

    @classmethod
    def from_result(cls, result: Mapping[str, Any]) -> Self:
        """From the result of the approval's step."""
        by = result.get("decidedBy") or {}
        at = result.get("decidedAt")
        return cls(
            status=result["status"],
            data=result.get("data"),
            decided_by=by.get("userId"),
            scopes=tuple(by.get("scopes") or ()),
            decided_at=None if at is None else datetime.fromisoformat(at),
        )

    @property
    def is_expired(self) -> bool:
        """Whether nobody answered in time."""
        return self.status == "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApproval:
    """An approval that waits for an answer. `schema` says what the answer must look like: `{kind, path}` of a form,
    dataclass or pydantic model, `{kind, schema}` of a JSON Schema, or `None`."""

    run_id: str
    workflow: str
    owner_id: str | None
    step_name: str
    reason: str
    approvers: str
    approver_scope: str | None
    schema: dict[str, Json] | None
    opened_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDetail:
    """A step with the latest stamps of its attempts (contract `getRunSteps`)."""

    step: StepState
    running_at: datetime | None
    succeeded_at: datetime | None
    failed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One attempt of a step (contract `getRunHistory`)."""

    step_id: str
    step_name: str
    rpc_name: str | None
    from_step_name: str | None
    status: str
    result: Json
    error: dict[str, Json] | None
    attempt_count: int
    retries: int | None
    retry_delay: str | None
    worker: str | None
    child_run_id: str | None = None
    """The run that does this attempt, if one does."""
    created_at: datetime
    updated_at: datetime
    running_at: datetime | None
    scheduled_at: datetime | None
    succeeded_at: datetime | None
    failed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSummary:
    """One step in a status report; `duration` is in milliseconds, of its last attempt."""

    name: str
    status: str
    attempts: int
    duration: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a caller may know of a run (contract `getRunStatus`)."""

    id: str
    status: str
    started_at: datetime
    completed_at: datetime | None
    deterministic: bool
    planned_steps: list[Json] | None
    output: Json
    error: dict[str, Json] | None
    waits_for: dict[str, Json] | None
    steps: tuple[StepSummary, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFingerprint:
    """What tells whether a run, or one of its steps, has changed since another look: compare two of them.

    `steps` has one entry for each status that steps are in: the status, how many there are, how many attempts they have
    had, and when the last of them changed.
    """

    owner_id: str | None
    status: str
    updated_at: datetime
    steps: frozenset[tuple[str | None, int, int | None, datetime | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """How far a step is; `child_run_id` names the run that it started."""

    step_name: str
    status: str
    child_run_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """How far a run is, its steps in order, without their payloads. `output` and `error` only if they were asked
    for."""

    status: str
    deterministic: bool
    planned_steps: list[Json] | None
    output: Json = None
    error: dict[str, Json] | None = None
    steps: tuple[StepProgress, ...] = ()

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended for good."""
        return self.status in TERMINAL_RUN_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What pruning came to: runs that it deleted, and runs old enough that it left for another time."""

    deleted: int = 0
    kept: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(deleted=self.deleted + other.deleted, kept=self.kept + other.kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphState:
    """How far a graph is (contract `getCompletedGraphState`)."""

    completed_node_ids: tuple[str, ...]
    failed_node_ids: tuple[str, ...]
    branch_keys: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInstance:
    """A step's name, status and where it was reached from (contract `getStepInstances`)."""

    step_name: str
    status: str
    from_step_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What operators have set for a workflow; a limit that is `None` is as the code says."""

    workflow: str
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None
    concurrency: int | None
    concurrency_per_key: int | None
    rate_limit: str | None
    updated_at: datetime
    updated_by: str | None

    COLUMNS: ClassVar[tuple[str, ...]]

    @property
    def is_paused(self) -> bool:
        """Whether no run of the workflow goes on."""
        return self.paused_at is not None


Control.COLUMNS = tuple(field.name for field in fields(Control))


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A stored definition (contract `getWorkflowVersion`)."""

    graph: Json
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as stored."""

    id: str
    name: str
    workflow: str
    input: dict[str, Json]
    owner_id: str | None
    cron: str
    timezone: str
    catch_up: str
    overlap: str
    source: str
    enabled: bool
    undeclared: bool
    next_fire_at: datetime | None
    last_fire_at: datetime | None
    last_run_id: str | None
    created_at: datetime
    updated_at: datetime

    COLUMNS: ClassVar[tuple[str, ...]]

    @property
    def state(self) -> str:
        """`active`, `paused`, or `undeclared` for one that is gone from the code."""
        return ScheduleState.of(enabled=self.enabled, undeclared=self.undeclared).value

    @property
    def is_active(self) -> bool:
        """Whether it fires."""
        return self.state == ScheduleState.ACTIVE


Schedule.COLUMNS = tuple(field.name for field in fields(Schedule))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfilledFire:
    """One fire of a backfill, and the run that stands for it; `created` unless it was there before."""

    fire_at: datetime
    run_id: str
    created: bool
