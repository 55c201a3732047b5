"""Making the rows of one database those of another: what a mirror missed, brought over.

Both sides are read and compared, what differs is written, and then they are compared again: whoever writes a row that
another one has changed meanwhile sees it, and the last to write has seen that nothing did. So any number of these may
run at once, beside workers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, TypeAlias

from django.db import IntegrityError, models
from django.db.models import Q

from pikku_storage.db import Engine
from pikku_storage.db.operations import Delete, Operation, Update
from pikku_storage.workflows.models import WorkflowRun, WorkflowStep, WorkflowStepHistory, WorkflowVersion
from pikku_storage.workflows.querysets import LIVE
from pikku_storage.workflows.querysets.rows import insert_of

logger = logging.getLogger(__name__)

BATCH = 50
"""Runs that are compared at a time."""
KEYS, ROWS = 500, 100
"""Most ids in one read, and most rows in one insert."""
ROUNDS = 5
"""How often two sides are made equal that do not stay so."""

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Gap:
    """How one table differs: rows that the mirror has not, has otherwise, and has alone."""

    model: type[models.Model]
    missing: list[Row]
    different: list[Row]
    left_over: list[str]
    ids: list[str]
    """Of all rows that were compared."""

    def __len__(self) -> int:
        return len(self.missing) + len(self.different) + len(self.left_over)


@dataclass(frozen=True, slots=True)
class Pair:
    """A database, and the one that is to be like it."""

    source: Engine
    mirror: Engine

    def compare_runs(self, run_ids: Sequence[str]) -> list[Gap]:
        """How these runs differ, with their steps and attempts; parents come first."""
        runs = self._compare(WorkflowRun, "id", run_ids)
        steps = self._compare(WorkflowStep, "run_id", run_ids)
        return [runs, steps, self._compare(WorkflowStepHistory, "step_id", steps.ids)]

    def copy_runs(self, run_ids: Sequence[str]) -> int:
        """Make the mirror's runs the source's; answers how many rows that took."""
        return self._level(lambda: self.compare_runs(run_ids), run_ids)

    def copy_rows(self, model: type[models.Model], ids: Sequence[str]) -> int:
        """As `copy_runs`, for rows of one table and not what belongs to them."""
        return self._level(lambda: [self._compare(model, "id", ids)], ids)

    def compare(self, since: datetime | None = None) -> Iterator[Gap]:
        """How everything differs, or what may have changed since then."""
        for ids in self._versions():
            yield self._compare(WorkflowVersion, "id", ids)
        for ids in self._runs(since):
            yield from self.compare_runs(ids)

    def copy(self, since: datetime | None = None) -> int:
        """Make everything equal, or what may have changed since then; answers how many rows that took."""
        versions = (self.copy_rows(WorkflowVersion, ids) for ids in self._versions())
        return sum(chain(versions, map(self.copy_runs, self._runs(since))))

    # -- two sides -----------------------------------------------------------------------------------------------------

    def _compare(self, model: type[models.Model], key: str, values: Sequence[str]) -> Gap:
        source, mirror = (_read(engine, model, key, values) for engine in (self.source, self.mirror))
        return Gap(
            model,
            missing=[row for pk, row in source.items() if pk not in mirror],
            different=[row for pk, row in source.items() if mirror.get(pk, row) != row],
            left_over=[pk for pk in mirror if pk not in source],
            ids=[*source, *(pk for pk in mirror if pk not in source)],
        )

    def _level(self, compare: Callable[[], list[Gap]], ids: Sequence[str]) -> int:
        written = 0
        for _ in range(ROUNDS):
            gaps = compare()
            if not any(gaps):
                return written
            written += sum(map(len, gaps))
            for operation in _remedy(gaps):
                # Somebody else may be doing the same.
                with suppress(IntegrityError), self.mirror.savepoint():
                    self.mirror.apply(operation, durable=False)
        logger.warning("The mirror does not become like its source: %s", ", ".join(ids))
        return written

    # -- what to compare -----------------------------------------------------------------------------------------------

    def _versions(self) -> Iterator[list[str]]:
        for engine in (self.source, self.mirror):
            yield from _pages(engine, WorkflowVersion, Q(), "id")

    def _runs(self, since: datetime | None) -> Iterator[list[str]]:
        """Ids of runs, a page at a time. What changes leaves a trace: a later time, or something that is still due, on
        one side or the other."""
        if since is None:
            yield from _pages(self.source, WorkflowRun, Q(), "id")
        else:
            due = Q(due_at__isnull=False)
            yield from _pages(self.source, WorkflowRun, Q(updated_at__gte=since) | Q(status__in=LIVE), "id")
            yield from _pages(self.source, WorkflowStep, Q(updated_at__gte=since) | due, "run_id")
            yield from _pages(self.mirror, WorkflowStep, due, "run_id")
        for ids in _pages(self.mirror, WorkflowRun, Q(), "id"):
            gone = set(ids).difference(_ids(self.source, ids))
            if gone:
                yield sorted(gone)


def _read(engine: Engine, model: type[models.Model], key: str, values: Sequence[str]) -> dict[str, Row]:
    columns = [field.attname for field in model._meta.concrete_fields]
    rows: dict[str, Row] = {}
    for start in range(0, len(values), KEYS):
        for row in engine.read(model, {key: list(values[start : start + KEYS])}, columns):
            rows[row["id"]] = row if model is not WorkflowRun else {**row, **_filled(row)}
    return rows


def _filled(run: Row) -> Row:
    """What one database leaves out and another one has a default for."""
    return {
        "state": run["state"] or {},
        "inline": bool(run["inline"]),
        "deterministic": bool(run["deterministic"]),
        "planned_steps": run["planned_steps"] or None,
    }


def _ids(engine: Engine, run_ids: Sequence[str]) -> Iterable[str]:
    return (row["id"] for row in engine.read(WorkflowRun, {"id": list(run_ids)}, ("id",)))


def _remedy(gaps: Sequence[Gap]) -> Iterator[Operation]:
    for gap in reversed(gaps):
        for start in range(0, len(gap.left_over), KEYS):
            yield Delete(gap.model, {"id": gap.left_over[start : start + KEYS]})
    for gap in gaps:
        for start in range(0, len(gap.missing), ROWS):
            yield insert_of(gap.model, gap.missing[start : start + ROWS])
        for row in gap.different:
            yield Update(gap.model, {"id": row["id"]}, {name: row[name] for name in row if name != "id"})


def _pages(engine: Engine, model: type[models.Model], condition: Q, column: str) -> Iterator[list[str]]:
    rows = model._default_manager.using(engine.using).filter(condition).order_by("pk")
    last = ""
    while page := list(rows.filter(pk__gt=last).values_list("pk", column)[:BATCH]):
        last = page[-1][0]
        yield list(dict.fromkeys(value for _, value in page))
