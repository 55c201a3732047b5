"""The read side of agents (contract services.md §6)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import router

from pikku_storage.access.ownership import Ownership
from pikku_storage.agents import reads
from pikku_storage.agents.models import AgentRun, AgentThread
from pikku_storage.agents.records import AgentRun as Run
from pikku_storage.agents.records import Approval, Message, Thread, ThreadTotals
from pikku_storage.agents.service import AgentStorageService
from pikku_storage.async_twins import AsyncTwins


class AgentRunService(AsyncTwins):
    """Reads threads and runs; deletes whole threads. `owners` says whose: `None` means everybody's, an empty list
    nothing. Who they are for a user is said by `pikku_storage.access.ownership.principals`."""

    def __init__(self, using: str | None = None) -> None:
        self.using = using or router.db_for_read(AgentThread)

    def list_threads(
        self,
        *,
        agent_name: str | None = None,
        resource_id: str | None = None,
        owners: Iterable[str] | None = None,
        limit: int = 50,
        offset: int = 0,
        before: tuple[datetime, str] | None = None,
    ) -> list[Thread]:
        """Threads, the one that changed last first: of exactly one resource, of owners and their partitions, in which
        an agent ran; all that is given must hold. `before` is the `(updated_at, id)` of the last thread seen: pages by
        key cost the same however deep."""
        ownership = Ownership.given(owners)
        if ownership.owners == ():
            return []
        rows = reads.threads(
            self.using, ownership, resource_id=resource_id, agent_name=agent_name, before=before
        ).values(*Thread.COLUMNS)
        return [Thread(**row) for row in rows[offset : offset + limit]]

    def get_totals(self, thread_ids: Iterable[str]) -> dict[str, ThreadTotals]:
        """Messages, runs, tokens and waiting approvals of each of these threads. Three reads, however many."""
        return reads.totals(self.using, thread_ids)

    def get_thread(self, thread_id: str) -> Thread | None:
        """The thread, or `None`."""
        return reads.thread(self.using, thread_id)

    def get_thread_messages(
        self, thread_id: str, *, last_n: int | None = None, cursor: str | None = None
    ) -> list[Message]:
        """The messages of a thread, the oldest first; see `AgentStorageService.get_messages`."""
        return reads.messages(self.using, thread_id, last=last_n, cursor=cursor)

    def get_thread_runs(self, thread_id: str) -> list[Run]:
        """The runs of a thread, the newest first."""
        return self.list_runs(thread_id=thread_id, limit=None)

    def list_runs(
        self,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        agent_name: str | None = None,
        status: str | None = None,
        owners: Iterable[str] | None = None,
        limit: int | None = 50,
        before: tuple[datetime, str] | None = None,
    ) -> list[Run]:
        """Runs, the newest first. `before` is the `(created_at, run_id)` of the last one seen."""
        filters = {"thread_id": thread_id, "resource_id": resource_id, "agent_name": agent_name, "status": status}
        rows = reads.runs(self.using, **{name: value for name, value in filters.items() if value is not None})
        return reads.page_of_runs(rows, Ownership.given(owners), before, limit)

    def get_run(self, run_id: str) -> Run | None:
        """The run with the approvals that it waits for, or `None`."""
        return reads.run(self.using, run_id)

    def get_run_approvals(self, run_id: str) -> list[Approval]:
        """All that a run asked somebody to approve: what waits, and what was approved, was denied or has expired."""
        return reads.run_approvals(self.using, run_id)

    def list_pending_approvals(
        self,
        *,
        owners: Iterable[str] | None = None,
        limit: int = 50,
        after: tuple[datetime, str] | None = None,
    ) -> list[Approval]:
        """What waits for somebody, the oldest first. `after` is the `(asked_at, tool_call_id)` of the last one seen."""
        return reads.pending_approvals(self.using, Ownership.given(owners), after, limit)

    def delete_thread(self, thread_id: str, *, by: Any = None) -> bool:
        """See `AgentStorageService.delete_thread`."""
        return AgentStorageService(self.using).delete_thread(thread_id, by=by)

    def get_distinct_agent_names(self) -> list[str]:
        """The names of all agents that ever ran, sorted."""
        names: Any = AgentRun.everyones.using(self.using).order_by("agent_name").values_list("agent_name", flat=True)
        return list(names.distinct())
