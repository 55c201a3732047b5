"""Reads that the write side and the read side share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, Q, QuerySet, Sum

from pikku_storage.db import engine
from pikku_storage.exceptions import WorkflowGraphError
from pikku_storage.ids import child_run_id
from pikku_storage.workflows.gates import APPROVAL_RPC, Approval
from pikku_storage.workflows.graphs.structure import GRAPH_SOURCE, Graph
from pikku_storage.workflows.graphs.validation import loaded
from pikku_storage.workflows.graphs.view import GraphView, view_of
from pikku_storage.workflows.models import (
    WorkflowAnswer,
    WorkflowRun,
    WorkflowStep,
    WorkflowStepHistory,
    WorkflowVersion,
)
from pikku_storage.workflows.records import (
    Answer,
    HistoryEntry,
    OpenApproval,
    RunFingerprint,
    RunProgress,
    StepDetail,
    StepProgress,
    StepState,
    StepSummary,
    Version,
)
from pikku_storage.workflows.statuses import StepStatus

_HISTORY_COLUMNS = (
    "step_id",
    "status",
    "result",
    "error",
    "worker",
    "created_at",
    "running_at",
    "scheduled_at",
    "succeeded_at",
    "failed_at",
)
_PAYLOADS = ("data", "result", "error")
_LIGHT_COLUMNS = tuple(name for name in StepState.COLUMNS if name not in _PAYLOADS)
_STEP_COLUMNS = ("step_name", "rpc_name", "from_step_name", "retries", "retry_delay")
_CHILD_COLUMNS = ("attempt", "step__current_attempt", "step__child_run_id")


def step_ids_of(using: str, run_ids: Iterable[str]) -> Any:
    """What to compare a `step_id` with (`__in`) to find the attempts of these runs: by index on every engine, where a
    join might read them all."""
    steps = WorkflowStep.objects.using(using).filter(run_id__in=run_ids).order_by()
    return engine(using).subquery(steps.values_list("pk", flat=True))


def attempts_of(using: str, run_ids: Iterable[str]) -> QuerySet[WorkflowStepHistory]:
    """The attempts of all steps of these runs."""
    return WorkflowStepHistory._default_manager.using(using).filter(step_id__in=step_ids_of(using, run_ids))


def answers(using: str, run_id: str) -> list[Answer]:
    """The trails of a run's approvals, in the order of their entries."""
    rows = WorkflowAnswer.objects.using(using).filter(run_id=run_id)
    return [Answer(**row) for row in rows.order_by("created_at", "step_name", "ordinal").values(*Answer.COLUMNS)]


def open_approvals(
    using: str, filters: Mapping[str, Any], after: tuple[datetime, str] | None, limit: int
) -> list[OpenApproval]:
    """The approvals at which runs stand, the oldest first, after that `(opened_at, run_id)`. Two reads."""
    runs = WorkflowRun.objects.using(using).filter(gate_opened_at__isnull=False, **filters)
    if after is not None:
        opened_at, run_id = after
        runs = runs.filter(Q(gate_opened_at__gt=opened_at) | Q(gate_opened_at=opened_at, id__gt=run_id))
    found = list(runs.order_by("gate_opened_at", "id").values("id", "workflow", "owner_id", "gate_opened_at")[:limit])
    gates = WorkflowStep.objects.using(using).filter(
        run_id__in=[run["id"] for run in found], rpc_name=APPROVAL_RPC, status=StepStatus.RUNNING
    )
    steps: dict[tuple[str, datetime | None], StepState] = {
        (step.run_id, step.created_at): step
        for step in (StepState.from_row(row) for row in gates.order_by().values(*StepState.COLUMNS))
    }
    # A run that was answered between the two reads has none any more.
    return [
        _open_approval(run, step)
        for run in found
        if (step := steps.get((run["id"], run["gate_opened_at"]))) is not None
    ]


def _open_approval(run: Mapping[str, Any], step: StepState) -> OpenApproval:
    approval = Approval.of(step)
    return OpenApproval(
        run_id=run["id"],
        workflow=run["workflow"],
        owner_id=run["owner_id"],
        step_name=step.step_name,
        reason=approval.reason,
        approvers=approval.policy.approvers,
        approver_scope=approval.policy.scope,
        schema=approval.schema,
        opened_at=step.created_at,
        expires_at=approval.expires_at,
    )


def run_history(using: str, run_id: str) -> list[HistoryEntry]:
    """All attempts of a run, by creation then attempt; attempts are counted from 1 per step."""
    rows = (
        attempts_of(using, [run_id])
        .order_by("created_at", "attempt", "step_id")
        .values(*_HISTORY_COLUMNS, *(f"step__{name}" for name in _STEP_COLUMNS), *_CHILD_COLUMNS)
    )
    counts: Counter[str] = Counter()
    entries = []
    for row in rows:
        counts[row["step_id"]] += 1
        child = _child_of(row["step_id"], *(row.pop(name) for name in _CHILD_COLUMNS))
        values: dict[str, Any] = {name.removeprefix("step__"): value for name, value in row.items()}
        entries.append(
            HistoryEntry(
                **values, child_run_id=child, attempt_count=counts[row["step_id"]], updated_at=row["created_at"]
            )
        )
    return entries


