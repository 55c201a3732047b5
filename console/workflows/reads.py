"""What the console reads: cheap columns for pages, payloads one step at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from django.db.models import Count, Max, QuerySet, Sum

from console.workflows.records import AttemptRow, RunRow, StepRow
from pikku_storage.db import engine
from pikku_storage.db.operations import NOT_NULL
from pikku_storage.db.parts import Part
from pikku_storage.json import Json
from pikku_storage.workflows.gates import APPROVAL_RPC
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory
from pikku_storage.workflows.reads import attempts_of
from pikku_storage.workflows.statuses import StepStatus

RUN_COLUMNS = tuple(column.name for column in fields(RunRow))
STEP_COLUMNS = tuple(column.name for column in fields(StepRow) if column.name not in {"planned_ms", "approvers"})
ATTEMPT_COLUMNS = tuple(column.name for column in fields(AttemptRow))
MOST_RELATIONS = 50
ATTEMPTS_SHOWN = 20
"""So many attempts of a step are read with their errors, which may hold long tracebacks."""
STEP_PARTS = {"input": "data", "output": "result", "error": "error"}
"""The payloads of a step, and the columns they are in."""


def read_run(runs: QuerySet[WorkflowRun], run_id: str) -> RunRow | None:
    """A run without its payloads, but for its error."""
    row = runs.filter(pk=run_id).values(*RUN_COLUMNS).first()
    return None if row is None else RunRow(**row)


def read_steps(using: str, run_ids: Collection[str]) -> dict[str, list[StepRow]]:
    """All steps of these runs without their payloads, by run, oldest first. One query."""
    # Only of what waits is something in the data shown; the data of a function's step may be large and is left alone.
    of_approval = {"rpc_name": APPROVAL_RPC}
    parts = {
        "planned_ms": [Part("data", "duration", {"rpc_name": None}), Part("data", "expiry", of_approval)],
        "approvers": [Part("data", "approvers", of_approval)],
    }
    where = {"run_id": list(run_ids)}
    columns = (*STEP_COLUMNS, "run_id")
    found: dict[str, list[StepRow]] = {run_id: [] for run_id in run_ids}
    for row in engine(using).read_parts(WorkflowStep, where, columns, parts, order_by=("created_at", "id")):
        found[row.pop("run_id")].append(StepRow(**row))
    return found


def read_attempts(using: str, run_ids: Collection[str]) -> list[AttemptRow]:
    """All attempts of these runs without their payloads, oldest first."""
    rows = attempts_of(using, run_ids).order_by("created_at", "attempt", "step_id")
    return [AttemptRow(**row) for row in rows.values(*ATTEMPT_COLUMNS)]


def read_error_name(using: str, run_id: str, step_name: str) -> str:
    """The name of the error that a step of a run failed with; empty if there is none. One query."""
    where = {"run_id": run_id, "step_name": step_name}
    rows = engine(using).read_parts(WorkflowStep, where, (), {"name": [Part("error", "name", most=80)]})
    return (rows[0]["name"] or "") if rows else ""


def read_fingerprint(using: str, run: RunRow) -> str:
    """As `fingerprint_of`, without reading the steps. One query."""
    seen = (
        WorkflowStep.objects.using(using)
        .filter(run_id=run.id)
        .aggregate(latest=Max("updated_at"), steps=Count("pk"), attempts=Sum("current_attempt"))
    )
    return _fingerprint(run, seen["latest"], seen["steps"], seen["attempts"])


def fingerprint_of(run: RunRow, steps: Sequence[StepRow]) -> str:
    """A text that differs once something on the run's page does."""
    latest = max((step.updated_at for step in steps), default=None)
    return _fingerprint(run, latest, len(steps), sum(step.current_attempt or 0 for step in steps))


def _fingerprint(run: RunRow, latest: datetime | None, steps: int, attempts: int | None) -> str:
    stamps = ("" if moment is None else f"{moment.timestamp():.3f}" for moment in (run.updated_at, latest))
    return "-".join([run.status, *stamps, str(steps), str(attempts or 0)])


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPayloads:
    """A run's own payloads."""

    input: Json
    output: Json
    state: Json


