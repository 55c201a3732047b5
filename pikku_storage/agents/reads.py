"""Reads that the write side and the read side share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from pikku_storage.access.ownership import Ownership
from pikku_storage.agents.models import AgentMessage, AgentRun, AgentRunScore, AgentThread, AgentToolCall
from pikku_storage.agents.records import AgentRun as Run
from pikku_storage.agents.records import Approval, Message, Score, Thread, ThreadTotals, ToolCall, ToolResult
from pikku_storage.agents.statuses import TOOL, ApprovalStatus
from pikku_storage.db import engine

PAGE = 50
"""How many messages a page has, unless it is said."""
PLACE = ("created_at", "place", "id")
"""What orders the messages of a thread."""
# What comes after a row in an order of several columns is an OR, which no database looks up in an index. So each such
# condition says beside it what holds of the first column in either case, and a page begins where it begins.
_CALL_COLUMNS = ("id", "message_id", "tool_name", "args", "result")


def threads(
    using: str,
    ownership: Ownership,
    *,
    resource_id: str | None = None,
    agent_name: str | None = None,
    before: tuple[datetime, str] | None = None,
) -> QuerySet[AgentThread]:
    """The threads of these owners, the one that changed last first."""
    rows = AgentThread.everyones.using(using).filter(ownership.condition("resource_id"))
    if resource_id is not None:
        rows = rows.filter(resource_id=resource_id)
    if agent_name is not None:
        of_agent = AgentRun.everyones.using(using).filter(agent_name=agent_name).order_by()
        rows = rows.filter(engine(using).referred_to(of_agent, "thread"))
    if before is not None:
        updated_at, thread_id = before
        earlier = Q(updated_at__lt=updated_at) | Q(updated_at=updated_at, id__lt=thread_id)
        rows = rows.filter(earlier, updated_at__lte=updated_at)
    return rows.order_by("-updated_at", "-id")


def thread(using: str, thread_id: str) -> Thread | None:
    """The thread, or `None`."""
    row = AgentThread.everyones.using(using).filter(pk=thread_id).values(*Thread.COLUMNS).first()
    return None if row is None else Thread(**row)


def messages(
    using: str,
    thread_id: str,
    *,
    last: int | None = None,
    cursor: str | None = None,
    until: datetime | None = None,
) -> list[Message]:
    """The messages of a thread, the oldest first: all of them, or the last ones, or the last ones before the message
    `cursor`; with `until` only what was said before that time. Each message with tool calls that have results is
    followed by one that holds these. Two reads, and one more for a cursor; what it costs does not depend on how many
    messages there are."""
    rows = AgentMessage.everyones.using(using).filter(thread_id=thread_id)
    if until is not None:
        rows = rows.filter(created_at__lt=until)
    calls = AgentToolCall.everyones.using(using)
    if last is None and cursor is None:
        found = list(rows.order_by(*PLACE).values(*Message.COLUMNS))
        calls = calls.filter(thread_id=thread_id)
    else:
        seen = None if cursor is None else rows.filter(pk=cursor).values(*PLACE).first()
        earlier = rows if seen is None else rows.filter(before(seen))
        newest = earlier.order_by(*(f"-{name}" for name in PLACE)).values(*Message.COLUMNS)
        found = list(newest[: PAGE if last is None else last])[::-1]
        # By the messages alone: told the thread as well, a database may read all calls of the thread.
        calls = calls.filter(message_id__in=[row["id"] for row in found])
    if not found:
        return []
    of_message: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for call in calls.order_by("message_id", "place", "id").values(*_CALL_COLUMNS):
        of_message[call["message_id"]].append(call)
    return [message for row in found for message in _with_results(row, of_message.get(row["id"], ()))]


def before(seen: Mapping[str, Any]) -> Q:
    """What comes before that message, of which `PLACE` is told. What another program wrote has no place, and comes
    first in its millisecond."""
    created_at, place, message_id = (seen[name] for name in PLACE)
    same_time = {"created_at": created_at}
    earlier = Q(created_at__lt=created_at)
    if place is None:
        earlier |= Q(**same_time, place__isnull=True, id__lt=message_id)
    else:
        earlier |= Q(**same_time, place=place, id__lt=message_id)
        earlier |= Q(**same_time, place__lt=place) | Q(**same_time, place__isnull=True)
    return Q(created_at__lte=created_at) & earlier


def after(seen: Mapping[str, Any]) -> Q:
    """What comes after that message, as `before`."""
    created_at, place, message_id = (seen[name] for name in PLACE)
    same_time = {"created_at": created_at}
    later = Q(created_at__gt=created_at)
    if place is None:
        later |= Q(**same_time, place__isnull=True, id__gt=message_id) | Q(**same_time, place__isnull=False)
    else:
        later |= Q(**same_time, place=place, id__gt=message_id) | Q(**same_time, place__gt=place)
    return Q(created_at__gte=created_at) & later


def _with_results(row: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> list[Message]:
    """A message with its calls; and if any has a result, the message that holds the results."""
    asked = tuple(ToolCall(id=call["id"], name=call["tool_name"], args=call["args"]) for call in calls)
    message = Message(**row, tool_calls=asked)
    results = tuple(
        ToolResult(id=call["id"], name=call["tool_name"], result=call["result"])
        for call in calls
        if call["result"] is not None
    )
    if not results:
        return [message]
    told = Message(id=f"tool-results-{row['id']}", role=TOOL, tool_results=results, created_at=row["created_at"])
    return [message, told]


def run(using: str, run_id: str) -> Run | None:
    """The run with what it waits for, or `None`. Two reads."""
    row = AgentRun.everyones.using(using).filter(pk=run_id).values(*Run.COLUMNS).first()
    if row is None:
        return None
    waiting = [each for each in run_approvals(using, run_id) if each.status == ApprovalStatus.PENDING]
    return Run.from_row(row, tuple(waiting))


def run_approvals(using: str, run_id: str) -> list[Approval]:
    """All that a run asked somebody to approve, also what was denied or has expired, in the order it asked."""
    return approvals_of_runs(using, [run_id]).get(run_id, [])


def approvals_of_runs(using: str, run_ids: Sequence[str]) -> dict[str, list[Approval]]:
    """As `run_approvals`, by run, of those that asked."""
    calls = AgentToolCall.everyones.using(using).filter(run_id__in=run_ids, approval_status__isnull=False)
    now = engine(using).now()
    found: dict[str, list[Approval]] = defaultdict(list)
    for row in calls.order_by("approval_asked_at", "place", "id").values(*Approval.COLUMNS):
        found[row["run_id"]].append(Approval.from_row(row, now))
    return found


def runs(using: str, **filters: Any) -> QuerySet[AgentRun]:
    """Runs, the newest first."""
    return AgentRun.everyones.using(using).filter(**filters).order_by("-created_at", "-run_id")


def page_of_runs(
    rows: QuerySet[AgentRun], ownership: Ownership, before: tuple[datetime, str] | None, limit: int | None
) -> list[Run]:
    """Those of these owners, after the one that was seen last."""
    if ownership.owners == ():
        return []
    rows = rows.filter(ownership.condition("resource_id"))
    if before is not None:
        created_at, run_id = before
        earlier = Q(created_at__lt=created_at) | Q(created_at=created_at, run_id__lt=run_id)
        rows = rows.filter(earlier, created_at__lte=created_at)
    return [Run.from_row(row) for row in rows.values(*Run.COLUMNS)[:limit]]


def pending_approvals(
    using: str, ownership: Ownership, after: tuple[datetime, str] | None, limit: int
) -> list[Approval]:
    """What waits for these owners, the oldest first, after the one that was seen last."""
    if ownership.owners == ():
        return []
    now = engine(using).now()
    in_time = Q(approval_expires_at__isnull=True) | Q(approval_expires_at__gt=now)
    rows = AgentToolCall.everyones.using(using).filter(
        in_time, ownership.condition("thread__resource_id"), approval_status=ApprovalStatus.PENDING
    )
    if after is not None:
        asked_at, call_id = after
        later = Q(approval_asked_at__gt=asked_at) | Q(approval_asked_at=asked_at, id__gt=call_id)
        rows = rows.filter(later, approval_asked_at__gte=asked_at)
    found = rows.order_by("approval_asked_at", "id").values(*Approval.COLUMNS)
    return [Approval.from_row(row, now) for row in found[:limit]]


def scores(using: str, run_id: str) -> list[Score]:
    """The grades of a run, the oldest first."""
    return scores_of_runs(using, [run_id]).get(run_id, [])


def scores_of_runs(using: str, run_ids: Sequence[str]) -> dict[str, list[Score]]:
    """As `scores`, by run, of those that were graded."""
    found: dict[str, list[Score]] = defaultdict(list)
    rows = AgentRunScore.everyones.using(using).filter(run_id__in=run_ids).order_by("created_at", "id")
    for row in rows.values(*Score.COLUMNS):
        found[row["run_id"]].append(Score(**row))
    return found


def score(using: str, score_id: str) -> Score | None:
    """One grade, or `None`."""
    row = AgentRunScore.everyones.using(using).filter(pk=score_id).values(*Score.COLUMNS).first()
    return None if row is None else Score(**row)


def next_run_at(using: str, run: Run) -> datetime | None:
    """When the next run of the same thread began; `None` if it was the last."""
    later = Q(created_at__gt=run.created_at) | Q(created_at=run.created_at, run_id__gt=run.run_id)
    rows = AgentRun.everyones.using(using).filter(later, thread_id=run.thread_id, created_at__gte=run.created_at)
    rows = rows.order_by("created_at", "run_id")
    return rows.values_list("created_at", flat=True).first()


def totals(using: str, thread_ids: Iterable[str]) -> dict[str, ThreadTotals]:
    """What each of these threads comes to. Three reads, however many threads."""
    ids = list(thread_ids)
    if not ids:
        return {}
    of_threads = {"thread_id__in": ids}
    messages = AgentMessage.everyones.using(using).filter(**of_threads)
    of_runs = AgentRun.everyones.using(using).filter(**of_threads)
    in_time = Q(approval_expires_at__isnull=True) | Q(approval_expires_at__gt=engine(using).now())
    calls = AgentToolCall.everyones.using(using).filter(in_time, **of_threads, approval_status=ApprovalStatus.PENDING)
    tokens = {"input_tokens": Sum("usage_input_tokens"), "output_tokens": Sum("usage_output_tokens")}
    counts: list[tuple[QuerySet[Any], dict[str, Any]]] = [
        (messages, {"messages": Count("pk")}),
        (of_runs, {"runs": Count("pk"), **tokens}),
        (calls, {"pending_approvals": Count("pk")}),
    ]
    found: dict[str, dict[str, int]] = {thread_id: {} for thread_id in ids}
    for rows, aggregates in counts:
        row: Any
        for row in rows.order_by().values("thread_id").annotate(**aggregates):
            found[row.pop("thread_id")].update(row)
    return {thread_id: ThreadTotals(**values) for thread_id, values in found.items()}
