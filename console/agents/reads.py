"""Reads of the pages of agents: bounded, in a number of queries that does not grow, and of large values the beginning.

Nothing here asks who may see something: that is decided before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Left

from console.jsontree import as_text
from console.tabs import COUNT_UP_TO
from pikku_storage.access.ownership import Ownership
from pikku_storage.agents import reads
from pikku_storage.agents.models import (
    AgentCheckpoint,
    AgentMessage,
    AgentRun,
    AgentRunScore,
    AgentThread,
    AgentToolCall,
    AgentWorkingMemory,
)
from pikku_storage.agents.records import Approval
from pikku_storage.agents.statuses import ApprovalStatus, MemoryScope
from pikku_storage.db import engine
from pikku_storage.json import Json
from pikku_storage.workflows.models import WorkflowRun

MESSAGES = 30
"""How many messages a page of a conversation has."""
CALLS = 80
"""How many tool calls a page of a conversation shows."""
BEGINNING = 4000
"""How many characters of a content, of arguments and of a result are read."""
RUNS = 20
SCORES = 200


# -- the list ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadFacts:
    """What a thread comes to; `None` where counting would read too much."""

    agent: str = ""
    """The one that ran last."""
    messages: int | None = None
    runs: int | None = None
    tokens: int | None = None
    waiting: int = 0
    """Approvals that somebody may answer now."""


def read_facts(using: str, thread_ids: Sequence[str]) -> dict[str, ThreadFacts]:
    """The facts of these threads. Four queries, each of which reads some thousand rows of an index at most per thread,
    however long the threads are; none without threads."""
    if not thread_ids:
        return {}
    runs, messages = AgentRun.everyones.using(using), AgentMessage.everyones.using(using)
    of_thread = {"thread_id": OuterRef("pk")}
    latest = runs.filter(**of_thread).order_by("-created_at", "-run_id").values("agent_name")[:1]
    probes: dict[str, Any] = {
        row["pk"]: row
        for row in AgentThread.everyones.using(using)
        .filter(pk__in=thread_ids)
        .order_by()
        .annotate(
            agent=Subquery(latest),
            many_messages=_beyond(messages.filter(**of_thread), *reads.PLACE),
            many_runs=_beyond(runs.filter(**of_thread), "created_at", "run_id"),
        )
        .values("pk", "agent", "many_messages", "many_runs")
    }
    counts = _grouped(messages, [pk for pk, row in probes.items() if not row["many_messages"]], n=Count("pk"))
    sums = _grouped(
        runs,
        [pk for pk, row in probes.items() if not row["many_runs"]],
        n=Count("pk"),
        read=Sum("usage_input_tokens"),
        written=Sum("usage_output_tokens"),
    )
    waiting = _grouped(_waiting(using), list(probes), n=Count("pk"))
    found = {}
    for pk, row in probes.items():
        total = sums.get(pk, {})
        found[pk] = ThreadFacts(
            agent=row["agent"] or "",
            messages=None if row["many_messages"] else counts.get(pk, {}).get("n", 0),
            runs=None if row["many_runs"] else total.get("n", 0),
            tokens=None if row["many_runs"] else (total.get("read") or 0) + (total.get("written") or 0),
            waiting=waiting.get(pk, {}).get("n", 0),
        )
    return found


def _beyond(rows: QuerySet[Any], *order: str) -> Subquery:
    """When the first one was that is not counted any more; null if there are not so many.

    In the order of an index: without one, a database that expects long threads looks for a short one's rows by reading
    the table.
    """
    return Subquery(rows.order_by(*order).values("created_at")[COUNT_UP_TO : COUNT_UP_TO + 1])


def _grouped(rows: QuerySet[Any], thread_ids: Sequence[str], **aggregates: Any) -> dict[str, dict[str, Any]]:
    if not thread_ids:
        return {}
    grouped: Any = rows.filter(thread_id__in=thread_ids).order_by().values("thread_id").annotate(**aggregates)
    return {row["thread_id"]: row for row in grouped}


def read_agent_names(runs: QuerySet[AgentRun]) -> list[str]:
    """The agents of the latest of these runs, sorted. All names there ever were would be a long read."""
    latest = runs.order_by("-created_at", "-run_id").values_list("agent_name", flat=True)[:COUNT_UP_TO]
    return sorted(set(latest))


def read_waiting_thread_ids(using: str, ownership: Ownership) -> list[str]:
    """The threads of these owners in which something waits for an answer; a thousand at most."""
    if ownership.owners == ():
        return []
    waiting = _waiting(using).filter(ownership.condition("thread__resource_id"))
    rows: Any = waiting.order_by("approval_asked_at", "id").values_list("thread_id", flat=True)
    return list(dict.fromkeys(rows[:COUNT_UP_TO]))


def count_waiting(using: str, ownership: Ownership) -> int:
    """How many approvals of these owners wait, counted up to a thousand and one."""
    if ownership.owners == ():
        return 0
    waiting = _waiting(using).filter(ownership.condition("thread__resource_id"))
    return waiting.order_by()[: COUNT_UP_TO + 1].count()


def _waiting(using: str) -> QuerySet[AgentToolCall]:
    in_time = Q(approval_expires_at__isnull=True) | Q(approval_expires_at__gt=engine(using).now())
    return AgentToolCall.everyones.using(using).filter(in_time, approval_status=ApprovalStatus.PENDING)


# -- a conversation ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page of a conversation begins or ends: before a message, after one, at the start, or at the end."""

    before: str = ""
    after: str = ""
    from_start: bool = False

    @property
    def is_end(self) -> bool:
        """Whether it is the newest page."""
        return not (self.before or self.after or self.from_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """A page of messages, the oldest first, and whether there are others on either side. Of each message the
    `beginning` of its content's JSON is there, and one character more if that is not all."""

    rows: list[dict[str, Any]]
    has_older: bool
    has_newer: bool
    calls: dict[str, list[dict[str, Any]]]
    """By message."""
    has_more_calls: bool


def read_messages(using: str, thread_id: str, place: Place) -> MessagePage:
    """A page of a thread. Two or three queries. A place that is no message of the thread means the end."""
    rows = AgentMessage.everyones.using(using).filter(thread_id=thread_id)
    cursor = place.before or place.after
    seen = rows.filter(pk=cursor).order_by().values(*reads.PLACE).first() if cursor else None
    forwards = place.from_start or (seen is not None and bool(place.after))
    if seen is not None:
        rows = rows.filter(reads.after(seen) if forwards else reads.before(seen))
    order = reads.PLACE if forwards else [f"-{name}" for name in reads.PLACE]
    read = rows.order_by(*order).annotate(beginning=Left("content", BEGINNING + 1))
    found: list[Any] = list(read.values("id", "role", "created_at", "beginning")[: MESSAGES + 1])
    has_more, found = len(found) > MESSAGES, found[:MESSAGES]
    if not forwards:
        found.reverse()
    calls = _read_calls(using, [row["id"] for row in found])
    of_message: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for call in calls[:CALLS]:
        of_message[call["message_id"]].append(call)
    return MessagePage(
        rows=found,
        has_older=seen is not None if forwards else has_more,
        has_newer=has_more if forwards else seen is not None,
        calls=of_message,
        has_more_calls=len(calls) > CALLS,
    )


_CALL_COLUMNS = (
    "id",
    "message_id",
    "run_id",
    "tool_name",
    "display_tool_name",
    "agent_run_id",
    "approval_status",
    "approval_expires_at",
    "approval_resolved_at",
    "approval_resolved_by",
)


def _read_calls(using: str, message_ids: Sequence[str]) -> list[dict[str, Any]]:
    if not message_ids:
        return []
    rows = AgentToolCall.everyones.using(using).filter(message_id__in=message_ids)
    cut = engine(using).json_beginning("args", BEGINNING + 1)
    columns = [*_CALL_COLUMNS, "arguments" if cut is not None else "args", "told", "why"]
    annotations = {"told": Left("result", BEGINNING + 1), "why": Left("approval_reason", BEGINNING)}
    if cut is not None:
        annotations["arguments"] = cut
    found: Any = rows.order_by("message_id", "place", "id").annotate(**annotations).values(*columns)[: CALLS + 1]
    for call in found:
        if cut is None:
            call["arguments"] = as_text(call.pop("args"))[: BEGINNING + 1]
    return list(found)


def read_pending(using: str, thread_id: str, limit: int) -> list[Approval]:
    """What waits for an answer in a thread, the oldest first."""
    rows = _waiting(using).filter(thread_id=thread_id).order_by("approval_asked_at", "id")
    now = engine(using).now()
    return [Approval.from_row(row, now) for row in rows.values(*Approval.COLUMNS)[:limit]]


# -- beside it ---------------------------------------------------------------------------------------------------------


def read_scores(using: str, run_ids: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The latest grades of these runs, by run, the oldest first. One query."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if run_ids:
        rows = AgentRunScore.everyones.using(using).filter(run_id__in=run_ids).order_by("-created_at", "-id")
        columns = ("id", "run_id", "scorer_name", "score", "created_at", "why")
        for row in list(rows.annotate(why=Left("reason", BEGINNING)).values(*columns)[:SCORES])[::-1]:
            found[row["run_id"]].append({**row, "shown": f"{row['score']:.3g}"})
    return found


def read_memories(using: str, thread_id: str, resource_id: str) -> dict[str, Json]:
    """What is remembered of a thread and of its owner, by scope. One query."""
    of_thread = Q(memory_id=thread_id, scope=MemoryScope.THREAD)
    of_owner = Q(memory_id=resource_id, scope=MemoryScope.RESOURCE)
    rows = AgentWorkingMemory.objects.using(using).filter(of_thread | of_owner).order_by()
    return {row["scope"]: row["data"] for row in rows.values("scope", "data")}


def read_checkpoint(using: str, thread_id: str) -> dict[str, Any] | None:
    """When LangGraph stored the last checkpoint of a thread, and which; `None` if there is none."""
    rows = AgentCheckpoint.everyones.using(using).filter(thread_id=thread_id).order_by("-checkpoint_id", "-key")
    row = rows.values("checkpoint_id", "created_at").first()
    return None if row is None else dict(row)


def read_workflow_runs(
    *, run_ids: Iterable[str | None], call_ids: Sequence[str]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The runs of workflows of these ids, by id; and those that were started with the id of a tool call as idempotency
    key, by that. Two queries at most."""
    columns = ("id", "workflow", "status", "idempotency_key")
    rows = WorkflowRun.objects.order_by()
    ids = [run_id for run_id in dict.fromkeys(run_ids) if run_id]
    by_id: Any = {row["id"]: row for row in rows.filter(pk__in=ids).values(*columns)} if ids else {}
    of_calls = rows.filter(idempotency_key__in=call_ids).values(*columns) if call_ids else ()
    return by_id, {str(row["idempotency_key"]): dict(row) for row in of_calls}


def read_approval_threads(using: str, call_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The thread and the agent of each of these approvals, by the call's id. One query."""
    if not call_ids:
        return {}
    columns = ("id", "thread_id", "thread__title", "thread__resource_id", "run__agent_name", "run__status")
    rows: Any = AgentToolCall.everyones.using(using).filter(pk__in=call_ids).order_by().values(*columns)
    return {row["id"]: row for row in rows}


def read_undated(using: str, ownership: Ownership, limit: int) -> list[Approval]:
    """What waits for these owners since nobody knows when: another program asked for it."""
    if ownership.owners == ():
        return []
    mine = ownership.condition("thread__resource_id")
    rows = _waiting(using).filter(mine, approval_asked_at__isnull=True).order_by("id")
    now = engine(using).now()
    return [Approval.from_row(row, now) for row in rows.values(*Approval.COLUMNS)[:limit]]


def is_active(moment: datetime | None, now: datetime) -> bool:
    """Whether a run that says it is running was heard of lately."""
    return moment is not None and (now - moment).total_seconds() < ACTIVE_FOR


ACTIVE_FOR = 900
"""Seconds after its last change for which a page follows a run. A process that died leaves it `running` for good."""
