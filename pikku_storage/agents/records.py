"""What the services of agents take and answer with: frozen, typed records, no model instances.

Times are aware UTC, ids and statuses are text, and `None` is the contract's *absent*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Self

from pikku_storage.agents.statuses import ApprovalStatus
from pikku_storage.json import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """A conversation (contract `AgentThread`)."""

    id: str
    resource_id: str
    title: str | None = None
    metadata: Json = None
    created_at: datetime
    updated_at: datetime

    COLUMNS: ClassVar = ("id", "resource_id", "title", "metadata", "created_at", "updated_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """What a message asks a tool for. `args` is a JSON object."""

    id: str
    name: str
    args: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool answered, as text; `id` is its call's."""

    id: str
    name: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. A message of the role `tool` holds results and has the id `tool-results-<id of the message with the
    calls>`."""

    id: str
    role: str
    content: Json = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    created_at: datetime | None = None

    COLUMNS: ClassVar = ("id", "role", "content", "created_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens that a run took, and of which model."""

    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What a run asks somebody to approve. In what is handed in, `status` and what follows it mean nothing."""

    tool_call_id: str
    type: str
    tool_name: str | None = None
    args: Json = None
    agent_run_id: str | None = None
    display_tool_name: str | None = None
    display_args: Json = None
    expires_at: datetime | None = None
    status: str = ApprovalStatus.PENDING.value
    run_id: str | None = None
    asked_at: datetime | None = None
    resolved_at: datetime | None = None
    resolved_by: str | None = None
    reason: str | None = None
    """Why it was decided so, if whoever decided it said why."""

    COLUMNS: ClassVar = (
        "id",
        "run_id",
        "tool_name",
        "args",
        "agent_run_id",
        "display_tool_name",
        "display_args",
        "approval_type",
        "approval_status",
        "approval_asked_at",
        "approval_expires_at",
        "approval_resolved_at",
        "approval_resolved_by",
        "approval_reason",
    )

    @classmethod
    def from_row(cls, row: Mapping[str, Any], now: datetime) -> Self:
        """From a `values(*Approval.COLUMNS)` row. One whose time is over has expired, whether or not that is written
        yet."""
        expires_at, status = row["approval_expires_at"], row["approval_status"]
        if status == ApprovalStatus.PENDING and expires_at is not None and expires_at <= now:
            status = ApprovalStatus.EXPIRED.value
        names = ("run_id", "tool_name", "args", "agent_run_id", "display_tool_name", "display_args")
        return cls(
            tool_call_id=row["id"],
            type=row["approval_type"],
            status=status,
            asked_at=row["approval_asked_at"],
            expires_at=expires_at,
            resolved_at=row["approval_resolved_at"],
            resolved_by=row["approval_resolved_by"],
            reason=row["approval_reason"],
            **{name: row[name] for name in names},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """A run of an agent (contract `AgentRunState`). `pending_approvals` is `None` if there are none, and in lists,
    which do not read them."""

    run_id: str
    agent_name: str
    thread_id: str
    resource_id: str
    status: str
    error_message: str | None = None
    suspend_reason: str | None = None
    missing_rpcs: list[str] | None = None
    usage: Usage
    pending_approvals: tuple[Approval, ...] | None = None
    created_at: datetime
    updated_at: datetime
    workflow_run_id: str | None = None
    """The workflow's run in a step of which it was recorded, if it was in one."""

    COLUMNS: ClassVar = (
        "run_id",
        "agent_name",
        "thread_id",
        "resource_id",
        "status",
        "error_message",
        "suspend_reason",
        "missing_rpcs",
        "usage_input_tokens",
        "usage_output_tokens",
        "usage_model",
        "created_at",
        "updated_at",
        "workflow_run_id",
    )

    @classmethod
    def from_row(cls, row: Mapping[str, Any], approvals: tuple[Approval, ...] = ()) -> Self:
        """From a `values(*AgentRun.COLUMNS)` row."""
        plain = {name: value for name, value in row.items() if not name.startswith("usage_")}
        usage = Usage(
            input_tokens=row["usage_input_tokens"] or 0,
            output_tokens=row["usage_output_tokens"] or 0,
            model=row["usage_model"] or "",
        )
        return cls(**plain, usage=usage, pending_approvals=approvals or None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundApproval:
    """A run, and the approval of it that was looked for."""

    run: AgentRun
    approval: Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A grade of a run."""

    id: str
    run_id: str
    scorer_name: str
    score: float
    reason: str | None = None
    metadata: Json = None
    created_at: datetime

    COLUMNS: ClassVar = ("id", "run_id", "scorer_name", "score", "reason", "metadata", "created_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemory:
    """A working memory with its version, for those who change what they read."""

    data: dict[str, Json]
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTotals:
    """What a thread comes to. Approvals whose time is over are not counted."""

    messages: int = 0
    runs: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    pending_approvals: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What was deleted of somebody."""

    threads: int = 0
    memories: int = 0
