"""What a definition was when a run of it began."""

from __future__ import annotations

from django.db import transaction

from pikku_storage.json import to_json
from pikku_storage.workflows.definitions import BaseWorkflow
from pikku_storage.workflows.engine.runtime import Runtime
from pikku_storage.workflows.models import WorkflowVersion
from pikku_storage.workflows.statuses import VersionStatus

stored_versions: set[tuple[str, str, str]] = set()
"""Database, name and hash of what this process has stored: the definition of a process never changes."""


def store_version(runtime: Runtime, definition: BaseWorkflow) -> None:
    """Store the definition's version, once per process and database."""
    key = (runtime.using, definition.name, definition.graph_hash)
    if key in stored_versions:
        return
    WorkflowVersion.objects.using(runtime.using).add(
        definition.name,
        definition.graph_hash,
        to_json(definition.graph, root="$graph"),
        definition.version_source,
        VersionStatus.ACTIVE.value,
        at=runtime.now(),
    )
    transaction.on_commit(lambda: stored_versions.add(key), using=runtime.using)
