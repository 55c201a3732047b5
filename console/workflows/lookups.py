"""Searching engine rows by indexes only."""

from __future__ import annotations

from django.db import connections
from django.db.models import Q, QuerySet

from console.lookups import id_prefix
from console.owners import owner_ids_of
from pikku_storage.workflows.models import WorkflowRun


def search_runs(runs: QuerySet[WorkflowRun], term: str) -> QuerySet[WorkflowRun]:
    """The runs whose id begins with `term`, or whose workflow, owner or idempotency key it is.

    Each way is tried by its own index first, and only those that find something become part of the query: a database
    that had to choose between four of them could choose to read the table.
    """
    term = term.strip()
    if not term:
        return runs
    owners = {term, *owner_ids_of(term)}
    ways = [
        id_prefix(term, _vendor(runs)),
        Q(idempotency_key=term),
        Q(workflow=term),
        Q(owner_id__in=sorted(owners)),
    ]
    everything = WorkflowRun.objects.using(runs.db).order_by()
    found = [way for way in ways if everything.filter(way).exists()]
    if not found:
        return runs.none()
    condition = found[0]
    for way in found[1:]:
        condition |= way
    return runs.filter(condition)


def _vendor(rows: QuerySet[WorkflowRun]) -> str:
    return connections[rows.db].vendor
