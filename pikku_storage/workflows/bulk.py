"""Doing one thing to many runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from django.db.models import Q

from pikku_storage.exceptions import PikkuError, WorkflowInputError
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.statuses import RunStatus

BATCH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs: those that meet all that is given. `statuses` is any of; `started_before` is exclusive.

    Something must be given: `WorkflowInputError`. So is one for a status that is none.
    """

    run_ids: Sequence[str] | None = None
    workflow: str | None = None
    statuses: Sequence[str] | None = None
    owner_id: str | None = None
    started_after: datetime | None = None
    started_before: datetime | None = None

    def __post_init__(self) -> None:
        if all(getattr(self, name) is None for name in self.__slots__):
            raise WorkflowInputError("Say which runs: by id, workflow, status, owner or time")
        unknown = sorted(set(self.statuses or ()) - set(RunStatus.values))
        if unknown:
            raise WorkflowInputError(f"No such status: {', '.join(unknown)}. There are {', '.join(RunStatus.values)}")

    def ids(self, using: str, *, statuses: Iterable[str]) -> Iterator[str]:
        """The ids of those that have one of `statuses` too, the oldest first, read in batches as they are asked for."""
        wanted = {
            "pk__in": self.run_ids,
            "workflow": self.workflow,
            "owner_id": self.owner_id,
            "created_at__gte": self.started_after,
            "created_at__lt": self.started_before,
            "status__in": sorted(set(statuses) & set(self.statuses if self.statuses is not None else RunStatus.values)),
        }
        runs = WorkflowRun.objects.using(using).filter(
            **{name: value for name, value in wanted.items() if value is not None}
        )
        last: tuple[datetime, str] | None = None
        while True:
            after = Q() if last is None else Q(created_at__gt=last[0]) | Q(created_at=last[0], pk__gt=last[1])
            batch = list(runs.filter(after).order_by("created_at", "pk").values_list("created_at", "pk")[:BATCH])
            yield from (run_id for _at, run_id in batch)
            if len(batch) < BATCH:
                return
            last = batch[-1]


@dataclass(slots=True)
class BulkReport:
    """Ids of the runs that were changed, of those that were not because somebody else was faster, and what went wrong
    with others."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def in_bulk(action: Callable[[str], Any], run_ids: Iterable[str], *, limit: int | None = None) -> BulkReport:
    """Do it to each, and go on whatever happens to one. `action` answers whether it changed the run."""
    report = BulkReport()
    for run_id in islice(run_ids, limit):
        try:
            (report.done if action(run_id) else report.skipped).append(run_id)
        except PikkuError as error:
            report.failed[run_id] = str(error)
    return report
