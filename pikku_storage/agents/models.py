"""The six tables of agents (contract tables.md §3, 18-23), and two of ours: what LangGraph keeps of a thread.

Names of tables and columns are the contract's, on MongoDB in camel case as there. Columns the contract does not have
are marked "ours". Nothing here changes a row: see `querysets.py`.

`objects` of what belongs to somebody answers nothing before it is told whose rows are wanted; `everyones` is for code
that has decided that already.
"""

from __future__ import annotations

import json

from django.db import models
from django.utils.translation import gettext_lazy as _

from pikku_storage.access.owned import OwnedManager
from pikku_storage.agents.querysets import (
    AgentRunQuerySet,
    CheckpointQuerySet,
    CheckpointWriteQuerySet,
    MemoryQuerySet,
    MessageQuerySet,
    ScoreQuerySet,
    ThreadQuerySet,
    ToolCallQuerySet,
)
from pikku_storage.agents.statuses import AgentRunStatus, ApprovalStatus, ApprovalType, MemoryScope
from pikku_storage.db.fields import (
    ExactCharField,
    ExactTextField,
    JsonTextField,
    MillisecondDateTimeField,
    PayloadField,
    text_id,
)
from pikku_storage.db.indexes import SparseIndex
from pikku_storage.ids import derived_id, new_id

NAME_LENGTH = 255
WORD_LENGTH = 50
"""Of roles, statuses and the like."""


class AgentThread(models.Model):
    """A conversation. `resource_id` is its owner: a principal, or `principal:partition`."""

    id = text_id(primary_key=True, default=new_id, editable=False)
    resource_id = text_id(verbose_name=_("owner"))
    title = ExactTextField(_("title"), null=True)
    metadata = PayloadField(_("metadata"), null=True)
    created_at = MillisecondDateTimeField(_("created"))
    updated_at = MillisecondDateTimeField(_("updated"))

    everyones = ThreadQuerySet.as_manager()
    objects = OwnedManager("resource_id")

    class Meta:
        db_table = "agent_threads"
        verbose_name = _("thread")
        verbose_name_plural = _("threads")
        ordering = ("-updated_at", "-id")
        indexes = (
            models.Index(fields=("resource_id", "updated_at", "id"), name="idx_agent_threads_resource"),
            models.Index(fields=("updated_at", "id"), name="idx_agent_threads_updated"),
        )

    def __str__(self) -> str:
        return str(self.title or self.id)


class AgentMessage(models.Model):
    """One message of a thread. Results of tool calls are kept with their calls."""

    id = text_id(primary_key=True, default=new_id, editable=False)
    thread = models.ForeignKey(
        AgentThread, models.CASCADE, related_name="messages", db_index=False, verbose_name=_("thread")
    )
    role = ExactCharField(_("role"), max_length=WORD_LENGTH)
    content = JsonTextField(_("content"), null=True)
    created_at = MillisecondDateTimeField(_("created"))
    # Ours: the place among messages of the same millisecond. Null in what another program wrote.
    place = ExactCharField(max_length=36, null=True)

    everyones = MessageQuerySet.as_manager()
    objects = OwnedManager("thread__resource_id")

    class Meta:
        db_table = "agent_message"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ("created_at", "place", "id")
        indexes = (models.Index(fields=("thread", "created_at", "place", "id"), name="idx_agent_message_thread"),)

    def __str__(self) -> str:
        return f"{self.role} · {self.id}"


class AgentRun(models.Model):
    """One run of an agent in a thread."""

    run_id = text_id(primary_key=True, default=new_id, editable=False)
    agent_name = ExactCharField(_("agent"), max_length=NAME_LENGTH)
    thread = models.ForeignKey(
        AgentThread, models.CASCADE, related_name="runs", db_index=False, verbose_name=_("thread")
    )
    resource_id = text_id(verbose_name=_("owner"))
    status = ExactCharField(_("status"), max_length=WORD_LENGTH, choices=AgentRunStatus, default=AgentRunStatus.RUNNING)
    error_message = ExactTextField(_("error"), null=True)
    suspend_reason = ExactTextField(_("suspended for"), null=True)
    missing_rpcs = PayloadField(_("missing functions"), null=True)
    usage_input_tokens = models.BigIntegerField(_("input tokens"), default=0)
    usage_output_tokens = models.BigIntegerField(_("output tokens"), default=0)
    usage_model = ExactCharField(_("model"), max_length=NAME_LENGTH, default="")
    # Ours: the workflow's run in a step of which it was recorded. It may be gone.
    workflow_run_id = text_id(verbose_name=_("run of the workflow"), null=True)
    created_at = MillisecondDateTimeField(_("created"))
    updated_at = MillisecondDateTimeField(_("updated"))

    everyones = AgentRunQuerySet.as_manager()
    objects = OwnedManager("resource_id")

    class Meta:
        db_table = "agent_run"
        verbose_name = _("agent run")
        verbose_name_plural = _("agent runs")
        ordering = ("-created_at", "-run_id")
        indexes = (
            models.Index(fields=("thread", "created_at", "run_id"), name="idx_agent_run_thread"),
            # Ours: which threads an agent ran in, and which agents there are.
            models.Index(fields=("agent_name", "thread"), name="idx_agent_run_agent"),
            models.Index(fields=("resource_id", "created_at", "run_id"), name="idx_agent_run_resource"),
            models.Index(fields=("created_at", "run_id"), name="idx_agent_run_created"),
            models.Index(fields=("status", "created_at", "run_id"), name="idx_agent_run_status"),
            SparseIndex(
                fields=("workflow_run_id", "created_at"), present="workflow_run_id", name="idx_agent_run_workflow"
            ),
        )

    def __str__(self) -> str:
        return f"{self.agent_name} · {self.run_id}"


