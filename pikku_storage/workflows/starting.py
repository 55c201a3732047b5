"""What starting a run takes, whoever starts it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction

from pikku_storage.exceptions import WorkflowInputError
from pikku_storage.json import to_json, to_text
from pikku_storage.workflows.definitions import WorkflowDefinition
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.models import WorkflowRun, WorkflowVersion
from pikku_storage.workflows.statuses import VersionStatus

SOURCE = "complex"
"""The contract's name for a version that is a function's body."""

_stored_versions: set[tuple[str, str, str]] = set()


def keyed_id(name: str, idempotency_key: str) -> str:
    """The id of the run of that workflow that has that key; raises `PayloadError`."""
    return WorkflowRun.id_of(name, to_text(idempotency_key, root="$idempotency_key"))


def owner_id_of(owner: Any) -> str | None:
    """The id of an owner, who is a user, or an id already; raises `WorkflowInputError` and `PayloadError`."""
    if owner is None or owner == "":
        return None
    if isinstance(owner, str | int | UUID) and not isinstance(owner, bool):
        return to_text(str(owner), root="$owner")
    if not hasattr(owner, "pk"):
        raise WorkflowInputError(f"The owner is a user, or an id as text, number or UUID; not {type(owner).__name__}")
    if owner.pk is None:
        raise WorkflowInputError("The owner has no primary key: save the user first; for an anonymous one pass None")
    return to_text(str(owner.pk), root="$owner")


def store_version(runtime: Runtime, definition: WorkflowDefinition[Any]) -> None:
    """Keep the definition that a run starts with. Once per process and database: that of a process never changes."""
    key = (runtime.using, definition.name, definition.graph_hash)
    if key not in _stored_versions:
        WorkflowVersion.objects.using(runtime.using).add(
            definition.name,
            definition.graph_hash,
            to_json(definition.graph, root="$graph"),
            SOURCE,
            VersionStatus.ACTIVE.value,
            at=runtime.now(),
        )
        transaction.on_commit(lambda: _stored_versions.add(key), using=runtime.using)
