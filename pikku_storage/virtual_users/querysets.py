"""Every change of the rows of virtual users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError

from pikku_storage.db.operations import Delete, Insert, InsertMany, Update
from pikku_storage.db.querysets import EngineQuerySet
from pikku_storage.virtual_users.statuses import RunStatus

if TYPE_CHECKING:
    from pikku_storage.virtual_users.models import (  # noqa: F401 - named as text
        VirtualUserRun,
        VirtualUserRunStep,
        VirtualUserSchedule,
    )

CHUNK = 50
"""How many steps are inserted by one statement (contract services.md §0)."""


class VirtualUserRunQuerySet(EngineQuerySet["VirtualUserRun"]):
    """Runs."""

    def add(self, values: Mapping[str, Any]) -> None:
        """Insert a run."""
        self.engine.apply(Insert(self.model, values))

    def end(
        self,
        run_id: str,
        values: Mapping[str, Any],
        steps_of: type[VirtualUserRunStep] | None = None,
        steps: Sequence[Mapping[str, Any]] = (),
    ) -> bool:
        """Set these columns of a run that is running, and insert its steps, all of it or nothing; `False` if it is not
        running, or there is none."""
        running = {"run_id": run_id, "status": RunStatus.RUNNING}
        chunks = [
            InsertMany(steps_of, {"run_id": run_id}, steps[start : start + CHUNK])
            for start in range(0, len(steps), CHUNK)
            if steps_of is not None
        ]
        return bool(self.engine.apply(Update(self.model, running, values), *chunks)[0])


class VirtualUserStepQuerySet(EngineQuerySet["VirtualUserRunStep"]):
    """Steps. Rows are only ever added, with the end of their run."""


class VirtualUserScheduleQuerySet(EngineQuerySet["VirtualUserSchedule"]):
    """Schedules."""

    def put(self, persona: str, values: Mapping[str, Any], *, defaults: Mapping[str, Any]) -> None:
        """Set these columns of a schedule; a new one has the defaults beside."""
        if values:
            new = {name: value for name, value in defaults.items() if name not in values}
            self.upsert({"persona": persona}, values, new=new)
            return
        try:
            with self.engine.savepoint():
                self.engine.apply(Insert(self.model, {"persona": persona, **defaults}))
        except IntegrityError:
            # It is there, and nothing of it changes.
            return

    def claim(self, persona: str, *, seen: datetime, values: Mapping[str, Any]) -> bool:
        """Set these columns if the next run is still at the time that was seen."""
        return bool(self.engine.apply(Update(self.model, {"persona": persona, "next_run_at": seen}, values))[0])

    def remove(self, persona: str) -> bool:
        """Delete a schedule; `False` if there is none."""
        return bool(self.engine.apply(Delete(self.model, {"persona": persona}))[0])
