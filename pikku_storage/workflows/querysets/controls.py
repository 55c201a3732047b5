"""State changes of what operators have set for workflows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError

from pikku_storage.db.operations import NOT_NULL, Insert, Update
from pikku_storage.workflows.querysets.base import EngineQuerySet

if TYPE_CHECKING:
    from pikku_storage.workflows.models import WorkflowControl  # noqa: F401 - named in the base class as text


class ControlQuerySet(EngineQuerySet["WorkflowControl"]):
    """State changes of what operators have set for workflows."""

    def pause(self, workflow: str, *, at: datetime, by: str | None, reason: str | None) -> bool:
        """Pause a workflow; `False` if it is paused already, and then its first reason stands."""
        return self._set(workflow, {"paused_at": None}, at, by, paused_at=at, paused_by=by, paused_reason=reason)

    def unpause(self, workflow: str, *, at: datetime, by: str | None) -> bool:
        """Let a paused workflow go on; `False` if it is not paused."""
        values = {"paused_at": None, "paused_by": None, "paused_reason": None, "updated_at": at, "updated_by": by}
        return bool(self._apply(Update(self.model, {"workflow": workflow, "paused_at": NOT_NULL}, values))[0])

    def set_limits(self, workflow: str, limits: Mapping[str, Any], *, at: datetime, by: str | None) -> None:
        """Set limits in place of the code's; `None` is as the code says. What is not named stays."""
        self._set(workflow, {}, at, by, **limits)

    def _set(self, workflow: str, where: Mapping[str, Any], at: datetime, by: str | None, **values: Any) -> bool:
        values |= {"updated_at": at, "updated_by": by}
        change = Update(self.model, {"workflow": workflow, **where}, values)
        if self._apply(change)[0]:
            return True
        try:
            with self.engine.savepoint():
                self._apply(Insert(self.model, {"workflow": workflow, **values}))
        except IntegrityError:
            # It is there: made in this moment, or not as `where` asks for.
            return bool(self._apply(change)[0])
        return True
