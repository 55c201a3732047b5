"""The public operations on schedules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, TypeAlias

from django.conf import settings as django_settings

from pikku_storage.access.actors import user_id_of
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.exceptions import PayloadError, ScheduleNotFoundError, WorkflowError, WorkflowInputError
from pikku_storage.json import Json, to_json_object, to_text
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.models import WorkflowSchedule
from pikku_storage.workflows.records import BackfilledFire, Schedule
from pikku_storage.workflows.registry import registry
from pikku_storage.workflows.schedules.declarations import NAME_LENGTH, checked
from pikku_storage.workflows.schedules.fires import Fires
from pikku_storage.workflows.schedules.firing import keep_version, run_of
from pikku_storage.workflows.schedules.policies import CatchUp, Overlap, ScheduleSource
from pikku_storage.workflows.schedules.synchronising import synchronise

# `list` is the name of an operation below.
Schedules: TypeAlias = list[Schedule]
Times: TypeAlias = list[datetime]
Backfilled: TypeAlias = list[BackfilledFire]

_BATCH = 500
_TRIES = 5


class ScheduleService(AsyncTwins):
    """Makes, changes and lists schedules. Knows nothing of owners: whoever may call it may see and change each.

    Methods that take a name raise `ScheduleNotFoundError`. What the code declares can be paused, resumed and backfilled
    here, and is changed in the code.
    """

    def __init__(self, using: str | None = None) -> None:
        self._runtime = Runtime(using)

    # -- making and changing -------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        workflow: str,
        cron: str,
        *,
        timezone: str | None = None,
        data: Mapping[str, Any] | None = None,
        owner: Any = None,
        catch_up: str = CatchUp.LATEST,
        overlap: str = Overlap.ALLOW,
        enabled: bool = True,
    ) -> Schedule:
        """Store a schedule, whose first fire is the next one of its expression. `timezone` is by default that of the
        project's settings; `data` becomes the input of each run.

        Raises `WorkflowNotFoundError`, and `WorkflowInputError` or `PayloadError` for what cannot be used and for a
        name that is taken.
        """
        known = registry.workflows.get(to_text(name, root="$name", longest=NAME_LENGTH))
        if known is not None and known.schedule is not None:
            raise WorkflowInputError(f"The name {name!r} is taken by the schedule that the code declares")
        zone = str(django_settings.TIME_ZONE) if timezone is None else timezone
        at = self._runtime.now()
        values = {
            **_fitting(workflow, {} if data is None else data, at),
            **_timing(cron, zone, catch_up, overlap),
            "id": WorkflowSchedule.id_of(name),
            "name": name,
            "owner_id": user_id_of(owner),
            "source": ScheduleSource.OPERATOR.value,
            "enabled": enabled,
            "undeclared": False,
        }
        values |= {"next_fire_at": self._next(values, at), "created_at": at, "updated_at": at}
        if not self._runtime.schedules.add(values):
            raise WorkflowInputError(f"There is a schedule of the name {name!r} already")
        return self._read(name)

    def update(
        self,
        name: str,
        *,
        cron: str | None = None,
        timezone: str | None = None,
        data: Mapping[str, Any] | None = None,
        owner: Any = None,
        catch_up: str | None = None,
        overlap: str | None = None,
    ) -> Schedule:
        """Change what is given, and leave the rest; `owner=""` takes the owner away. With another expression or time
        zone the next fire is the next one of these.

        Raises as `create` does, and `WorkflowInputError` for a schedule that the code declares.
        """
        for _ in range(_TRIES):
            seen = self._read(name)
            if seen.source == ScheduleSource.CODE:
                raise WorkflowInputError(f"The schedule {name!r} is declared in the code, and is changed there")
            at = self._runtime.now()
            values = {
                **_fitting(seen.workflow, seen.input if data is None else data, at),
                **_timing(
                    cron or seen.cron, timezone or seen.timezone, catch_up or seen.catch_up, overlap or seen.overlap
                ),
                "owner_id": seen.owner_id if owner is None else user_id_of(owner),
                "enabled": seen.enabled,
            }
            is_moved = (values["cron"], values["timezone"]) != (seen.cron, seen.timezone)
            values["next_fire_at"] = self._next(values, at) if is_moved else seen.next_fire_at
            if self._runtime.schedules.edit(seen, {**values, "updated_at": at}):
                return self._read(name)
        raise WorkflowError(f"The schedule {name!r} changes all the time; try again")

    def pause(self, name: str) -> bool:
        """Let it fire no more; `False` if it was paused already. Its runs go on."""
        return self._runtime.schedules.pause(self._read(name).id, at=self._runtime.now())

    def resume(self, name: str) -> bool:
        """Let it fire again, from the next time on: what was missed meanwhile is not caught up. `False` if it was not
        paused, or was changed at the same moment."""
        seen, at = self._read(name), self._runtime.now()
        fires = Fires(seen.cron, seen.timezone)
        return self._runtime.schedules.resume(seen, next_fire_at=fires.after(at), at=at)

    def delete(self, name: str) -> bool:
        """Delete a schedule; its runs stay. `False` for one that the code declares, which would only come back."""
        return self._runtime.schedules.remove(self._read(name).id)

    def synchronise(self) -> int:
        """Bring the schedules into step with what the code of this process declares, as the relay does from time to
        time; answers how many were changed."""
        return synchronise(self._runtime)

    # -- looking -------------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Schedule | None:
        """The schedule, or `None`."""
        rows = self._runtime.engine.read(WorkflowSchedule, {"id": WorkflowSchedule.id_of(name)}, Schedule.COLUMNS)
        return Schedule(**rows[0]) if rows else None

    def list(self) -> Schedules:
        """All schedules, by name."""
        rows = self._runtime.schedules.order_by("name", "id").values(*Schedule.COLUMNS)
        return [Schedule(**row) for row in rows]

    def next_fires(self, name: str, count: int = 5) -> Times:
        """The times of the next `count` fires, in UTC; none if the schedule does not fire."""
        return next_fires_of(self._read(name), count)

    # -- backfill ------------------------------------------------------------------------------------------------------

    def backfill(self, name: str, *, start: datetime, end: datetime, dry_run: bool = False) -> Backfilled:
        """Start the runs of all fires from `start` to `end`, both included, that have none yet; `dry_run` only says
        which. A paused schedule can be backfilled, and the policies for missed and overlapping fires do not count.

        Raises `WorkflowInputError` for times without a time zone, in the wrong order or in the future.
        """
        schedule, at = self._read(name), self._runtime.now()
        if start.tzinfo is None or end.tzinfo is None:
            raise WorkflowInputError("A backfill is from one aware time to another: with a time zone")
        if not start <= end <= at:
            raise WorkflowInputError("A backfill is from a time to a later one, and not into the future")
        if not dry_run:
            keep_version(self._runtime, schedule)
        done: Backfilled = []
        for fires in _batches(Fires(schedule.cron, schedule.timezone).between(start, end)):
            runs = {fire_at: run_of(self._runtime, schedule, fire_at, at=at) for fire_at in fires}
            ids = [run["id"] for run in runs.values()]
            present = set(self._runtime.runs.filter(pk__in=ids).values_list("pk", flat=True))
            for fire_at, run in runs.items():
                created = run["id"] not in present and (dry_run or self._start(run))
                done.append(BackfilledFire(fire_at=fire_at, run_id=run["id"], created=created))
        return done

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _start(self, run: Mapping[str, Any]) -> bool:
        created = self._runtime.runs.create_run(run)
        if created:
            self._runtime.hint(self._runtime.message(run["id"], priority=run["priority"]))
        return created

    def _read(self, name: str) -> Schedule:
        schedule = self.get(name)
        if schedule is None:
            raise ScheduleNotFoundError(name)
        return schedule

    def _next(self, values: Mapping[str, Any], at: datetime) -> datetime | None:
        return Fires(values["cron"], values["timezone"]).after(at) if values["enabled"] else None


def next_fires_of(schedule: Schedule, count: int) -> Times:
    """As `ScheduleService.next_fires`, for a schedule that is read already."""
    if not schedule.is_active or schedule.next_fire_at is None:
        return []
    fires = Fires(schedule.cron, schedule.timezone).next(count, after=schedule.next_fire_at)
    return [schedule.next_fire_at, *fires][:count]


def _fitting(workflow: str, data: Mapping[str, Any], at: datetime) -> dict[str, Json]:
    definition = registry.workflow(workflow)
    plain = to_json_object(data, root="$input")
    definition.check(plain)
    definition.flow_control(plain, at=at)
    return {"workflow": workflow, "input": plain}


def _timing(cron: str, timezone: str, catch_up: str, overlap: str) -> dict[str, Json]:
    try:
        fires = checked(cron, timezone)
        policies = {"catch_up": CatchUp(catch_up).value, "overlap": Overlap(overlap).value}
    except PayloadError:
        raise
    except ValueError as error:
        raise WorkflowInputError(str(error)) from None
    return {"cron": fires.cron, "timezone": fires.timezone, **policies}


def _batches(fires: Iterable[datetime]) -> Iterator[Times]:
    rest = iter(fires)
    while batch := list(islice(rest, _BATCH)):
        yield batch
