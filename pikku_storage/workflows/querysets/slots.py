"""State changes of slots: the places that a concurrency limit has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError

from pikku_storage.db.operations import Delete, Guard, Insert
from pikku_storage.ids import derived_id
from pikku_storage.workflows.querysets.base import LIVE, EngineQuerySet

if TYPE_CHECKING:
    from pikku_storage.workflows.models import WorkflowSlot  # noqa: F401 - named in the base class as text


class SlotQuerySet(EngineQuerySet["WorkflowSlot"]):
    """A row is a slot that a run holds. Taking one is its insertion, which its primary key lets one caller do; giving
    it back is its deletion."""

    def held(self, scopes: Sequence[str]) -> list[dict[str, Any]]:
        """`scope`, `number` and `run_id` of the slots that are held of these limits."""
        return self.engine.read(self.model, {"scope": list(scopes)}, ("scope", "number", "run_id"))

    def take(
        self,
        scope: str,
        number: int,
        run_id: str,
        *,
        workflow: str,
        key: str | None,
        at: datetime,
        inside: Mapping[str, Any],
    ) -> bool | None:
        """Take a slot for a run that a pass is inside of, as `inside` says; `False` if another run was faster, `None`
        if the pass is over."""
        values = {
            "id": derived_id(scope, str(number)),
            "scope": scope,
            "workflow": workflow,
            "key": key,
            "number": number,
            "run_id": run_id,
            "taken_at": at,
        }
        try:
            with self.engine.savepoint():
                taken = self._apply(self._run(run_id, inside), Insert(self.model, values))[0]
        except IntegrityError:
            return False
        return True if taken else None

    def give_back(self, run_id: str, *, where: Mapping[str, Any]) -> bool:
        """Give back what a run holds, where this holds of the run; whether it held something.

        A worker that lost the run gives nothing back: who is inside now may count on the slots.
        """
        return bool(self._apply(self._run(run_id, where), Delete(self.model, {"run_id": run_id}))[0])

    def clear(self, run_ids: Collection[str]) -> int:
        """Take the slots of runs that have ended, or are gone: they never come in again."""
        if not run_ids:
            return 0
        return self._apply(Delete(self.model, {"run_id": sorted(run_ids)}))[0]

    def of(self, run_ids: Collection[str]) -> list[dict[str, Any]]:
        """`run_id`, `workflow` and `key` of the slots that these runs hold."""
        return self.engine.read(self.model, {"run_id": sorted(run_ids)}, ("run_id", "workflow", "key"))

    def of_ended(self, limit: int) -> list[dict[str, Any]]:
        """`run_id`, `workflow` and `key` of slots whose run has ended; the crash of a process leaves them."""
        ended = self.exclude(run__status__in=LIVE).order_by("id")
        return [dict(row) for row in ended.values("run_id", "workflow", "key")[:limit]]

    def _run(self, run_id: str, where: Mapping[str, Any]) -> Guard:
        run_model = self.model._meta.get_field("run").related_model
        return Guard(run_model, {"id": run_id, **where})
