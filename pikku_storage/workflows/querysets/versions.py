"""State changes of workflow versions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django.db import IntegrityError

from pikku_storage.db.operations import Insert, Update
from pikku_storage.ids import derived_id
from pikku_storage.json import Json
from pikku_storage.workflows.querysets.base import EngineQuerySet

if TYPE_CHECKING:
    from pikku_storage.workflows.models import WorkflowVersion  # noqa: F401 - named in the base class as text


class VersionQuerySet(EngineQuerySet["WorkflowVersion"]):
    """Workflow versions never change once stored, but for their status."""

    def add(self, workflow_name: str, graph_hash: str, graph: Json, source: str, status: str, *, at: datetime) -> bool:
        """Store a version unless it is there already."""
        values = {
            "id": derived_id(workflow_name, graph_hash),
            "workflow_name": workflow_name,
            "graph_hash": graph_hash,
            "graph": graph,
            "source": source,
            "status": status,
            "created_at": at,
        }
        try:
            with self.engine.savepoint():
                self._apply(Insert(self.model, values))
        except IntegrityError:
            return False
        return True

    def set_status(self, workflow_name: str, graph_hash: str, status: str) -> bool:
        """Set a version's status; whether there is such a version."""
        # By what every program knows it by: another one gives it an id of its own.
        where = {"workflow_name": workflow_name, "graph_hash": graph_hash}
        return bool(self._apply(Update(self.model, where, {"status": status}))[0])
