"""The statuses of agent runs and of approvals of tool calls (contract tables.md §3, 20 and 22)."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class AgentRunStatus(models.TextChoices):
    """How far an agent run is."""

    RUNNING = "running", _("running")
    SUSPENDED = "suspended", _("suspended")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")
    INTERRUPTED = "interrupted", _("interrupted")


class ApprovalStatus(models.TextChoices):
    """What became of an approval. `EXPIRED` is ours; approved and denied are final."""

    PENDING = "pending", _("pending")
    APPROVED = "approved", _("approved")
    DENIED = "denied", _("denied")
    EXPIRED = "expired", _("expired")


class ApprovalType(models.TextChoices):
    """What is to be approved: a tool, or what a sub-agent wants."""

    TOOL_CALL = "tool-call", _("tool call")
    AGENT_CALL = "agent-call", _("sub-agent")


class MemoryScope(models.TextChoices):
    """What a working memory belongs to."""

    RESOURCE = "resource", _("resource")
    THREAD = "thread", _("thread")


SUSPEND_REASONS = ("approval", "credential", "rpc-missing")
"""Why an agent run may be suspended."""
TOOL = "tool"
"""The role of messages that carry results of tool calls; they are never stored as messages."""