def read_run_payloads(using: str, run_id: str) -> RunPayloads | None:
    """Input, output and state of a run."""
    row = WorkflowRun.objects.using(using).filter(pk=run_id).values("input", "output", "state").first()
    return None if row is None else RunPayloads(**row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt with its error."""

    number: int
    row: AttemptRow
    error: Any

    @property
    def started_at(self) -> datetime:
        """When it was begun, or else made."""
        return self.row.running_at or self.row.created_at


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWithPayloads:
    """A step with everything its panel shows."""

    row: StepRow
    run_id: str
    input: Json
    output: Json
    error: Any
    attempts: tuple[Attempt, ...]
    has_child: bool = False
    """Whether the run that did it is still there."""
    earlier_attempts: int = 0
    """How many attempts before these are not read."""


def read_step(using: str, step_id: str, *, run_ids: Collection[str] | None = None) -> StepWithPayloads | None:
    """A step with its payloads and the errors of its latest attempts; with `run_ids`, only if it is of one of these
    runs. Two queries, and one for a child."""
    rows = WorkflowStep.objects.using(using).filter(pk=step_id)
    if run_ids is not None:
        rows = rows.filter(run_id__in=run_ids)
    found = rows.values(*STEP_COLUMNS, "run_id", "data", "result", "error").first()
    if found is None:
        return None
    child = found["child_run_id"]
    history = WorkflowStepHistory._default_manager.using(using).filter(step_id=step_id)
    latest = history.order_by("-created_at", "-attempt").values(*ATTEMPT_COLUMNS, "error")[:ATTEMPTS_SHOWN]
    attempts = list(reversed(latest))
    # An attempt's number is its place; another program's rows may lack it.
    before = max(0, (found["current_attempt"] or 1) - len(attempts)) if len(attempts) == ATTEMPTS_SHOWN else 0
    return StepWithPayloads(
        run_id=found.pop("run_id"),
        input=found.pop("data"),
        output=found.pop("result"),
        error=found.pop("error"),
        row=StepRow(**found),
        earlier_attempts=before,
        has_child=child is not None and WorkflowRun.objects.using(using).filter(pk=child).exists(),
        attempts=tuple(
            Attempt(number=number, error=attempt.pop("error"), row=AttemptRow(**attempt))
            for number, attempt in enumerate(attempts, start=before + 1)
        ),
    )


def read_step_payload(using: str, run_id: str, step_id: str, part: str) -> tuple[Json] | None:
    """One payload of a step, alone; `None` if the run has no such step. `part` is one of `STEP_PARTS`."""
    column = STEP_PARTS[part]
    found: tuple[Json] | None = (
        WorkflowStep.objects.using(using).filter(pk=step_id, run_id=run_id).values_list(column).first()
    )
    return found


ORIGINS = {"retryOf": "retry", "rerunOf": "rerun", "forkOf": "fork"}
"""The key of `wire` that names the run a run was made from, and what made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Another run that has to do with this one; `workflow` and `status` are `None` if it is gone."""

    kind: str
    run_id: str
    workflow: str | None = None
    status: str | None = None


def read_relations(runs: QuerySet[WorkflowRun], run: RunRow, steps: Iterable[StepRow]) -> list[Relation]:
    """The run that started this one, the one it was made from, those its steps started, and those that were made from
    it. Two queries, the first of which is for the last kind."""
    made = list(runs.filter(origin_run_id=run.id).order_by("-created_at", "-id").values("pk", "wire")[:MOST_RELATIONS])
    wanted: list[tuple[str, str]] = [
        (kind, run_id)
        for kind, run_id in (("parent", run.parent_id), *((kind, run.from_wire(key)) for key, kind in ORIGINS.items()))
        if run_id is not None
    ]
    wanted += [("child", step.child_run_id) for step in steps if step.child_run_id][:MOST_RELATIONS]
    wanted += [(_made_by(row["wire"]), row["pk"]) for row in made]
    if not wanted:
        return []
    found = {
        row["pk"]: row
        for row in runs.filter(pk__in=[run_id for _, run_id in wanted]).values("pk", "workflow", "status")
    }
    return [
        Relation(
            kind=kind,
            run_id=run_id,
            workflow=found[run_id]["workflow"] if run_id in found else None,
            status=found[run_id]["status"] if run_id in found else None,
        )
        for kind, run_id in wanted
    ]


def _made_by(wire: Any) -> str:
    keys = [key for key in ORIGINS if isinstance(wire, Mapping) and wire.get(key)]
    return f"{ORIGINS[keys[0]]}_by" if keys else "made"


def read_runs(runs: QuerySet[WorkflowRun], run_ids: Collection[str]) -> dict[str, RunRow]:
    """These runs, by id, as `read_run` reads one. One query, none without ids."""
    if not run_ids:
        return {}
    return {row["id"]: RunRow(**row) for row in runs.filter(pk__in=run_ids).values(*RUN_COLUMNS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounts:
    """What a run list says of a run's steps, and of its error."""

    done: int = 0
    steps: int = 0
    attempts: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    message: str = ""
    code: str = ""


def read_counts(using: str, run_ids: Sequence[str], *, message_length: int = 200) -> dict[str, RunCounts]:
    """The counts of these runs and the beginnings of their errors. Two queries however many runs, none without."""
    if not run_ids:
        return {}
    by_status: dict[str, dict[str, int]] = {run_id: {} for run_id in run_ids}
    attempts = dict.fromkeys(run_ids, 0)
    steps = WorkflowStep.objects.using(using).filter(run_id__in=run_ids).order_by()
    for row in steps.values("run_id", "status").annotate(steps=Count("pk"), attempts=Sum("current_attempt")):
        by_status[row["run_id"]][row["status"]] = row["steps"]
        # A row of another program may lack the number: that is a first attempt.
        attempts[row["run_id"]] += max(row["attempts"] or 0, row["steps"])
    # Of an error only the beginning: it may hold a long traceback.
    parts = {
        "message": [Part("error", "message", most=message_length)],
        "code": [Part("error", "code", most=80)],
    }
    where = {"id": list(run_ids), "error": NOT_NULL}
    errors = {row["id"]: row for row in engine(using).read_parts(WorkflowRun, where, ("id",), parts)}
    return {
        run_id: RunCounts(
            done=counts.get(StepStatus.SUCCEEDED.value, 0),
            steps=sum(counts.values()),
            attempts=attempts[run_id],
            by_status=counts,
            message=(errors.get(run_id, {}).get("message") or ""),
            code=(errors.get(run_id, {}).get("code") or ""),
        )
        for run_id, counts in by_status.items()
    }
