"""Reads that the write side and the read side share."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from pikku_storage.db import engine
from pikku_storage.exceptions import WorkflowGraphError
from pikku_storage.workflows.graphs.structure import GRAPH_SOURCE, Graph
from pikku_storage.workflows.graphs.validation import loaded
from pikku_storage.workflows.graphs.view import GraphView, view_of
from pikku_storage.workflows.models import WorkflowStep, WorkflowStepHistory, WorkflowVersion
from pikku_storage.workflows.records import HistoryEntry, StepDetail, StepState, StepSummary, Version

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


def step_ids_of(using: str, run_ids: Iterable[str]) -> Any:
    """What to compare a `step_id` with (`__in`) to find the attempts of these runs: by index on every engine, where a
    join might read them all."""
    steps = WorkflowStep.objects.using(using).filter(run_id__in=run_ids).order_by()
    return engine(using).subquery(steps.values_list("pk", flat=True))


def attempts_of(using: str, run_ids: Iterable[str]) -> QuerySet[WorkflowStepHistory]:
    """The attempts of all steps of these runs."""
    return WorkflowStepHistory._default_manager.using(using).filter(step_id__in=step_ids_of(using, run_ids))


def run_history(using: str, run_id: str) -> list[HistoryEntry]:
    """All attempts of a run, by creation then attempt; attempts are counted from 1 per step."""
    rows = (
        attempts_of(using, [run_id])
        .order_by("created_at", "attempt", "step_id")
        .values(*_HISTORY_COLUMNS, *(f"step__{name}" for name in _STEP_COLUMNS))
    )
    counts: Counter[str] = Counter()
    entries = []
    for row in rows:
        counts[row["step_id"]] += 1
        values: dict[str, Any] = {name.removeprefix("step__"): value for name, value in row.items()}
        entries.append(HistoryEntry(**values, attempt_count=counts[row["step_id"]], updated_at=row["created_at"]))
    return entries


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
    names = ("running_at", "succeeded_at", "failed_at")
    for row in attempts_of(using, [run_id]).values("step_id", *names):
        latest = stamps[row["step_id"]]
        for name in names:
            if row[name] is not None and (name not in latest or row[name] > latest[name]):
                latest[name] = row[name]
    return [StepDetail(step=step, **{name: stamps[step.step_id].get(name) for name in names}) for step in steps]


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


def version(using: str, workflow_name: str, graph_hash: str) -> Version | None:
    """A stored definition, or `None`."""
    row = (
        WorkflowVersion.objects.using(using)
        .filter(pk=WorkflowVersion.id_of(workflow_name, graph_hash))
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
