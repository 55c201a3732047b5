"""Searching engine rows by indexes only."""

from __future__ import annotations

from django.db import connections
from django.db.models import Q, QuerySet

from console.owners import owner_ids_of
from pikku_storage.workflows.models import WorkflowRun

_LAST_CHARACTER = "\U0010ffff"


def id_prefix(prefix: str, vendor: str) -> Q:
    """Ids that begin with `prefix`, in the form for which this database uses the primary key's index.

    PostgreSQL has a pattern index for LIKE, and its collations do not sort by code point. SQLite's LIKE ignores case
    and therefore the index, but its order is that of the bytes.
    """
    if vendor == "postgresql":
        return Q(pk__startswith=prefix)
    return Q(pk__gte=prefix, pk__lt=prefix + _LAST_CHARACTER)


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
