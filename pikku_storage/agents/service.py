"""The write side of agents: threads, messages, working memory, runs, approvals and scores (contract services.md §4-§5).

Knows nothing of owners: whoever may call it may read and write everything. `AgentAccess` is for those who may not.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypedDict, Unpack

from asgiref.sync import sync_to_async
from django.db import IntegrityError, router, transaction

from pikku_storage.access.actors import Actor, identity_of
from pikku_storage.agents import inputs, personal, reads, removal, saving
from pikku_storage.agents.models import AgentRun, AgentRunScore, AgentThread, AgentToolCall
from pikku_storage.agents.models import AgentWorkingMemory as Memory
from pikku_storage.agents.records import AgentRun as Run
from pikku_storage.agents.records import Approval, Erased, FoundApproval, Message, Score, Thread, Usage, WorkingMemory
from pikku_storage.agents.signals import approval_resolved
from pikku_storage.agents.statuses import (
    SUSPEND_REASONS,
    AgentRunStatus,
    ApprovalStatus,
    MemoryScope,
)
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.auditing import AuditEvent, record
from pikku_storage.db import engine
from pikku_storage.db.fields import cut
from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.exceptions import (
    AgentInputError,
    AgentRunNotFoundError,
    MessageConflictError,
    ThreadExistsError,
    ThreadNotFoundError,
)
from pikku_storage.ids import new_id
from pikku_storage.json import Json, to_json, to_json_object, to_text
from pikku_storage.workflows.context import running_step


class RunChanges(TypedDict, total=False):
    """What may be said of a run: `usage` is `Usage` or `{inputTokens, outputTokens, model}`; times are stamps of the
    caller's, for runs that are recorded later."""

    status: str
    error_message: str | None
    suspend_reason: str | None
    missing_rpcs: Iterable[str] | None
    usage: Usage | Mapping[str, Any]
    pending_approvals: Iterable[Any] | None
    created_at: Any
    updated_at: Any


class NewRun(RunChanges, total=False):
    """A run: whose it is, in which thread, and what may be said of it later as well."""

    agent_name: str
    thread_id: str
    resource_id: str


