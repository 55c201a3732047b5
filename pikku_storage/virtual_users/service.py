"""Runs and schedules of virtual users (contract services.md §17)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypedDict, Unpack

from django.db import router
from django.db.models import Q

from pikku_storage.async_twins import AsyncTwins
from pikku_storage.db import engine
from pikku_storage.db.fields import cut
from pikku_storage.exceptions import VirtualUserInputError
from pikku_storage.ids import new_id
from pikku_storage.json import Json
from pikku_storage.virtual_users import inputs
from pikku_storage.virtual_users.models import VirtualUserRun as RunRow
from pikku_storage.virtual_users.models import VirtualUserRunStep as StepRow
from pikku_storage.virtual_users.models import VirtualUserSchedule as ScheduleRow
from pikku_storage.virtual_users.querysets import VirtualUserRunQuerySet, VirtualUserScheduleQuerySet
from pikku_storage.virtual_users.records import VirtualUserRun, VirtualUserSchedule, VirtualUserStep, columns
from pikku_storage.virtual_users.statuses import Disposition, RunStatus

MIN_INTERVAL, MAX_INTERVAL = timedelta(hours=6), timedelta(hours=24)
"""Between which two runs of a persona lie, unless its schedule says otherwise (contract services.md §0)."""

# Inside of the classes these names are methods.
Runs: TypeAlias = list[VirtualUserRun]
Steps: TypeAlias = list[VirtualUserStep]
Schedules: TypeAlias = list[VirtualUserSchedule]


class VirtualUserRunStore(AsyncTwins):
    """What virtual users did. Every method has an async twin."""

    def __init__(self, using: str | None = None) -> None:
        self.using = using or router.db_for_write(RunRow)
        self._engine = engine(self.using)

    def start(
        self,
        persona: str,
        disposition: str,
        seed: int,
        *,
        goals: Iterable[Json] = (),
        memory: Json = None,
        started_by: str | None = None,
    ) -> str:
        """Record that a run begins; answers with its id. Raises `VirtualUserInputError` and `PayloadError`."""
        run_id = new_id()
        self._rows.add(
            {
                "run_id": run_id,
                "persona": inputs.name(persona, "$persona"),
                "disposition": inputs.disposition(disposition, "$disposition"),
                "seed": inputs.number(seed, "$seed"),
                "status": RunStatus.RUNNING,
                "goals": inputs.items(goals, "$goals"),
                "memory": {} if memory is None else inputs.json_object(memory, "$memory"),
                "findings": [],
                "intents": [],
                "started_by": inputs.optional(inputs.name)(started_by, "$started_by"),
                "created_at": self._engine.now(),
            }
        )
        return run_id

    def complete(
        self,
        run_id: str,
        *,
        findings: Iterable[Json] = (),
        tally: Json = None,
        memory: Json = None,
        intents: Iterable[Json] = (),
        stopped_by: str | None = None,
        steps: Iterable[Any] = (),
    ) -> bool:
        """Record how a run ended, and its transcript: all of it or nothing. `False`, and nothing is written, if it is
        not running, or there is none. A memory replaces the one it began with; without one that stays."""
        values = {
            "status": RunStatus.COMPLETED,
            "findings": inputs.items(findings, "$findings"),
            "tally": inputs.json(tally, "$tally"),
            "intents": inputs.items(intents, "$intents"),
            "stopped_by": inputs.optional(inputs.name)(stopped_by, "$stopped_by"),
            "finished_at": self._engine.now(),
        }
        if memory is not None:
            values["memory"] = inputs.json_object(memory, "$memory")
        rows = [{"key": StepRow.key_of(run_id, step.step_index), **asdict(step)} for step in inputs.steps(steps)]
        return self._rows.end(run_id, values, StepRow, rows)

    def fail(self, run_id: str, error: str) -> bool:
        """Record that a run failed; `False` if it is not running, or there is none."""
        text = inputs.json(str(error), "$error")
        values = {"status": RunStatus.FAILED, "error": text, "finished_at": self._engine.now()}
        return self._rows.end(run_id, values)

    def get(self, run_id: str) -> VirtualUserRun | None:
        """The run."""
        row = self._rows.filter(pk=run_id).values(*columns(VirtualUserRun)).first()
        return None if row is None else VirtualUserRun(**row)

    def list(
        self,
        *,
        persona: str | None = None,
        status: str | None = None,
        limit: int = 50,
        before: tuple[datetime, str] | None = None,
    ) -> Runs:
        """Runs, the newest first. `before` is the `(created_at, run_id)` of the last one seen."""
        rows = self._rows
        if persona is not None:
            rows = rows.filter(persona=persona)
        if status is not None:
            rows = rows.filter(status=status)
        if before is not None:
            at, run_id = before
            rows = rows.filter(Q(created_at__lt=at) | Q(created_at=at, run_id__lt=run_id))
        found = rows.order_by("-created_at", "-run_id").values(*columns(VirtualUserRun))[:limit]
        return [VirtualUserRun(**row) for row in found]

    def steps(self, run_id: str, *, limit: int = 1000, after: int | None = None) -> Steps:
        """The transcript of a run, by index; from after the index `after`."""
        rows = StepRow.objects.using(self.using).filter(run_id=run_id)
        if after is not None:
            rows = rows.filter(step_index__gt=after)
        found = rows.order_by("step_index").values(*columns(VirtualUserStep))[:limit]
        return [VirtualUserStep(**row) for row in found]

    def recover(self) -> int:
        """Finish transcripts that a crash cut short; on MongoDB only."""
        return self._engine.recover(RunRow)

    @property
    def _rows(self) -> VirtualUserRunQuerySet:
        rows: VirtualUserRunQuerySet = RunRow.objects.using(self.using)
        return rows


class ScheduleChanges(TypedDict, total=False):
    """What may be said of a schedule; intervals in milliseconds."""

    enabled: bool
    disposition: str
    goals: Iterable[Json]
    budget: Json
    min_interval_ms: int
    max_interval_ms: int
    next_run_at: datetime


_FIELDS: dict[str, inputs.Check] = {
    "enabled": inputs.flag,
    "disposition": inputs.disposition,
    "goals": inputs.items,
    "budget": inputs.json,
    "min_interval_ms": inputs.interval,
    "max_interval_ms": inputs.interval,
    "next_run_at": inputs.moment,
}


class VirtualUserScheduleStore(AsyncTwins):
    """When personas run next. Every method has an async twin."""

    def __init__(self, using: str | None = None) -> None:
        self.using = using or router.db_for_write(ScheduleRow)
        self._engine = engine(self.using)

    def set(self, persona: str, **changes: Unpack[ScheduleChanges]) -> None:
        """Change what is given, and nothing else. A new persona is disabled, realistic, runs every 6 to 24 hours, and
        is due at once when it is enabled. Raises `VirtualUserInputError` and `PayloadError`."""
        unknown = sorted(changes.keys() - _FIELDS.keys())
        if unknown:
            raise VirtualUserInputError(f"Unknown {', '.join(unknown)}; there are {', '.join(_FIELDS)}")
        defaults = {
            "enabled": False,
            "disposition": Disposition.REALISTIC,
            "goals": [],
            "min_interval_ms": MIN_INTERVAL // timedelta(milliseconds=1),
            "max_interval_ms": MAX_INTERVAL // timedelta(milliseconds=1),
            "next_run_at": self._engine.now(),
        }
        values = {key: _FIELDS[key](value, f"${key}") for key, value in changes.items()}
        self._rows.put(inputs.name(persona, "$persona"), values, defaults=defaults)

    def get(self, persona: str) -> VirtualUserSchedule | None:
        """The schedule of a persona."""
        return next(iter(self._read(self._rows.filter(pk=persona))), None)

    def list(self) -> Schedules:
        """All schedules, by persona."""
        return self._read(self._rows.order_by("persona"))

    def due(self, now: datetime | None = None) -> Schedules:
        """The enabled ones whose next run is not later than now, the longest due first."""
        rows = self._rows.filter(enabled=True, next_run_at__lte=now or self._engine.now())
        return self._read(rows.order_by("next_run_at", "persona"))

    def claim(
        self, persona: str, seen: datetime, next_run_at: datetime, run_id: str | None = None, *, at: Any = None
    ) -> bool:
        """Move the next run, if it is still at the time that was `seen`: `True` for exactly one of all who try. With a
        run, that is its last one, since `at` or now; without, the last one stays.

        Raises `VirtualUserInputError` for a claim without a run that moves nothing: everybody would win it.
        """
        seen, next_run_at = inputs.moment(seen, "$seen"), inputs.moment(next_run_at, "$next_run_at")
        values: dict[str, Any] = {"next_run_at": next_run_at}
        if run_id is not None:
            last = self._engine.now() if at is None else inputs.moment(at, "$at")
            values |= {"last_run_id": inputs.name(run_id, "$run_id"), "last_run_at": last}
        elif cut(seen) == cut(next_run_at):
            raise VirtualUserInputError("$next_run_at: must be another time than the one that was seen")
        return self._rows.claim(persona, seen=seen, values=values)

    def remove(self, persona: str) -> bool:
        """Delete a schedule; whether there was one."""
        return self._rows.remove(persona)

    def _read(self, rows: Any) -> Schedules:
        return [VirtualUserSchedule(**row) for row in rows.values(*columns(VirtualUserSchedule))]

    @property
    def _rows(self) -> VirtualUserScheduleQuerySet:
        rows: VirtualUserScheduleQuerySet = ScheduleRow.objects.using(self.using)
        return rows
