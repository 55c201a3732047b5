"""The read side of workflows (contract services.md §2)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import router
from django.db.models import Q

from pikku_storage.access.actors import id_of
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.workflows import reads
from pikku_storage.workflows.engine import retention
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.records import Answer, HistoryEntry, OpenApproval, Run, StepDetail, Version
from pikku_storage.workflows.timeline import TimelineEvent, build_run_timeline


class WorkflowRunService(AsyncTwins):
    """Reads runs; deletes whole ones. Knows nothing of owners: whoever may call it may see every run."""

    def __init__(self, using: str | None = None) -> None:
        self.using = using or router.db_for_read(WorkflowRun)

    def list_runs(
        self,
        *,
        workflow_name: str | None = None,
        status: str | None = None,
        owner_id: str | None = None,
        parent_run_id: str | None = None,
        limit: int = 50,
        offset: int = 0,
        before: tuple[datetime, str] | None = None,
    ) -> list[Run]:
        """Runs, the newest first. `before` is the `(created_at, id)` of the last run seen: pages by key cost the same
        however deep."""
        filters = {
            "workflow": workflow_name,
            "status": status,
            "owner_id": owner_id,
            "parent_run_id": parent_run_id,
        }
        runs = WorkflowRun.objects.using(self.using).filter(
            **{name: value for name, value in filters.items() if value is not None}
        )
        if before is not None:
            created_at, run_id = before
            runs = runs.filter(Q(created_at__lt=created_at) | Q(created_at=created_at, id__lt=run_id))
        rows = runs.order_by("-created_at", "-id").values(*Run.COLUMNS)[offset : offset + limit]
        return [Run.from_row(row) for row in rows]

    def get_run(self, run_id: str) -> Run | None:
        """The run, or `None`."""
        row = WorkflowRun.objects.using(self.using).filter(pk=run_id).values(*Run.COLUMNS).first()
        return None if row is None else Run.from_row(row)

    def list_open_approvals(
        self,
        *,
        workflow_name: str | None = None,
        owner: Any = None,
        limit: int = 50,
        after: tuple[datetime, str] | None = None,
    ) -> list[OpenApproval]:
        """Approvals that wait for an answer, the oldest first; `owner` is whose runs. `after` is the `(opened_at,
        run_id)` of the last one seen: pages by key cost the same however deep. Two reads."""
        filters = {"workflow": workflow_name, "owner_id": None if owner is None else id_of(owner, role="owner")}
        return reads.open_approvals(
            self.using, {name: value for name, value in filters.items() if value is not None}, after, limit
        )

    def get_run_answers(self, run_id: str) -> list[Answer]:
        """The answers to the run's approvals, also those that were refused, in the order they were given."""
        return reads.answers(self.using, run_id)

    def get_run_steps(self, run_id: str) -> list[StepDetail]:
        """The run's steps, oldest first."""
        return reads.step_details(self.using, run_id)

    def get_run_history(self, run_id: str) -> list[HistoryEntry]:
        """The run's attempts, oldest first."""
        return reads.run_history(self.using, run_id)

    def get_run_timeline(self, run_id: str) -> list[TimelineEvent] | None:
        """The run's events; `None` for an unknown run."""
        history = self.get_run_history(run_id)
        if not history and self.get_run(run_id) is None:
            return None
        return build_run_timeline(history)

    def get_distinct_workflow_names(self) -> list[str]:
        """Names of all workflows that have a run, sorted."""
        names: Any = WorkflowRun.objects.using(self.using).order_by("workflow").values_list("workflow", flat=True)
        return list(names.distinct())

    def get_workflow_version(self, name: str, graph_hash: str) -> Version | None:
        """A stored definition, or `None`."""
        return reads.version(self.using, name, graph_hash)

    def delete_run(self, run_id: str) -> bool:
        """Delete a run with its steps and attempts; whether there was one. A live one is cancelled first. After a crash
        in the middle it is deleted by asking again."""
        return retention.delete_run(Runtime(self.using), run_id)
