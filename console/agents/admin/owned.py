"""Rows that belong to somebody: who holds a scope of the area sees all, others on the staff what they own."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from console.agents.visibility import visible
from console.base import EngineRowAdmin
from console.gate import AGENTS, has_model_permission, is_staff


class OwnedRowAdmin(EngineRowAdmin):
    """Rows of agents. `owner_column` says whose a row is, also in another table."""

    area = AGENTS
    owner_column = "resource_id"

    class Media:
        css = {"all": ["console/agents.css"]}

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """The staff: everybody has what is theirs, which may be nothing."""
        if not is_staff(request) or not has_model_permission(request, "view", self.opts):
            return False
        return obj is None or visible(request).covers(self.owner_of(obj))

    def owner_of(self, row: Any) -> str | None:
        """Whose that row is."""
        for name in self.owner_column.split("__"):
            row = getattr(row, name, None)
        return None if row is None else str(row)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The rows that the caller may see."""
        rows, ownership = super().get_queryset(request), visible(request)
        return rows.none() if ownership.owners == () else rows.filter(ownership.condition(self.owner_column))