def _child_of(step_id: str, attempt: int | None, current: int | None, noted: str | None) -> str | None:
    """The child run that did an attempt. A step notes that of its current one, and the others' ids follow as that one
    does."""
    if noted is not None and noted == child_run_id(step_id, current or 1):
        return child_run_id(step_id, attempt or 1)
    return noted if attempt == current else None


def graph_view(using: str, run_id: str, workflow_name: str, graph_hash: str) -> GraphView | None:
    """The graph of a run's version, with how far it is; `None` for a run of a function, or if it cannot be
    run. No payload is read."""
    try:
        graph = stored_graph(using, workflow_name, graph_hash)
    except WorkflowGraphError:
        return None
    if graph is None:
        return None
    rows = WorkflowStep.objects.using(using).filter(run_id=run_id).order_by("created_at", "id").values(*_LIGHT_COLUMNS)
    return view_of(graph, [StepState.from_row({**row, **dict.fromkeys(_PAYLOADS)}) for row in rows])


def step_details(using: str, run_id: str) -> list[StepDetail]:
    """The steps of a run, oldest first, each with the latest stamps of its attempts. Two reads."""
    steps = [
        StepState.from_row(row)
        for row in WorkflowStep.objects.using(using)
        .filter(run_id=run_id)
        .order_by("created_at", "id")
        .values(*StepState.COLUMNS)
    ]
    stamps: dict[str, dict[str, datetime]] = defaultdict(dict)
    counts: Counter[str] = Counter()
    names = ("running_at", "succeeded_at", "failed_at")
    for row in attempts_of(using, [run_id]).values("step_id", *names):
        counts[row["step_id"]] += 1
        latest = stamps[row["step_id"]]
        for name in names:
            if row[name] is not None and (name not in latest or row[name] > latest[name]):
                latest[name] = row[name]
    return [
        StepDetail(
            # Another program may count attempts by their rows only.
            step=replace(step, attempt_count=max(step.attempt_count, counts[step.step_id])),
            **{name: stamps[step.step_id].get(name) for name in names},
        )
        for step in steps
    ]


def summarise(history: list[HistoryEntry]) -> tuple[StepSummary, ...]:
    """One entry per step name, of its last attempt (contract `getRunStatus`)."""
    summaries: dict[str, StepSummary] = {}
    for entry in history:
        ended = entry.succeeded_at or entry.failed_at
        started = entry.running_at or entry.created_at
        summaries[entry.step_name] = StepSummary(
            name=entry.step_name,
            status=entry.status,
            attempts=entry.attempt_count,
            duration=None if ended is None else round((ended - started).total_seconds() * 1000),
        )
    return tuple(summaries.values())


def run_fingerprint(using: str, run_id: str) -> RunFingerprint | None:
    """What changes whenever the run or one of its steps does; `None` for an unknown run. One read, without payloads."""
    of_run = ("owner_id", "status", "updated_at")
    rows = list(
        WorkflowRun.objects.using(using)
        .filter(pk=run_id)
        .order_by()
        .values(*of_run, "steps__status")
        .annotate(count=Count("steps__pk"), attempts=Sum("steps__current_attempt"), changed_at=Max("steps__updated_at"))
    )
    if not rows:
        return None
    steps = ((row["steps__status"], row["count"], row["attempts"], row["changed_at"]) for row in rows)
    return RunFingerprint(**{name: rows[0][name] for name in of_run}, steps=frozenset(steps))


def run_progress(using: str, run_id: str, *, full: bool) -> RunProgress | None:
    """How far a run and its steps are, with output and error if it is to be `full`; `None` for an unknown run. Two
    reads: the run first, so that what is said of a run that has ended is said with all of its steps."""
    payloads = ("output", "error") if full else ()
    columns = ("status", "deterministic", "planned_steps", *payloads)
    row = WorkflowRun.objects.using(using).filter(pk=run_id).values(*columns).first()
    if row is None:
        return None
    steps = WorkflowStep.objects.using(using).filter(run_id=run_id).order_by("created_at", "id")
    found = tuple(StepProgress(**step) for step in steps.values("step_name", "status", "child_run_id"))
    row |= {"deterministic": bool(row["deterministic"]), "planned_steps": row["planned_steps"] or None}
    return RunProgress(**row, steps=found)


def version(using: str, workflow_name: str, graph_hash: str) -> Version | None:
    """A stored definition, or `None`."""
    row = (
        WorkflowVersion.objects.using(using)
        .filter(workflow_name=workflow_name, graph_hash=graph_hash)
        .values("graph", "source")
        .first()
    )
    return None if row is None else Version(**row)


def stored_graph(using: str, workflow_name: str, graph_hash: str) -> Graph | None:
    """The graph of a stored version; `None` if there is none, or it is a body's. Raises `WorkflowGraphError` for one
    that cannot be run."""
    stored: Any = version(using, workflow_name, graph_hash)
    if stored is None or stored.source != GRAPH_SOURCE:
        return None
    return loaded(workflow_name, stored.graph)
