"""What the dashboard reads. Each query goes by an index, and reads a bounded part of it: however many runs there are, a
dashboard costs about the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Count, IntegerField, QuerySet, Value, When

from pikku_storage.workflows.models import WorkflowRun, WorkflowStep
from pikku_storage.workflows.statuses import RunStatus, StepStatus

MOST_COUNTED = 50_000
"""Of each status the newest runs are counted, up to so many."""
MOST_READ = 1000
"""So many failures, due rows and approvals are read at most."""
WORKERS_LOOKED_FOR = 200
"""In so many of the newest runs the worker that had them last is looked for."""
WORKER_IS_KNOWN_FOR = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Histogram:
    """`counts` has, by status, the runs begun in each bucket. What began before `partial_until` is not all counted;
    `None` if everything is."""

    counts: Mapping[str, Sequence[int]]
    partial_until: datetime | None


def read_histogram(runs: QuerySet[WorkflowRun], starts: Sequence[datetime]) -> Histogram:
    """Runs by their status now and by when they began. Two queries for each status."""
    counts: dict[str, Sequence[int]] = {}
    partial: list[datetime] = []
    for status in RunStatus.values:
        of_status = runs.filter(status=status, created_at__gte=starts[0])
        # How far back the newest ones reach, if there are more: so much of the index is read and no more.
        newest = of_status.order_by("-created_at", "-id").values_list("created_at", flat=True)
        beyond = next(iter(newest[MOST_COUNTED : MOST_COUNTED + 1]), None)
        if beyond is not None:
            partial.append(beyond)
            of_status = of_status.filter(created_at__gt=beyond)
        counts[status] = _counts(of_status, starts)
    return Histogram(counts, max(partial, default=None))


def _counts(runs: QuerySet[WorkflowRun], starts: Sequence[datetime]) -> Sequence[int]:
    whens = [When(created_at__gte=start, then=Value(number)) for number, start in reversed(list(enumerate(starts)))]
    bucket = Case(*whens, default=Value(0), output_field=IntegerField())
    found = runs.order_by().annotate(bucket=bucket).values_list("bucket").annotate(runs=Count("pk"))
    by_bucket = dict(found)
    return [by_bucket.get(number, 0) for number in range(len(starts))]


@dataclass(frozen=True, slots=True)
class Failures:
    """Failed runs by workflow, most first. `is_all`: no more than were read."""

    by_workflow: Sequence[tuple[str, int]]
    is_all: bool

    @property
    def total(self) -> int:
        """How many were read."""
        return sum(count for _, count in self.by_workflow)


def read_failures(runs: QuerySet[WorkflowRun], since: datetime) -> Failures:
    """The newest failed runs among those that began since then, by workflow. One query."""
    failed = runs.filter(status=RunStatus.FAILED, created_at__gte=since).order_by("-created_at", "-id")
    names = list(failed.values_list("workflow", flat=True)[: MOST_READ + 1])
    return Failures(Counter(names[:MOST_READ]).most_common(), len(names) <= MOST_READ)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """The oldest run that lives, of a status."""

    id: str
    workflow: str
    status: str
    created_at: datetime


def read_oldest(runs: QuerySet[WorkflowRun], status: RunStatus) -> LiveRun | None:
    """The one that began first of all runs of that status. One query."""
    columns = ("id", "workflow", "status", "created_at")
    row = next(iter(runs.filter(status=status).order_by("created_at", "id").values(*columns)[:1]), None)
    return None if row is None else LiveRun(**row)


@dataclass(frozen=True, slots=True)
class Approvals:
    """Runs that ask a person; counted up to one more than `MOST_READ`."""

    count: int
    oldest: datetime | None


def read_approvals(runs: QuerySet[WorkflowRun]) -> Approvals:
    """How many runs stand at an approval, and since when the first does. One query."""
    asking = runs.filter(gate_opened_at__isnull=False).order_by("gate_opened_at", "id")
    opened = list(asking.values_list("gate_opened_at", flat=True)[: MOST_READ + 1])
    return Approvals(len(opened), next(iter(opened), None))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """What waits in a queue for a worker, of the rows that were read; `since` is of the one that waits longest."""

    queue: str
    waiting: int
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What the engine has still to see to, from the `MOST_READ` steps and runs that are due first."""

    lags: Sequence[QueueLag]
    under_way: Mapping[str, int]
    """By worker, how many steps and passes it has."""
    overdue: int
    """How many rows are due since before `late_since`."""
    first_due: datetime | None
    """When the most overdue row was due."""
    is_all: bool


_STEP_COLUMNS = ("due_at", "status", "rpc_name", "queue", "claim_token", "claimed_by", "updated_at")
_RUN_COLUMNS = ("due_at", "status", "pass_token", "last_worker", "line", "admitted_at", "created_at")


def read_due(using: str, *, late_since: datetime, default_queue: str) -> Due:
    """What is due first. Two queries."""
    steps = _first_due(WorkflowStep.objects.using(using), _STEP_COLUMNS)
    runs = _first_due(WorkflowRun.objects.using(using), _RUN_COLUMNS)
    waiting: dict[str, list[datetime]] = {}
    under_way: Counter[str] = Counter()
    for step in steps:
        if step["claim_token"] is not None and step["claimed_by"]:
            under_way[step["claimed_by"]] += 1
        elif step["queue"] is not None and step["status"] in {StepStatus.PENDING, StepStatus.SCHEDULED}:
            waiting.setdefault(step["queue"], []).append(step["updated_at"])
    for run in runs:
        if run["pass_token"] is not None and run["last_worker"]:
            under_way[run["last_worker"]] += 1
        elif run["status"] == RunStatus.RUNNING and run["last_worker"] is None and run["line"] is None:
            # No worker has begun it yet; one that stands in line before a limit is not waited for.
            waiting.setdefault(default_queue, []).append(run["admitted_at"] or run["created_at"])
    due = [row["due_at"] for row in (*steps, *runs)]
    return Due(
        lags=sorted(
            (QueueLag(queue=queue, waiting=len(times), since=min(times)) for queue, times in waiting.items()),
            key=lambda lag: lag.since,
        ),
        under_way=under_way,
        overdue=sum(moment < late_since for moment in due),
        first_due=min(due, default=None),
        is_all=max(len(steps), len(runs)) < MOST_READ,
    )


def _first_due(rows: QuerySet[Any], columns: Sequence[str]) -> list[dict[str, Any]]:
    return list(rows.filter(due_at__isnull=False).order_by("due_at").values(*columns)[:MOST_READ])


def read_workers_of_runs(runs: QuerySet[WorkflowRun], now: datetime) -> dict[str, datetime]:
    """By worker, when one of the newest runs was last changed that it had last. One query."""
    newest = runs.order_by("-created_at", "-id").values_list("last_worker", "updated_at")[:WORKERS_LOOKED_FOR]
    seen: dict[str, datetime] = {}
    for worker, changed_at in newest:
        if worker and now - changed_at < WORKER_IS_KNOWN_FOR:
            seen[worker] = max(changed_at, seen.get(worker, changed_at))
    return seen