class AgentToolCall(models.Model):
    """A call of a tool that a message asked for, its result, and whether somebody must approve it."""

    id = text_id(primary_key=True, editable=False)
    thread = models.ForeignKey(
        AgentThread, models.CASCADE, related_name="tool_calls", db_index=False, verbose_name=_("thread")
    )
    message = models.ForeignKey(
        AgentMessage, models.CASCADE, related_name="tool_calls", db_index=False, verbose_name=_("message")
    )
    # The run that asks for approval. It may be gone, as in the contract.
    run = models.ForeignKey(
        AgentRun,
        models.DO_NOTHING,
        null=True,
        related_name="tool_calls",
        db_index=False,
        db_constraint=False,
        verbose_name=_("run"),
    )
    tool_name = ExactCharField(_("tool"), max_length=NAME_LENGTH)
    args = PayloadField(_("arguments"), null=True)
    result = ExactTextField(_("result"), null=True)
    approval_status = ExactCharField(_("approval"), max_length=WORD_LENGTH, choices=ApprovalStatus, null=True)
    approval_type = ExactCharField(_("kind of approval"), max_length=WORD_LENGTH, choices=ApprovalType, null=True)
    agent_run_id = text_id(verbose_name=_("run of the sub-agent"), null=True)
    display_tool_name = ExactCharField(_("tool, as shown"), max_length=NAME_LENGTH, null=True)
    display_args = PayloadField(_("arguments, as shown"), null=True)
    created_at = MillisecondDateTimeField(_("created"))
    # Ours: the place among the calls of its message; and when the approval was asked for, until when it waits, and who
    # decided it when and why.
    place = models.IntegerField(null=True)
    approval_asked_at = MillisecondDateTimeField(_("asked"), null=True)
    approval_expires_at = MillisecondDateTimeField(_("expires"), null=True)
    approval_resolved_at = MillisecondDateTimeField(_("resolved"), null=True)
    approval_resolved_by = text_id(verbose_name=_("resolved by"), null=True)
    approval_reason = ExactTextField(_("reason"), null=True)

    everyones = ToolCallQuerySet.as_manager()
    objects = OwnedManager("thread__resource_id")

    class Meta:
        db_table = "agent_tool_call"
        verbose_name = _("tool call")
        verbose_name_plural = _("tool calls")
        ordering = ("created_at", "place", "id")
        indexes = (
            models.Index(fields=("thread",), name="idx_agent_tool_call_thread"),
            models.Index(fields=("message", "place"), name="idx_agent_tool_call_message"),
            # Ours: what a run asks for, and what waits for somebody.
            SparseIndex(fields=("run",), present="run", name="idx_agent_tool_call_run"),
            SparseIndex(
                fields=("approval_status", "approval_asked_at", "id"),
                present="approval_status",
                name="idx_agent_tool_call_approval",
            ),
        )

    def __str__(self) -> str:
        return f"{self.tool_name} · {self.id}"


class AgentApproval(AgentToolCall):
    """Ours: a tool call as what somebody is asked to approve. The same rows."""

    class Meta:
        proxy = True
        verbose_name = _("approval")
        verbose_name_plural = _("approvals")
        ordering = ("approval_asked_at", "id")


class AgentWorkingMemory(models.Model):
    """What an agent remembers of a resource or of a thread: one JSON object.

    Ours: the primary key, derived from scope and id, which is what makes the two unique together.
    """

    key = text_id(primary_key=True, editable=False, db_column="memory_key")
    memory_id = text_id(verbose_name=_("resource or thread"), db_column="id")
    scope = ExactCharField(_("scope"), max_length=WORD_LENGTH, choices=MemoryScope)
    data = PayloadField(_("memory"))
    updated_at = MillisecondDateTimeField(_("updated"))
    # Ours: which write this is, for those who change what they read.
    version = ExactCharField(max_length=36, null=True)

    objects = MemoryQuerySet.as_manager()

    class Meta:
        db_table = "agent_working_memory"
        verbose_name = _("working memory")
        verbose_name_plural = _("working memories")
        ordering = ("memory_id", "scope")
        indexes = (models.Index(fields=("memory_id", "scope"), name="idx_agent_working_memory"),)

    def __str__(self) -> str:
        return f"{self.scope} · {self.memory_id}"

    @staticmethod
    def key_of(memory_id: str, scope: str) -> str:
        """The key of the row of that memory."""
        return derived_id("working memory", json.dumps([memory_id, scope]))


