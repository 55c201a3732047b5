"""Every change of the rows of agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError
from django.db.models import Q

from pikku_storage.agents.statuses import ApprovalStatus
from pikku_storage.db.operations import Delete, Guard, Insert, InsertMany, Operation, Update
from pikku_storage.db.querysets import EngineQuerySet
from pikku_storage.json import Json

if TYPE_CHECKING:
    from pikku_storage.agents.models import (  # noqa: F401 - named as text
        AgentCheckpoint,
        AgentCheckpointWrite,
        AgentMessage,
        AgentRun,
        AgentRunScore,
        AgentThread,
        AgentToolCall,
        AgentWorkingMemory,
    )

BATCH = 500
"""How many rows are deleted by one statement."""
TRIES = 5


class ThreadQuerySet(EngineQuerySet["AgentThread"]):
    """Threads."""

    def add(self, values: Mapping[str, Any]) -> bool:
        """Insert a thread; `False` if there is one of that id."""
        return self.insert(Insert(self.model, values))

    def write(self, thread_id: str, *writes: Operation, at: datetime) -> bool:
        """Write into a thread, which that changes; all of it or nothing. `False` if there is no such thread."""
        return bool(self.engine.apply(Update(self.model, {"id": thread_id}, {"updated_at": at}), *writes)[0])

    def remove(self, thread_id: str) -> bool:
        """Delete the thread itself; `False` if there is none. Raises `IntegrityError` if something of it is left."""
        return bool(self.engine.apply(Delete(self.model, {"id": thread_id}))[0])


class MessageQuerySet(EngineQuerySet["AgentMessage"]):
    """Messages."""

    def adding(self, common: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[Operation]:
        """What inserts these messages."""
        return [InsertMany(self.model, common, rows)] if rows else []

    def remove_of_thread(self, thread_id: str) -> int:
        """Delete the messages of a thread, the oldest first."""
        return _remove(self, Q(thread_id=thread_id), "created_at", "id")


class ToolCallQuerySet(EngineQuerySet["AgentToolCall"]):
    """Tool calls, and their approvals."""

    def adding(self, common: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[Operation]:
        """What inserts these calls."""
        return [InsertMany(self.model, common, rows)] if rows else []

    def setting_result(self, thread_id: str, call_id: str, result: str) -> Operation:
        """What sets the result of a call of this thread."""
        return Update(self.model, {"id": call_id, "thread_id": thread_id}, {"result": result})

    def ask(self, thread_id: str, call_id: str, values: Mapping[str, Any]) -> bool:
        """Ask for approval of a call of this thread; `False` if there is none, or it was approved or denied already."""
        undecided = [ApprovalStatus.PENDING, ApprovalStatus.EXPIRED]
        askable = Q(approval_status__isnull=True) | Q(approval_status__in=undecided)
        asked = {
            **values,
            "approval_status": ApprovalStatus.PENDING,
            "approval_resolved_at": None,
            "approval_resolved_by": None,
            "approval_reason": None,
        }
        return bool(self.filter(askable, pk=call_id, thread_id=thread_id).update(**asked))

    def withdraw(self, run_id: str, *, but: Iterable[str]) -> int:
        """The run does not ask any more for what still waits, but for these calls."""
        return (
            self.filter(run_id=run_id, approval_status=ApprovalStatus.PENDING)
            .exclude(pk__in=list(but))
            .update(
                approval_status=None,
                approval_type=None,
                agent_run_id=None,
                display_tool_name=None,
                display_args=None,
                approval_asked_at=None,
                approval_expires_at=None,
                run_id=None,
            )
        )

    def resolve(self, call_id: str, status: str, *, by: str | None, reason: str | None, at: datetime) -> bool:
        """Decide an approval that waits; `True` for exactly one of all who try."""
        in_time = Q(approval_expires_at__isnull=True) | Q(approval_expires_at__gt=at)
        decided = {
            "approval_status": status,
            "approval_resolved_at": at,
            "approval_resolved_by": by,
            "approval_reason": reason,
        }
        return bool(self.filter(in_time, pk=call_id, approval_status=ApprovalStatus.PENDING).update(**decided))

    def expire(self, *, at: datetime) -> int:
        """Mark the approvals whose time is over; answers how many there were."""
        late = self.filter(approval_status=ApprovalStatus.PENDING, approval_expires_at__lte=at)
        return late.update(approval_status=ApprovalStatus.EXPIRED, approval_resolved_at=at)

    def forget_who_resolved(self, user_id: str) -> int:
        """Keep what was decided, and not by whom."""
        return self.filter(approval_resolved_by=user_id).update(approval_resolved_by=None)

    def remove_of_thread(self, thread_id: str) -> int:
        """Delete the calls of a thread."""
        return _remove(self, Q(thread_id=thread_id))


class AgentRunQuerySet(EngineQuerySet["AgentRun"]):
    """Agent runs."""

    def add(self, threads: type[AgentThread], values: Mapping[str, Any]) -> bool:
        """Insert a run of a thread; `False` if there is no such thread."""
        thread = Guard(threads, {"id": values["thread_id"]})
        return bool(self.engine.apply(thread, Insert(self.model, values))[0])

    def change(self, run_id: str, values: Mapping[str, Any]) -> bool:
        """Set these columns; `False` if there is no such run."""
        return bool(self.engine.apply(Update(self.model, {"run_id": run_id}, values))[0])

    def remove_these(self, run_ids: Sequence[str]) -> int:
        """Delete these runs, which have no scores any more."""
        return self.engine.apply(Delete(self.model, {"run_id": list(run_ids)}))[0]


class ScoreQuerySet(EngineQuerySet["AgentRunScore"]):
    """Scores. Rows are only ever added, and deleted with their run."""

    def add(self, runs: type[AgentRun], values: Mapping[str, Any]) -> bool:
        """Insert a score of a run; `False` if there is no such run. Raises `IntegrityError` if its id is taken."""
        run = Guard(runs, {"run_id": values["run_id"]})
        with self.engine.savepoint():
            return bool(self.engine.apply(run, Insert(self.model, values))[0])

    def remove_of_runs(self, run_ids: Sequence[str]) -> int:
        """Delete the scores of these runs."""
        return _remove(self, Q(run_id__in=list(run_ids))) if run_ids else 0


class MemoryQuerySet(EngineQuerySet["AgentWorkingMemory"]):
    """Working memories. They are found by id and scope: what another program wrote has a key of its own."""

    def of(self, memory_id: str, scope: str) -> MemoryQuerySet:
        """The one of that id and scope."""
        return self.filter(memory_id=memory_id, scope=scope)

    def put(self, memory_id: str, scope: str, data: Json, *, version: str, at: datetime) -> None:
        """Store a memory in place of the one there was, if any."""
        row = {"memory_id": memory_id, "scope": scope}
        key = {"key": self.model.key_of(memory_id, scope)}
        self.upsert(row, {"data": data, "version": version, "updated_at": at}, new=key)

    def add(self, memory_id: str, scope: str, data: Json, *, version: str, at: datetime) -> bool:
        """Store a memory where there is none; `False` if there is one."""
        row = {"key": self.model.key_of(memory_id, scope), "memory_id": memory_id, "scope": scope}
        return self.insert(Insert(self.model, {**row, "data": data, "version": version, "updated_at": at}))

    def swap(self, memory_id: str, scope: str, data: Json, *, seen: str | None, version: str, at: datetime) -> bool:
        """Store a memory in place of the one that was seen; `False` if it is another one by now."""
        where = {"memory_id": memory_id, "scope": scope, "version": seen}
        values = {"data": data, "version": version, "updated_at": at}
        return bool(self.engine.apply(Update(self.model, where, values))[0])

    def remove(self, rows: Q) -> int:
        """Delete these memories, whatever the keys of their rows look like; answers how many there were."""
        return self.filter(rows).delete()[0]


class CheckpointQuerySet(EngineQuerySet["AgentCheckpoint"]):
    """Checkpoints of graphs."""

    def put(self, key: str, values: Mapping[str, Any], *, new: Mapping[str, Any]) -> None:
        """Store a checkpoint, also in place of the one of that key. Raises `IntegrityError` if its thread is gone."""
        self.upsert({"key": key}, values, new=new)

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert those of these checkpoints that are not there yet."""
        _add_missing(self, rows)

    def remove_these(self, keys: Sequence[str]) -> int:
        """Delete these checkpoints."""
        return self.engine.apply(Delete(self.model, {"key": list(keys)}))[0]

    def remove_of_thread(self, thread_id: str) -> int:
        """Delete the checkpoints of a thread."""
        return _remove(self, Q(thread_id=thread_id))