class AgentStorageService(AsyncTwins):
    """What an agent keeps. Every method has an async twin: `await service.asave_messages(…)`."""

    def __init__(self, using: str | None = None) -> None:
        self.using = using or router.db_for_write(AgentThread)
        self._engine = engine(self.using)

    # -- threads -------------------------------------------------------------------------------------------------------

    def create_thread(
        self, resource_id: str, *, thread_id: str | None = None, title: str | None = None, metadata: Json = None
    ) -> Thread:
        """A new thread of that owner. Raises `ThreadExistsError` for an id that is taken, and `PayloadError`."""
        at = self._engine.now()
        thread = Thread(
            id=new_id() if thread_id is None else to_text(thread_id, root="$thread_id"),
            resource_id=to_text(resource_id, root="$resource_id"),
            title=None if title is None else str(to_json(title, root="$title")),
            metadata=to_json(metadata, root="$metadata"),
            created_at=at,
            updated_at=at,
        )
        if not self._threads.add({name: getattr(thread, name) for name in Thread.COLUMNS}):
            raise ThreadExistsError(thread.id)
        return thread

    def get_thread(self, thread_id: str) -> Thread:
        """The thread. Raises `ThreadNotFoundError`; the read side answers with `None`."""
        thread = reads.thread(self.using, thread_id)
        if thread is None:
            raise ThreadNotFoundError(thread_id)
        return thread

    def get_threads(self, resource_id: str) -> list[Thread]:
        """The threads of exactly that owner, the one that changed last first."""
        rows = self._threads.filter(resource_id=resource_id).order_by("-updated_at", "-id")
        return [Thread(**row) for row in rows.values(*Thread.COLUMNS)]

    def delete_thread(self, thread_id: str, *, by: Any = None) -> bool:
        """Delete a thread with its messages, tool calls, runs, scores and working memory; whether there was one. It is
        audited with who deleted it, `by`. After a crash in the middle it is deleted by asking again."""
        removed = removal.remove_thread(self.using, thread_id)
        if removed:
            self._audit("agent.thread.deleted", identity_of(by), {"threadId": thread_id})
        return removed

    # -- messages ------------------------------------------------------------------------------------------------------

    def save_messages(self, thread_id: str, messages: Iterable[Message | Mapping[str, Any]]) -> None:
        """Add messages to a thread, all of them or none: `{id, role, content, toolCalls, toolResults, createdAt}` each.

        `content` is a text, a list of parts, or any other JSON. Results stand in messages of the role `tool`, and are
        kept with their calls. A message that is there already is left as it is, so a batch may be sent again. An empty
        batch does nothing. Raises `ThreadNotFoundError`, `MessageConflictError` if an id is taken by something else,
        `AgentInputError` and `PayloadError`, which name the path of what is wrong.
        """
        batch = inputs.messages(messages)
        if batch:
            saving.save(self.using, thread_id, batch)

    def get_messages(self, thread_id: str, *, last_n: int | None = None, cursor: str | None = None) -> list[Message]:
        """The messages of a thread, the oldest first: all, or the `last_n` (50 if only a cursor is given) before the
        message with the id `cursor`. A cursor that is no message of the thread is ignored, as in the contract.

        A message whose calls have results is followed by one of the role `tool` that holds them; it counts as none.
        """
        if last_n is not None and (isinstance(last_n, bool) or last_n < 1):
            raise AgentInputError(f"last_n is a whole number from 1, not {last_n!r}")
        return reads.messages(self.using, thread_id, last=last_n, cursor=cursor)

    # -- working memory ------------------------------------------------------------------------------------------------

    def get_working_memory(self, memory_id: str, scope: Literal["resource", "thread"]) -> dict[str, Json] | None:
        """What is remembered of a resource or of a thread; `None` for nothing."""
        memory = self.read_working_memory(memory_id, scope)
        return None if memory is None else memory.data

    def read_working_memory(self, memory_id: str, scope: Literal["resource", "thread"]) -> WorkingMemory | None:
        """As `get_working_memory`, with the version that `swap_working_memory` takes."""
        row = self._memories.of(memory_id, _scope(scope)).values("data", "version").first()
        return None if row is None else WorkingMemory(**row)

    def save_working_memory(self, memory_id: str, scope: Literal["resource", "thread"], data: Json) -> None:
        """Remember a JSON object in place of what was remembered."""
        plain = to_json_object(data, root="$data")
        memory_id = to_text(memory_id, root="$memory_id")
        self._memories.put(memory_id, _scope(scope), plain, version=new_id(), at=self._engine.now())

    def swap_working_memory(
        self, memory_id: str, scope: Literal["resource", "thread"], data: Json, *, seen: WorkingMemory | None
    ) -> bool:
        """Remember a JSON object in place of what was seen, `None` for nothing; `False` if something else is remembered
        by now."""
        plain = to_json_object(data, root="$data")
        write: dict[str, Any] = {"version": new_id(), "at": self._engine.now()}
        if seen is None:
            memory_id = to_text(memory_id, root="$memory_id")
            return bool(self._memories.add(memory_id, _scope(scope), plain, **write))
        return bool(self._memories.swap(memory_id, _scope(scope), plain, seen=seen.version, **write))

    # -- runs ----------------------------------------------------------------------------------------------------------

    def create_run(self, run: NewRun | Mapping[str, Any] | None = None, /, **fields: Unpack[NewRun]) -> str:
        """Record a run, and ask for the approvals that it waits for; answers with its id. The run is a mapping with the
        contract's names or ours, or keywords. Inside a step of a workflow, the workflow's run is kept with it.

        A tool call that is none of the thread's is ignored. Raises `ThreadNotFoundError`, `AgentInputError` and
        `PayloadError`.
        """
        given = _fields(NewRun, run, fields)
        missing = sorted(name for name in ("agent_name", "thread_id", "resource_id") if given.get(name) is None)
        if missing:
            raise AgentInputError(f"A run needs {', '.join(missing)}")
        at = self._engine.now()
        asked = given.pop("pending_approvals", None)
        values = {
            "run_id": new_id(),
            "status": AgentRunStatus.RUNNING.value,
            **_columns(Usage()),
            "workflow_run_id": _workflow_run_id(),
            "created_at": at,
            "updated_at": at,
            **_run_values(given),
        }
        approvals = inputs.approvals(asked or ())
        if not self._runs.add(AgentThread, values):
            raise ThreadNotFoundError(values["thread_id"])
        self._ask(values["thread_id"], values["run_id"], approvals)
        return str(values["run_id"])

    def update_run(
        self, run_id: str, changes: RunChanges | Mapping[str, Any] | None = None, /, **fields: Unpack[RunChanges]
    ) -> None:
        """Change what is given, and nothing else. With `pending_approvals`, these are what the run waits for now: it
        asks for them, and no more for others that nobody decided. What was approved or denied stays so.

        Raises `AgentRunNotFoundError`, `AgentInputError` and `PayloadError`.
        """
        given = _fields(RunChanges, changes, fields)
        asked = given.pop("pending_approvals", None)
        values = {"updated_at": self._engine.now(), **_run_values(given)}
        approvals = None if asked is None else inputs.approvals(asked)
        if approvals is not None:
            thread_id = self._runs.filter(pk=run_id).values_list("thread_id", flat=True).first()
            if thread_id is None:
                raise AgentRunNotFoundError(run_id)
            # Before the run says that it waits: what it waits for can then be answered.
            self._ask(thread_id, run_id, approvals)
            self._calls.withdraw(run_id, but=[approval.tool_call_id for approval in approvals])
        if not self._runs.change(run_id, values):
            raise AgentRunNotFoundError(run_id)

    def get_run(self, run_id: str) -> Run | None:
        """The run with the approvals that it waits for, or `None`."""
        return reads.run(self.using, run_id)

    def get_runs_by_thread(self, thread_id: str) -> list[Run]:
        """The runs of a thread, the newest first."""
        return [Run.from_row(row) for row in reads.runs(self.using, thread_id=thread_id).values(*Run.COLUMNS)]

    # -- approvals -----------------------------------------------------------------------------------------------------

    def resolve_approval(
        self,
        tool_call_id: str,
        status: Literal["approved", "denied"],
        *,
        by: Any = None,
        reason: str | None = None,
    ) -> bool:
        """Decide an approval that waits: `True` for exactly one of all who try, `False` for the others, and for one
        that is not waiting, has expired or does not exist. The `reason` is kept with it; an empty one is none. It is
        audited with who decided, `by`, and the signal `approval_resolved` is sent once it is committed. Raises
        `PayloadError` for a reason that cannot be stored."""
        status = inputs.one_of(  # type: ignore[assignment]
            status, [ApprovalStatus.APPROVED.value, ApprovalStatus.DENIED.value], name="status"
        )
        actor = identity_of(by)
        reason = str(to_json(reason, root="$reason")) if reason else None
        resolved = bool(
            self._calls.resolve(tool_call_id, status, by=actor.user_id, reason=reason, at=self._engine.now())
        )
        if resolved:
            self._audit("agent.approval.resolved", actor, {"toolCallId": tool_call_id, "decision": status})
            told = partial(
                approval_resolved.send_robust,
                sender=type(self),
                tool_call_id=tool_call_id,
                status=status,
                using=self.using,
            )
            transaction.on_commit(told, using=self.using)
        return resolved

    def find_run_by_tool_call_id(self, tool_call_id: str) -> FoundApproval | None:
        """The run that waits for that tool call, and what it asks; `None` unless it waits. One indexed read."""
        of_run = [f"run__{name}" for name in Run.COLUMNS]
        of_call = [name for name in Approval.COLUMNS if name != "run_id"]
        waiting = self._calls.filter(pk=tool_call_id, approval_status=ApprovalStatus.PENDING, run_id__isnull=False)
        row: Any = waiting.values("run_id", *of_call, *of_run).first()
        if row is None or row["run__run_id"] is None:
            return None
        approval = Approval.from_row(row, self._engine.now())
        if approval.status != ApprovalStatus.PENDING:
            return None
        return FoundApproval(run=Run.from_row({name: row[f"run__{name}"] for name in Run.COLUMNS}), approval=approval)

    def expire_approvals(self) -> int:
        """Mark the approvals whose time is over; answers how many there were. They count as expired before, too."""
        return int(self._calls.expire(at=self._engine.now()))

    # -- scores --------------------------------------------------------------------------------------------------------

    def save_score(
        self,
        run_id: str,
        scorer_name: str,
        score: float,
        *,
        reason: str | None = None,
        metadata: Json = None,
        score_id: str | None = None,
    ) -> Score:
        """Add a grade of a run; earlier ones stay. An empty `metadata` is none. With a `score_id` of the caller's it is
        added once: a grade of that run by that scorer that has the id already is answered with, as it is. Raises
        `AgentRunNotFoundError`, `MessageConflictError` if the id is another grade's, `AgentInputError` and
        `PayloadError`."""
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise AgentInputError(f"A score is a number, not {score!r}")
        graded = Score(
            id=new_id() if score_id is None else to_text(score_id, root="$score_id"),
            run_id=run_id,
            scorer_name=to_text(scorer_name, root="$scorer_name"),
            score=float(to_json(score, root="$score")),
            reason=None if reason is None else str(to_json(reason, root="$reason")),
            metadata=to_json(metadata, root="$metadata") or None,
            created_at=self._engine.now(),
        )
        try:
            if not self._scores.add(AgentRun, {name: getattr(graded, name) for name in Score.COLUMNS}):
                raise AgentRunNotFoundError(run_id)
        except IntegrityError:
            known = reads.score(self.using, graded.id)
            if known is None:
                raise
            if (known.run_id, known.scorer_name) != (run_id, graded.scorer_name):
                raise MessageConflictError("score", graded.id) from None
            return known
        return graded

    def get_scores(self, run_id: str) -> list[Score]:
        """The grades of a run, the oldest first."""
        return reads.scores(self.using, run_id)

    # -- upkeep --------------------------------------------------------------------------------------------------------

    def export_thread(self, thread_id: str) -> str:
        """A thread with all that belongs to it, as a JSON document; see `personal.export_thread`. Raises
        `ThreadNotFoundError`."""
        return personal.export_thread(self.using, self.get_thread(thread_id))

    def export_user(self, owner: Any) -> Iterator[str]:
        """All that belongs to a user or an organisation, as one JSON document in pieces; see `personal.export`."""
        return personal.export(self.using, owner)

    async def aexport_user(self, owner: Any) -> AsyncIterator[str]:
        """As `export_user`: `async for piece in service.aexport_user(owner)`."""
        pieces = self.export_user(owner)
        while (piece := await sync_to_async(lambda: next(pieces, None))()) is not None:
            yield piece

    def erase_user(self, owner: Any, *, by: Any = None) -> Erased:
        """Delete all that belongs to a user or an organisation, and their id from what they decided; answers how much
        there was. It is audited. After a crash in the middle it is finished by asking again."""
        erased = personal.erase(self.using, owner)
        counts: dict[str, Json] = {"threads": erased.threads, "memories": erased.memories}
        self._audit("agent.user.erased", identity_of(by), counts)
        return erased

    def prune_threads(self, older_than: Duration, *, agent_name: str | None = None, dry_run: bool = False) -> int:
        """Delete the threads that changed last longer ago than that, or with `dry_run` count them; answers how many.
        Raises `ValueError` for no duration."""
        by = self._engine.now() - timedelta(milliseconds=to_milliseconds(older_than))
        return removal.prune_threads(self.using, by, agent_name=agent_name, dry_run=dry_run)

    def recover(self) -> int:
        """Finish the batches of messages that were cut short by a crash; answers how many. Needed on MongoDB only."""
        return self._engine.recover(AgentThread)

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _threads(self) -> Any:
        return AgentThread.everyones.using(self.using)

    @property
    def _calls(self) -> Any:
        return AgentToolCall.everyones.using(self.using)

    @property
    def _runs(self) -> Any:
        return AgentRun.everyones.using(self.using)

    @property
    def _scores(self) -> Any:
        return AgentRunScore.everyones.using(self.using)

    @property
    def _memories(self) -> Any:
        return Memory.objects.using(self.using)

    def _ask(self, thread_id: str, run_id: str, approvals: Iterable[Approval]) -> None:
        at = self._engine.now()
        for approval in approvals:
            values = {
                "run_id": run_id,
                "approval_type": approval.type,
                "agent_run_id": approval.agent_run_id,
                "display_tool_name": approval.display_tool_name,
                "display_args": approval.display_args,
                "approval_asked_at": at,
                "approval_expires_at": None if approval.expires_at is None else cut(approval.expires_at),
            }
            self._calls.ask(thread_id, approval.tool_call_id, values)

    def _audit(self, kind: str, actor: Actor, metadata: dict[str, Json]) -> None:
        record(AuditEvent(type=kind, outcome="success", actor=actor, wire_type="agent", metadata=metadata))


