"""State changes of schedules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError

from pikku_storage.db.operations import Delete, Insert, Update
from pikku_storage.workflows.querysets.base import EngineQuerySet
from pikku_storage.workflows.records import Schedule
from pikku_storage.workflows.schedules.policies import ScheduleSource

if TYPE_CHECKING:
    from pikku_storage.workflows.models import WorkflowSchedule  # noqa: F401 - named in the base class as text

BY_OPERATOR = {"source": ScheduleSource.OPERATOR.value}
BY_CODE = {"source": ScheduleSource.CODE.value}


class ScheduleQuerySet(EngineQuerySet["WorkflowSchedule"]):
    """State changes of schedules. Whoever writes a fire time has computed it from an expression and a time zone, and
    its WHERE says that they are still these."""

    def add(self, values: Mapping[str, Any]) -> bool:
        """Store a schedule; `False` if there is one of that name already."""
        try:
            with self.engine.savepoint():
                self._apply(Insert(self.model, values))
        except IntegrityError:
            if self.filter(pk=values["id"]).exists():
                return False
            raise
        return True

    def fire(
        self,
        seen: Schedule,
        *,
        next_fire_at: datetime,
        at: datetime,
        fire_at: datetime | None = None,
        run: Insert | None = None,
    ) -> bool:
        """Go on to the next fire, and store the run of the one at `fire_at` with it; for the one relay that saw the
        schedule as it is (compare-and-swap).

        A run that is there already (somebody backfilled it) stays as it is.
        """
        moved: dict[str, Any] = {"next_fire_at": next_fire_at, "updated_at": at}
        where = {**_as_seen(seen), "next_fire_at": seen.next_fire_at, "undeclared": False}
        if run is None:
            return self._change(where, **moved)
        run_id = run.values["id"]
        moved |= {"last_fire_at": fire_at, "last_run_id": run_id}
        try:
            with self.engine.savepoint():
                return bool(self._apply(Update(self.model, where, moved), run)[0])
        except IntegrityError:
            if not run.model._default_manager.using(self.db).filter(pk=run_id).exists():
                raise
        return self._change(where, **moved)

    def pause(self, schedule_id: str, *, at: datetime) -> bool:
        """No more fires."""
        return self._change({"id": schedule_id, "enabled": True}, enabled=False, next_fire_at=None, updated_at=at)

    def resume(self, seen: Schedule, *, next_fire_at: datetime, at: datetime) -> bool:
        """Fires again, from `next_fire_at` on."""
        where = {**_as_seen(seen), "enabled": False}
        return self._change(where, enabled=True, next_fire_at=next_fire_at, updated_at=at)

    def edit(self, seen: Schedule, values: Mapping[str, Any]) -> bool:
        """Change what an operator made, if it is still as it was seen."""
        where = {**_as_seen(seen), **BY_OPERATOR, "enabled": seen.enabled, "next_fire_at": seen.next_fire_at}
        return self._change(where, **values)

    def declare_again(self, seen: Schedule, values: Mapping[str, Any]) -> bool:
        """Take over what the code says now, if the schedule is still as it was seen."""
        where = {**_as_seen(seen), **BY_CODE, "enabled": seen.enabled, "undeclared": seen.undeclared}
        return self._change(where, **values)

    def undeclare(self, schedule_id: str, *, at: datetime) -> bool:
        """The code does not have it any more. The time of its next fire stays, for the day it comes back."""
        return self._change({"id": schedule_id, **BY_CODE, "undeclared": False}, undeclared=True, updated_at=at)

    def remove(self, schedule_id: str) -> bool:
        """Delete what an operator made, or what is gone from the code."""
        removable: tuple[dict[str, Any], ...] = (BY_OPERATOR, {"undeclared": True})
        return any(self._apply(Delete(self.model, {"id": schedule_id, **each}))[0] for each in removable)

    def _change(self, where: Mapping[str, Any], /, **values: Any) -> bool:
        return bool(self._apply(Update(self.model, where, values))[0])


def _as_seen(seen: Schedule) -> dict[str, Any]:
    return {"id": seen.id, "cron": seen.cron, "timezone": seen.timezone}
