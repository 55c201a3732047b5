"""State changes of the trails of approvals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError

from pikku_storage.db.operations import Delete, Expired, Insert, Update
from pikku_storage.json import Json
from pikku_storage.workflows.querysets.base import EngineQuerySet
from pikku_storage.workflows.records import Answer
from pikku_storage.workflows.statuses import Verdict

if TYPE_CHECKING:
    from pikku_storage.workflows.models import WorkflowAnswer  # noqa: F401 - named in the base class as text


class AnswerQuerySet(EngineQuerySet["WorkflowAnswer"]):
    """State changes of the trails of approvals. The next entry of a trail is whoever's inserts it first."""

    def of_gate(self, run_id: str, step_name: str) -> list[Answer]:
        """The trail of an approval, from its first entry on."""
        where = {"run_id": run_id, "step_name": step_name}
        rows = self.engine.read(self.model, where, Answer.COLUMNS, order_by=("ordinal",))
        return [Answer(**row) for row in rows]

    def answer(
        self,
        run_id: str,
        step_name: str,
        ordinal: int,
        *,
        decision: Json,
        decided_by: Json,
        at: datetime,
        due_at: datetime,
    ) -> bool:
        """Enter somebody's decision, to be judged; `False` if there is another entry in this place."""
        values = {"decision": decision, "decided_by": decided_by, "due_at": due_at}
        return self._enter(run_id, step_name, ordinal, at, values)

    def expire(self, run_id: str, step_name: str, ordinal: int, *, at: datetime) -> bool:
        """Enter that nobody's decision came in time; `False` if there is another entry in this place."""
        return self._enter(
            run_id, step_name, ordinal, at, {"verdict": Verdict.EXPIRED.value, "judged_at": at, "due_at": None}
        )

    def judge(self, answer_id: str, verdict: Verdict, *, at: datetime, data: Json = None, refusal: Json = None) -> bool:
        """Set the verdict of an entry; `False` if it has one."""
        where = {"id": answer_id, "verdict": None}
        values = {"verdict": verdict.value, "data": data, "refusal": refusal, "judged_at": at, "due_at": None}
        return bool(self._apply(Update(self.model, where, values))[0])

    def postpone(self, answer_id: str, *, seen: datetime | None, due_at: datetime | None, redrives: int) -> bool:
        """Move the due time on, for the one relay that saw it (compare-and-swap)."""
        change = Update(self.model, {"id": answer_id, "due_at": seen}, {"due_at": due_at, "redrives": redrives})
        return bool(self._apply(change, durable=False)[0])

    def remove(self, run_ids: Sequence[str], *, made_by: datetime | None) -> int:
        """Delete the trails of these runs, or what was entered by that time if one is given."""
        made = {} if made_by is None else {"created_at": Expired(made_by)}
        return self._apply(Delete(self.model, {"run_id": list(run_ids), **made}))[0]

    def _enter(self, run_id: str, step_name: str, ordinal: int, at: datetime, values: dict[str, Any]) -> bool:
        row = {
            "id": self.model.id_of(run_id, step_name, ordinal),
            "run_id": run_id,
            "step_name": step_name,
            "ordinal": ordinal,
            "created_at": at,
            **values,
        }
        try:
            with self.engine.savepoint():
                return bool(self._apply(Insert(self.model, row))[0])
        except IntegrityError:
            if self.filter(pk=row["id"]).exists():
                return False
            raise
