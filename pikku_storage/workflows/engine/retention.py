"""Deleting runs: one by its id, or all that ended long ago.

A run's id may be used again, because an idempotency key makes it. So its attempts and steps go first: while something
is left of it the id is taken, and whoever gets it finds nothing of the old run. A deletion that was cut off is finished
by the next one.

Of two processes one may look at a run while the other deletes it and somebody starts it anew. So each deletion says
itself how old its rows must be, and leaves those of the new run alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError
from django.db.models import Q, QuerySet

from pikku_storage.workflows.engine import admission
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.errors import WORKFLOW_CANCELLED, coded_error
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.querysets import LIVE, TERMINAL
from pikku_storage.workflows.records import Pruned
from pikku_storage.workflows.statuses import RunStatus, StepStatus

STEPS = 500
"""How many steps are deleted by one statement."""
MOST_RUNS = 5_000
"""The most runs of a batch: what one statement can name on every database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Runs of one status that ended by that time; of one workflow, or of all. `seen_at` is when they are looked for."""

    status: str
    by: datetime
    seen_at: datetime
    workflow: str | None = None

    @property
    def made_by(self) -> datetime:
        """What is younger than this belongs to another run. It is half-way between two times, so that neither may be
        off by a little: all of the old run was made before it ended, and all of a new one after it was looked for."""
        return self.by + (self.seen_at - self.by) / 2


def delete_run(runtime: Runtime, run_id: str) -> bool:
    """Delete a run, whatever its status; whether there was one. A live one is cancelled first, so that a worker inside
    begins nothing more."""
    error = coded_error(WORKFLOW_CANCELLED, "The run was deleted")
    runtime.set_status(run_id, RunStatus.CANCELLED, error=error)
    admission.forget(runtime, [run_id])
    _delete_steps(runtime, [run_id], made_by=None)
    return bool(runtime.runs.remove([run_id], statuses=TERMINAL, ended_by=None))


def prune(runtime: Runtime, runs: Ended, *, batch: int, dry_run: bool) -> Iterator[Pruned]:
    """Delete these runs, the oldest first; answers with what each batch of so many came to. With `dry_run` it only
    counts them."""
    seen: tuple[datetime, str] | None = None
    while found := list(old_runs(runtime, runs, seen).values_list("created_at", "id")[:batch]):
        seen = found[-1]
        run_ids = [run_id for _, run_id in found]
        needed = _needed(runtime, run_ids, runs)
        free = [run_id for run_id in run_ids if run_id not in needed]
        yield Pruned(kept=len(needed)) + (Pruned(deleted=len(free)) if dry_run else _delete(runtime, free, runs))
        if len(found) < batch:
            return


def old_runs(runtime: Runtime, runs: Ended, seen: tuple[datetime, str] | None) -> QuerySet[WorkflowRun]:
    """These runs, those that began first in front, after the one that was seen last. By the index of their status:
    nothing ended before it began, so the time of the beginning is a first sieve."""
    found = runtime.runs.filter(status=runs.status, created_at__lte=runs.by, updated_at__lte=runs.by)
    if runs.workflow is not None:
        found = found.filter(workflow=runs.workflow)
    if seen is not None:
        created_at, run_id = seen
        found = found.filter(Q(created_at__gt=created_at) | Q(id__gt=run_id), created_at__gte=created_at)
    return found.order_by("created_at", "id")


def _needed(runtime: Runtime, run_ids: Sequence[str], runs: Ended) -> set[str]:
    """Those that something still needs: a worker that is in a step of a cancelled run, or a child that lives."""
    children = runtime.runs.filter(parent_run_id__in=run_ids, status__in=LIVE).order_by()
    running = Q(status=StepStatus.RUNNING, due_at__isnull=False)
    steps = runtime.steps.filter(running | Q(created_at__gt=runs.made_by), run_id__in=run_ids)
    return {
        *steps.order_by().values_list("run_id", flat=True).distinct(),
        *(str(parent) for parent in children.values_list("parent_run_id", flat=True).distinct()),
    }


def _delete(runtime: Runtime, run_ids: Sequence[str], runs: Ended) -> Pruned:
    if not run_ids:
        return Pruned()
    admission.forget(runtime, run_ids)
    try:
        _delete_steps(runtime, run_ids, made_by=runs.made_by)
        return Pruned(deleted=runtime.runs.remove(run_ids, statuses=[runs.status], ended_by=runs.by))
    except IntegrityError:
        # Somebody has added to one of them meanwhile.
        return Pruned(kept=len(run_ids))


def _delete_steps(runtime: Runtime, run_ids: Sequence[str], *, made_by: datetime | None) -> None:
    runtime.answers.remove(run_ids, made_by=made_by)
    steps = runtime.steps.filter(run_id__in=run_ids)
    if made_by is not None:
        steps = steps.filter(created_at__lte=made_by)
    while step_ids := list(steps.order_by().values_list("id", flat=True)[:STEPS]):
        runtime.steps.remove(step_ids, made_by=made_by)
        if len(step_ids) < STEPS:
            return