class AgentRunScore(models.Model):
    """A grade of a run. Rows are only ever added."""

    id = text_id(primary_key=True, default=new_id, editable=False)
    run = models.ForeignKey(AgentRun, models.CASCADE, related_name="scores", db_index=False, verbose_name=_("run"))
    scorer_name = ExactCharField(_("scorer"), max_length=NAME_LENGTH)
    score = models.FloatField(_("score"))
    reason = ExactTextField(_("reason"), null=True)
    metadata = PayloadField(_("metadata"), null=True)
    created_at = MillisecondDateTimeField(_("created"))

    everyones = ScoreQuerySet.as_manager()
    objects = OwnedManager("run__resource_id")

    class Meta:
        db_table = "agent_run_score"
        verbose_name = _("score")
        verbose_name_plural = _("scores")
        ordering = ("created_at", "id")
        indexes = (models.Index(fields=("run", "created_at", "id"), name="idx_agent_run_score_run"),)

    def __str__(self) -> str:
        return f"{self.scorer_name}: {self.score}"


class AgentCheckpoint(models.Model):
    """Ours: the state of a LangGraph graph at one moment of a thread.

    The key is derived from thread, namespace and checkpoint id; `line` from the first two, so it is what the
    checkpoints of a graph or subgraph have in common. `state` and `metadata` are what LangGraph's serializer made.
    """

    key = text_id(primary_key=True, editable=False, db_column="checkpoint_key")
    thread = models.ForeignKey(
        AgentThread, models.CASCADE, related_name="checkpoints", db_index=False, verbose_name=_("thread")
    )
    line = text_id()
    namespace = ExactTextField(_("namespace"))
    checkpoint_id = text_id(verbose_name=_("checkpoint"))
    parent_id = text_id(verbose_name=_("parent"), null=True)
    run_id = text_id(verbose_name=_("run of the graph"), null=True)
    state = ExactTextField(_("state"))
    metadata = ExactTextField(_("metadata"))
    created_at = MillisecondDateTimeField(_("created"))

    everyones = CheckpointQuerySet.as_manager()
    objects = OwnedManager("thread__resource_id")

    class Meta:
        db_table = "agent_checkpoint"
        verbose_name = _("checkpoint")
        verbose_name_plural = _("checkpoints")
        ordering = ("-checkpoint_id", "-key")
        indexes = (
            models.Index(fields=("line", "checkpoint_id"), name="idx_agent_checkpoint_line"),
            models.Index(fields=("thread", "checkpoint_id", "key"), name="idx_agent_checkpoint_thread"),
            SparseIndex(fields=("run_id",), present="run_id", name="idx_agent_checkpoint_run"),
        )

    def __str__(self) -> str:
        return f"{self.namespace} · {self.checkpoint_id}"

    @staticmethod
    def line_of(thread_id: str, namespace: str) -> str:
        """What the checkpoints of that namespace of a thread have in common."""
        return derived_id("checkpoint line", json.dumps([thread_id, namespace]))

    @staticmethod
    def key_of(line: str, checkpoint_id: str) -> str:
        """The key of that checkpoint."""
        return derived_id("checkpoint", json.dumps([line, checkpoint_id]))


class AgentCheckpointWrite(models.Model):
    """Ours: what a task of a LangGraph graph wrote after a checkpoint. It may be there before its checkpoint is."""

    key = text_id(primary_key=True, editable=False, db_column="write_key")
    thread = models.ForeignKey(
        AgentThread, models.CASCADE, related_name="checkpoint_writes", db_index=False, verbose_name=_("thread")
    )
    checkpoint_key = text_id()
    task_id = text_id(verbose_name=_("task"))
    task_path = ExactTextField(_("path of the task"))
    place = models.IntegerField()
    channel = ExactTextField(_("channel"))
    value = ExactTextField(_("value"))

    everyones = CheckpointWriteQuerySet.as_manager()
    objects = OwnedManager("thread__resource_id")

    class Meta:
        db_table = "agent_checkpoint_write"
        verbose_name = _("write after a checkpoint")
        verbose_name_plural = _("writes after checkpoints")
        ordering = ("checkpoint_key", "task_path", "task_id", "place")
        indexes = (
            models.Index(fields=("checkpoint_key", "task_id", "place"), name="idx_agent_checkpoint_write"),
            models.Index(fields=("thread",), name="idx_agent_write_thread"),
        )

    def __str__(self) -> str:
        return f"{self.task_id} · {self.channel}"

    @staticmethod
    def key_of(checkpoint_key: str, task_id: str, place: int) -> str:
        """The key of that write."""
        return derived_id("checkpoint write", json.dumps([checkpoint_key, task_id, place]))