def _workflow_run_id() -> str | None:
    step = running_step.get(None)
    return None if step is None else step.run_id


def _scope(scope: str) -> str:
    return inputs.one_of(scope, MemoryScope.values, name="scope")


def _fields(kind: type[Any], mapping: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    return inputs.named(mapping, fields, allowed=kind.__annotations__ | RunChanges.__annotations__)


def _columns(usage: Usage) -> dict[str, Any]:
    return {
        "usage_input_tokens": usage.input_tokens,
        "usage_output_tokens": usage.output_tokens,
        "usage_model": usage.model,
    }


def _run_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of what was given."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        root = f"${name}"
        if name == "usage":
            values |= _columns(inputs.usage(value))
        elif name == "status":
            values[name] = inputs.one_of(value, AgentRunStatus.values, name="status")
        elif name == "suspend_reason":
            values[name] = value and inputs.one_of(value, SUSPEND_REASONS, name=name)
        elif name in {"created_at", "updated_at"}:
            values[name] = cut(inputs.moment(value, root=root))
        elif name == "missing_rpcs":
            values[name] = None if value is None else [to_text(each, root=root) for each in value]
        elif name == "error_message":
            values[name] = None if value is None else str(to_json(value, root=root))
        else:
            values[name] = to_text(value, root=root)
    return values
