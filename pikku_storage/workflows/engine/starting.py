"""The row of a run that begins by itself: started by code, or by a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pikku_storage.ids import new_id
from pikku_storage.json import Json
from pikku_storage.workflows.definitions import BaseWorkflow
from pikku_storage.workflows.models import WorkflowRun
from pikku_storage.workflows.statuses import RunStatus


def run_values(
    workflow: str,
    definition: BaseWorkflow | None,
    data: Json,
    *,
    owner_id: str | None,
    wire: Mapping[str, Json],
    idempotency_key: str | None,
    inline: bool,
    controlled: Mapping[str, Any],
    at: datetime,
) -> dict[str, Any]:
    """The columns of a new run; when it is due, or who is inside, is for the caller to add.

    Everything was checked before. `definition` is `None` where this process does not know the workflow.
    `controlled` is what its `flow_control` answers with.
    """
    return {
        "id": new_id() if idempotency_key is None else WorkflowRun.id_of(workflow, idempotency_key),
        "workflow": workflow,
        "status": RunStatus.RUNNING.value,
        "input": data,
        "state": {},
        "inline": inline,
        "graph_hash": None if definition is None else definition.graph_hash,
        "wire": dict(wire) if owner_id is None else {**wire, "pikkuUserId": owner_id},
        "owner_id": owner_id,
        "idempotency_key": idempotency_key,
        "created_at": at,
        "updated_at": at,
        **controlled,
    }
