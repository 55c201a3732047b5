"""Searching threads and runs by indexes only."""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.models import Q, QuerySet

from console.agents.admin.filters import ran_in
from console.lookups import id_prefix
from console.owners import owner_ids_of
from pikku_storage.access.ownership import Ownership
from pikku_storage.agents.models import AgentRun, AgentThread, AgentToolCall


def search_threads(threads: QuerySet[AgentThread], term: str) -> QuerySet[AgentThread]:
    """The threads whose id begins with `term`, whose owner it is, in which the agent of that name ran, or which have a
    run or a tool call of that id."""
    term = term.strip()
    if not term:
        return threads
    using = threads.db
    runs, calls = AgentRun.everyones.using(using), AgentToolCall.everyones.using(using)
    ids = {row["thread_id"] for rows in (runs, calls) for row in rows.filter(pk=term).order_by().values("thread_id")}
    ways = [_prefix(term, using), _owners(term)]
    found = _finding(AgentThread.everyones.using(using), ways)
    if ids:
        found.append(Q(pk__in=sorted(ids)))
    if runs.filter(agent_name=term).order_by().exists():
        found.append(ran_in(using, term))
    return _any(threads, found)


def search_runs(runs: QuerySet[AgentRun], term: str) -> QuerySet[AgentRun]:
    """The runs whose id begins with `term`, or whose agent, owner or thread it is."""
    term = term.strip()
    if not term:
        return runs
    ways = [_prefix(term, runs.db), Q(agent_name=term), _owners(term), Q(thread_id=term)]
    return _any(runs, _finding(AgentRun.everyones.using(runs.db), ways))


def _prefix(term: str, using: str) -> Q:
    return id_prefix(term, connections[using].vendor)


def _owners(term: str) -> Q:
    return Ownership.given([term, *owner_ids_of(term)]).condition("resource_id")


def _finding(everything: QuerySet[Any], ways: list[Q]) -> list[Q]:
    """Each way is tried by its own index first, and only those that find something become part of the query: a
    database that had to choose between several of them could choose to read the table."""
    return [way for way in ways if everything.order_by().filter(way).exists()]


def _any(rows: QuerySet[Any], ways: list[Q]) -> QuerySet[Any]:
    if not ways:
        return rows.none()
    condition = ways[0]
    for way in ways[1:]:
        condition |= way
    return rows.filter(condition)