class CheckpointWriteQuerySet(EngineQuerySet["AgentCheckpointWrite"]):
    """What tasks of graphs wrote."""

    def put(self, key: str, values: Mapping[str, Any], *, new: Mapping[str, Any]) -> None:
        """Store a write, also in place of the one of that key."""
        self.upsert({"key": key}, values, new=new)

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert those of these writes that are not there yet: the first one of a key stays."""
        _add_missing(self, rows)

    def remove_of_checkpoints(self, keys: Sequence[str]) -> int:
        """Delete what was written after these checkpoints."""
        return _remove(self, Q(checkpoint_key__in=list(keys))) if keys else 0

    def remove_of_thread(self, thread_id: str) -> int:
        """Delete the writes of a thread."""
        return _remove(self, Q(thread_id=thread_id))


def _add_missing(rows: EngineQuerySet[Any], values: Sequence[Mapping[str, Any]]) -> None:
    """Insert what has a `key` that is not there yet."""
    by_key = {row["key"]: row for row in values}
    for attempt in range(TRIES):
        there = set(rows.filter(pk__in=list(by_key)).order_by().values_list("key", flat=True))
        missing = [row for key, row in by_key.items() if key not in there]
        if not missing:
            return
        try:
            with rows.engine.savepoint():
                rows.engine.apply(InsertMany(rows.model, {}, missing))
            return
        except IntegrityError:
            # Somebody inserts the same at this moment: it is seen the next time.
            if attempt == TRIES - 1:
                raise


def _remove(rows: EngineQuerySet[Any], condition: Q, *order_by: str) -> int:
    """Delete the rows in batches, so that no statement takes long; answers how many there were."""
    removed = 0
    key = rows.model._meta.pk.attname
    while found := list(rows.filter(condition).order_by(*order_by).values_list(key, flat=True)[:BATCH]):
        removed += rows.engine.apply(Delete(rows.model, {key: found}))[0]
        if len(found) < BATCH:
            break
    return removed
