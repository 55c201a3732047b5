"""Agents for somebody who may not see everything (contract services.md §7, console.md §4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, Unpack

from pikku_storage.access.actors import Actor, actor_of, identity_of
from pikku_storage.access.ownership import Ownership, SessionScope, resolve_owner_resource_id
from pikku_storage.agents import reads
from pikku_storage.agents.records import AgentRun as Run
from pikku_storage.agents.records import Approval, FoundApproval, Message, Score, Thread, ThreadTotals
from pikku_storage.agents.service import AgentStorageService, NewRun, RunChanges
from pikku_storage.agents.statuses import MemoryScope
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.exceptions import AgentRunNotFoundError, ForbiddenError
from pikku_storage.json import Json


class AgentAccess(AsyncTwins):
    """What a session may do with threads and runs: with those of its principals, and of nobody else.

    What is somebody else's and what does not exist are answered alike: lists leave it out, and everything else raises
    `ForbiddenError`. With `admins` a session that holds the scope `admin` may do it with everybody's. Who is nobody
    lists nothing and reaches nothing, but for the threads that the same `request` began.
    """

    def __init__(
        self,
        session: Any,
        *,
        admins: bool = False,
        session_scope: SessionScope = "user",
        request: Any = None,
        using: str | None = None,
    ) -> None:
        self._storage = AgentStorageService(using)
        self.using = self._storage.using
        self._session = session
        self._admins = admins
        self._session_scope: SessionScope = session_scope
        self._request = request

    @cached_property
    def actor(self) -> Actor:
        """Whoever the session is; with their scopes if they matter. These may have to be read, so not in async code."""
        return actor_of(self._session) if self._admins else identity_of(self._session)

    @cached_property
    def ownership(self) -> Ownership:
        """Whose things the session reaches. May have to be read, as `actor`."""
        ownership = Ownership.of(self.actor, admins=self._admins)
        if ownership.owners == () and self._request is not None:
            return Ownership.given([resolve_owner_resource_id(None, None, request=self._request)])
        return ownership

    # -- threads -------------------------------------------------------------------------------------------------------

    def create_thread(
        self,
        requested: str | None = None,
        *,
        thread_id: str | None = None,
        title: str | None = None,
        metadata: Json = None,
    ) -> Thread:
        """A new thread of the session's own; what is `requested` is a partition of it, whatever it names."""
        owner = resolve_owner_resource_id(
            requested, self.actor, session_scope=self._session_scope, request=self._request
        )
        return self._storage.create_thread(owner, thread_id=thread_id, title=title, metadata=metadata)

    def list_threads(
        self,
        *,
        agent_name: str | None = None,
        resource_id: str | None = None,
        owners: Iterable[str] | None = None,
        limit: int = 50,
        before: tuple[datetime, str] | None = None,
    ) -> list[Thread]:
        """Threads, the one that changed last first. `owners` narrows, and never widens."""
        ownership = self.ownership.narrowed(owners)
        if ownership.owners == ():
            return []
        rows = reads.threads(self.using, ownership, resource_id=resource_id, agent_name=agent_name, before=before)
        return [Thread(**row) for row in rows.values(*Thread.COLUMNS)[:limit]]

    def get_thread(self, thread_id: str) -> Thread:
        """The thread."""
        thread = reads.thread(self.using, thread_id)
        if thread is None or not self.ownership.covers(thread.resource_id):
            raise ForbiddenError("Not authorized to access this thread")
        return thread

    def get_thread_messages(
        self, thread_id: str, *, last_n: int | None = None, cursor: str | None = None
    ) -> list[Message]:
        """The messages of a thread; see `AgentStorageService.get_messages`."""
        self.get_thread(thread_id)
        return self._storage.get_messages(thread_id, last_n=last_n, cursor=cursor)

    def get_totals(self, thread_ids: Iterable[str]) -> dict[str, ThreadTotals]:
        """What these threads come to; those of others are left out. Four reads, however many."""
        own = reads.threads(self.using, self.ownership).filter(pk__in=list(thread_ids)).order_by()
        return reads.totals(self.using, own.values_list("pk", flat=True))

    def save_messages(self, thread_id: str, messages: Iterable[Message | Mapping[str, Any]]) -> None:
        """Add messages to a thread; see `AgentStorageService.save_messages`."""
        self.get_thread(thread_id)
        self._storage.save_messages(thread_id, messages)

    def delete_thread(self, thread_id: str) -> bool:
        """Delete a thread with all that belongs to it; whether it was there still."""
        self.get_thread(thread_id)
        return self._storage.delete_thread(thread_id, by=self.actor)

    # -- working memory ------------------------------------------------------------------------------------------------

    def get_working_memory(self, memory_id: str, scope: Literal["resource", "thread"]) -> dict[str, Json] | None:
        """What is remembered of the session's own resource, or of a thread of its."""
        self._check_memory(memory_id, scope)
        return self._storage.get_working_memory(memory_id, scope)

    def save_working_memory(self, memory_id: str, scope: Literal["resource", "thread"], data: Json) -> None:
        """Remember a JSON object of the session's own resource, or of a thread of its."""
        self._check_memory(memory_id, scope)
        self._storage.save_working_memory(memory_id, scope, data)

    def _check_memory(self, memory_id: str, scope: str) -> None:
        if scope == MemoryScope.THREAD:
            self.get_thread(memory_id)
        elif not self.ownership.covers(memory_id):
            raise ForbiddenError("Not authorized to access this memory")

    # -- runs ----------------------------------------------------------------------------------------------------------

    def list_runs(
        self,
        *,
        thread_id: str | None = None,
        agent_name: str | None = None,
        status: str | None = None,
        owners: Iterable[str] | None = None,
        limit: int | None = 50,
        before: tuple[datetime, str] | None = None,
    ) -> list[Run]:
        """Runs, the newest first; another owner's thread looks like an empty one."""
        filters = {"thread_id": thread_id, "agent_name": agent_name, "status": status}
        rows = reads.runs(self.using, **{name: value for name, value in filters.items() if value is not None})
        return reads.page_of_runs(rows, self.ownership.narrowed(owners), before, limit)

    def get_run(self, run_id: str) -> Run:
        """The run with the approvals that it waits for."""
        run = reads.run(self.using, run_id)
        if run is None or not self.ownership.covers(run.resource_id):
            raise ForbiddenError("Not authorized to access this run")
        return run

    def get_scores(self, run_id: str) -> list[Score]:
        """The grades of a run. Raises `AgentRunNotFoundError` for one of somebody else, too."""
        try:
            self.get_run(run_id)
        except ForbiddenError:
            raise AgentRunNotFoundError(run_id) from None
        return self._storage.get_scores(run_id)

    def create_run(self, run: NewRun | Mapping[str, Any] | None = None, /, **fields: Unpack[NewRun]) -> str:
        """Record a run in a thread, under the thread's owner; see `AgentStorageService.create_run`."""
        given: dict[str, Any] = {**(run or {}), **fields}
        thread = self.get_thread(str(given.pop("threadId", None) or given.get("thread_id")))
        given.pop("resourceId", None)
        owned: Any = {**given, "thread_id": thread.id, "resource_id": thread.resource_id}
        return self._storage.create_run(owned)

    def update_run(
        self, run_id: str, changes: RunChanges | Mapping[str, Any] | None = None, /, **fields: Unpack[RunChanges]
    ) -> None:
        """Change a run; see `AgentStorageService.update_run`."""
        self.get_run(run_id)
        self._storage.update_run(run_id, changes, **fields)

    # -- approvals -----------------------------------------------------------------------------------------------------

    def list_pending_approvals(self, *, limit: int = 50, after: tuple[datetime, str] | None = None) -> list[Approval]:
        """What waits for somebody in threads of the session, the oldest first."""
        return reads.pending_approvals(self.using, self.ownership, after, limit)

    def find_run_by_tool_call_id(self, tool_call_id: str) -> FoundApproval | None:
        """The run that waits for that tool call, and what it asks; `None` also if it is somebody else's."""
        found = self._storage.find_run_by_tool_call_id(tool_call_id)
        return found if found is not None and self.ownership.covers(found.run.resource_id) else None

    def resolve_approval(
        self, tool_call_id: str, status: Literal["approved", "denied"], *, reason: str | None = None
    ) -> bool:
        """Decide an approval in the session's name; `False` also if it is somebody else's. `True` for exactly one."""
        if self.find_run_by_tool_call_id(tool_call_id) is None:
            return False
        return self._storage.resolve_approval(tool_call_id, status, by=self.actor, reason=reason)
