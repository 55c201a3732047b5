"""Deleting threads with all that belongs to them.

Nothing of it depends on the database's own cascade, which MongoDB has not. What belongs to the thread goes first, so a
deletion that was cut off is finished by asking again. Somebody may write into the thread meanwhile: on SQL it then
waits, or the deletion begins again, and elsewhere what was written is deleted after it.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Q

from pikku_storage.access.ownership import EVERYBODYS
from pikku_storage.agents import reads
from pikku_storage.agents.models import (
    AgentCheckpoint,
    AgentCheckpointWrite,
    AgentMessage,
    AgentRun,
    AgentRunScore,
    AgentThread,
    AgentToolCall,
)
from pikku_storage.agents.models import AgentWorkingMemory as Memory
from pikku_storage.agents.statuses import MemoryScope

_TRIES = 10
_RUNS = 500


def remove_thread(using: str, thread_id: str) -> bool:
    """Delete a thread; whether there was one."""
    threads = AgentThread.everyones.using(using)

    def write() -> bool:
        with transaction.atomic(using=using):
            # Whoever saves messages changes the thread first, so where that locks it nobody does from here on.
            threads.write(thread_id, at=threads.engine.now())
            _remove_contents(using, thread_id)
            return threads.remove(thread_id)

    # Most of it in batches, so that no transaction takes long. What somebody writes into it at this moment can be in
    # the way of a batch, and is left to the transaction.
    with suppress(IntegrityError):
        _remove_contents(using, thread_id)
    for _ in range(_TRIES):
        try:
            removed = threads.engine.retrying(write)
            break
        except IntegrityError:
            # A run began in between.
            continue
    else:
        removed = write()
    if not threads.engine.connection.features.supports_foreign_keys:
        _remove_contents(using, thread_id)
    return removed


def prune_threads(using: str, by: datetime, *, agent_name: str | None, dry_run: bool) -> int:
    """Delete the threads that changed last by that time, or count them; answers how many. One that changes meanwhile
    stays."""
    old = reads.threads(using, EVERYBODYS, agent_name=agent_name).filter(updated_at__lte=by)
    if dry_run:
        return old.count()
    removed, seen = 0, ""
    while ids := list(old.filter(id__gt=seen).order_by("id").values_list("id", flat=True)[:_RUNS]):
        for thread_id in ids:
            # Looked at again: deleting takes its time, and somebody may have gone on with it.
            if old.filter(pk=thread_id).exists():
                removed += remove_thread(using, thread_id)
        seen = ids[-1]
    return removed


def _remove_contents(using: str, thread_id: str) -> None:
    runs = AgentRun.everyones.using(using)
    while run_ids := list(runs.filter(thread_id=thread_id).order_by().values_list("run_id", flat=True)[:_RUNS]):
        AgentRunScore.everyones.using(using).remove_of_runs(run_ids)
        # Only these: for others the scores are not deleted yet.
        runs.remove_these(run_ids)
    AgentToolCall.everyones.using(using).remove_of_thread(thread_id)
    AgentMessage.everyones.using(using).remove_of_thread(thread_id)
    AgentCheckpointWrite.everyones.using(using).remove_of_thread(thread_id)
    AgentCheckpoint.everyones.using(using).remove_of_thread(thread_id)
    Memory.objects.using(using).remove(Q(memory_id=thread_id, scope=MemoryScope.THREAD))
