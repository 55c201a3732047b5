"""The `workflow_*` tables: the contract's four (tables.md §3, 14-17), and five of ours: for the answers to approvals,
for schedules, and three for flow control.

Names of tables and columns are the contract's. Columns the contract does not have are nullable and marked "ours".
Nothing here changes a row: every state change is a guarded UPDATE in `querysets/`, and nobody calls `.save()` on an
engine row.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.fields import ExactCharField, MillisecondDateTimeField, PayloadField, text_id
from pikku_storage.db.indexes import SparseIndex
from pikku_storage.ids import derived_id, new_id
from pikku_storage.workflows.definitions import NAME_LENGTH
from pikku_storage.workflows.querysets import (
    WIRE_TYPE_LENGTH,
    AnswerQuerySet,
    ControlQuerySet,
    RateQuerySet,
    RunQuerySet,
    ScheduleQuerySet,
    SlotQuerySet,
    StepQuerySet,
    VersionQuerySet,
)
from pikku_storage.workflows.schedules.declarations import NAME_LENGTH as SCHEDULE_NAME_LENGTH
from pikku_storage.workflows.schedules.fires import LONGEST as CRON_LENGTH
from pikku_storage.workflows.schedules.policies import CatchUp, Overlap, ScheduleSource
from pikku_storage.workflows.statuses import RunStatus, StepStatus, Verdict, VersionStatus


class WorkflowRun(models.Model):
    """One run of a workflow."""

    id = text_id(primary_key=True, default=new_id, db_column="workflow_run_id", editable=False)
    workflow = ExactCharField(_("workflow"), max_length=NAME_LENGTH)
    status = ExactCharField(_("status"), max_length=16, choices=RunStatus, default=RunStatus.RUNNING)
    input = PayloadField(_("input"), null=True)
    output = PayloadField(_("output"), null=True)
    error = PayloadField(_("error"), null=True)
    state = PayloadField(_("state"), null=True, default=dict)
    inline = models.BooleanField(_("inline"), null=True, default=False)
    graph_hash = ExactCharField(_("version"), max_length=64, null=True)
    deterministic = models.BooleanField(_("deterministic"), null=True, default=False)
    planned_steps = PayloadField(_("planned steps"), null=True)
    wire = PayloadField(_("trigger"), null=True)
    created_at = MillisecondDateTimeField(_("started"))
    updated_at = MillisecondDateTimeField(_("updated"))

    # Ours: who owns the run (also `wire.pikkuUserId`), and what makes starting it twice the same run.
    owner_id = text_id(verbose_name=_("owner"), null=True)
    idempotency_key = text_id(verbose_name=_("idempotency key"), null=True)
    # Ours: what started it (also `wire.type`), to find runs by.
    wire_type = ExactCharField(_("trigger"), max_length=WIRE_TYPE_LENGTH, null=True)
    # Ours: the run this one was made from (retried, run again, forked); and a cancellation that is still to undo what
    # was done, with the error it will end with.
    origin_run_id = text_id(verbose_name=_("made from"), null=True)
    cancel_requested_at = MillisecondDateTimeField(_("cancellation asked for"), null=True)
    cancel_request = PayloadField(_("cancellation"), null=True)
    # Ours: the run whose step this run does (also `wire.parentRunId`), for the way down.
    parent_run_id = text_id(verbose_name=_("parent run"), null=True)
    # Ours, engine.md §1-2: when somebody must look again, who is inside, until when, and what changed last.
    due_at = MillisecondDateTimeField(_("due"), null=True)
    redrives = models.IntegerField(_("times driven again"), null=True)
    pass_token = ExactCharField(max_length=32, null=True)
    pass_until = MillisecondDateTimeField(null=True)
    wake_token = ExactCharField(max_length=32, null=True)
    last_worker = ExactCharField(_("last worker"), max_length=NAME_LENGTH, null=True)
    # Ours: since when the suspended run asks for an approval.
    gate_opened_at = MillisecondDateTimeField(_("asks since"), null=True)
    # Ours, flow control: what it was started with; when it was let in first; what it waits for; and its place in the
    # line before a limit.
    priority = models.IntegerField(_("priority"), null=True)
    deadline_at = MillisecondDateTimeField(_("deadline"), null=True)
    concurrency_key = text_id(verbose_name=_("concurrency key"), null=True)
    rate_limit_key = text_id(verbose_name=_("rate limit key"), null=True)
    admitted_at = MillisecondDateTimeField(_("admitted"), null=True)
    waits_for = PayloadField(_("waits for"), null=True)
    line = ExactCharField(max_length=36, null=True)
    line_place = ExactCharField(max_length=300, null=True)
    lined_up_at = MillisecondDateTimeField(_("lined up"), null=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        db_table = "workflow_runs"
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        ordering = ("-created_at", "-id")
        indexes = (
            models.Index(fields=("status", "created_at", "id"), name="idx_workflow_runs_status_cr"),
            models.Index(fields=("workflow", "created_at", "id"), name="idx_workflow_runs_workflow_cr"),
            models.Index(fields=("owner_id", "created_at", "id"), name="idx_workflow_runs_owner_cr"),
            models.Index(fields=("wire_type", "created_at", "id"), name="idx_workflow_runs_wire_cr"),
            models.Index(fields=("created_at", "id"), name="idx_workflow_runs_created"),
            models.Index(fields=("idempotency_key",), name="idx_workflow_runs_key"),
            SparseIndex(
                fields=("parent_run_id", "created_at", "id"), present="parent_run_id", name="idx_workflow_runs_parent"
            ),
            SparseIndex(fields=("due_at",), present="due_at", name="idx_workflow_runs_due"),
            SparseIndex(fields=("origin_run_id",), present="origin_run_id", name="idx_workflow_runs_origin"),
            SparseIndex(fields=("gate_opened_at", "id"), present="gate_opened_at", name="idx_workflow_runs_gate"),
            SparseIndex(fields=("line", "line_place"), present="line", name="idx_workflow_runs_line"),
        )

    def __str__(self) -> str:
        return f"{self.workflow} · {self.id}"

    @staticmethod
    def id_of(workflow: str, idempotency_key: str) -> str:
        """The id of the run that was started with that key: its primary key is what makes the key unique, on every
        database."""
        return derived_id("idempotency", workflow, idempotency_key)


class WorkflowStep(models.Model):
    """The current state of one step of a run; `(run, step_name)` is its identity."""

    id = text_id(primary_key=True, default=new_id, db_column="workflow_step_id", editable=False)
    run = models.ForeignKey(
        WorkflowRun,
        models.CASCADE,
        db_column="workflow_run_id",
        related_name="steps",
        db_index=False,
        verbose_name=_("run"),
    )
    step_name = ExactCharField(_("step"), max_length=NAME_LENGTH)
    rpc_name = ExactCharField(_("function"), max_length=NAME_LENGTH, null=True)
    data = PayloadField(_("input"), null=True)
    status = ExactCharField(_("status"), max_length=16, choices=StepStatus, default=StepStatus.PENDING)
    result = PayloadField(_("output"), null=True)
    error = PayloadField(_("error"), null=True)
    child_run_id = text_id(verbose_name=_("child run"), null=True)
    branch_taken = ExactCharField(_("branch"), max_length=NAME_LENGTH, null=True)
    retries = models.IntegerField(_("retries"), null=True)
    retry_delay = ExactCharField(_("retry delay"), max_length=32, null=True)
    from_step_name = ExactCharField(_("came from"), max_length=NAME_LENGTH, null=True)
    current_attempt = models.IntegerField(_("attempt"), null=True)
    created_at = MillisecondDateTimeField(_("created"))
    updated_at = MillisecondDateTimeField(_("updated"))

    # Ours, engine.md §1 and §3: the claim, its budget, the fan-out it belongs to, and when somebody must look again.
    max_attempts = models.IntegerField(_("most attempts"), null=True)
    claim_token = ExactCharField(max_length=32, null=True)
    claimed_by = ExactCharField(_("worker"), max_length=NAME_LENGTH, null=True)
    group = ExactCharField(_("fan-out"), max_length=NAME_LENGTH, null=True, db_column="step_group")
    queue = ExactCharField(_("queue"), max_length=NAME_LENGTH, null=True)
    timeout_ms = models.IntegerField(_("time limit in milliseconds"), null=True)
    due_at = MillisecondDateTimeField(_("due"), null=True)
    redrives = models.IntegerField(_("times dispatched again"), null=True)

    objects = StepQuerySet.as_manager()

    class Meta:
        db_table = "workflow_step"
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        ordering = ("created_at", "id")
        constraints = (models.UniqueConstraint(fields=("run", "step_name"), name="workflow_step_run_name_unique"),)
        indexes = (
            # Whoever asks for a run's steps by their status asks for those that are not settled.
            SparseIndex(fields=("run", "status"), present="due_at", name="idx_workflow_step_run_status"),
            SparseIndex(fields=("due_at",), present="due_at", name="idx_workflow_step_due"),
        )

    def __str__(self) -> str:
        return str(self.step_name)


class WorkflowStepHistory(models.Model):
    """One attempt of a step. Its id is derived from step and attempt, so writing it twice is the same row."""

    id = text_id(primary_key=True, db_column="history_id", editable=False)
    step = models.ForeignKey(
        WorkflowStep,
        models.CASCADE,
        db_column="workflow_step_id",
        related_name="history",
        db_index=False,
        verbose_name=_("step"),
    )
    status = ExactCharField(_("status"), max_length=16, choices=StepStatus)
    result = PayloadField(_("output"), null=True)
    error = PayloadField(_("error"), null=True)
    attempt = models.IntegerField(_("attempt"), null=True)
    created_at = MillisecondDateTimeField(_("created"))
    running_at = MillisecondDateTimeField(_("started"), null=True)
    scheduled_at = MillisecondDateTimeField(_("queued"), null=True)
    succeeded_at = MillisecondDateTimeField(_("succeeded"), null=True)
    failed_at = MillisecondDateTimeField(_("failed"), null=True)
    # Ours: the worker that had this attempt.
    worker = ExactCharField(_("worker"), max_length=NAME_LENGTH, null=True)

    class Meta:
        db_table = "workflow_step_history"
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        ordering = ("created_at", "attempt")
        indexes = (models.Index(fields=("step", "created_at"), name="idx_workflow_step_history_step"),)

    def __str__(self) -> str:
        return f"{self.step_id} · {self.attempt}"

    @staticmethod
    def id_of(step_id: str, attempt: int) -> str:
        """The id of the row of that attempt."""
        return derived_id(step_id, str(attempt))


class WorkflowAnswer(models.Model):
    """One entry of an approval's trail, the `ordinal`-th from 0: somebody's answer, or the approval's expiry.

    Its id is derived from run, step and ordinal, so of those who want to be the next entry one is. An entry whose
    `verdict` is null is still to be judged.
    """

    id = text_id(primary_key=True, editable=False)
    run = models.ForeignKey(
        WorkflowRun,
        models.CASCADE,
        db_column="workflow_run_id",
        related_name="answers",
        db_index=False,
        verbose_name=_("run"),
    )
    step_name = ExactCharField(_("step"), max_length=NAME_LENGTH)
    ordinal = models.IntegerField(_("number"))
    decision = PayloadField(_("decision"), null=True)
    decided_by = PayloadField(_("decided by"), null=True)
    verdict = ExactCharField(_("verdict"), max_length=16, choices=Verdict, null=True)
    data = PayloadField(_("validated"), null=True)
    refusal = PayloadField(_("refusal"), null=True)
    created_at = MillisecondDateTimeField(_("answered"))
    judged_at = MillisecondDateTimeField(_("judged"), null=True)
    due_at = MillisecondDateTimeField(_("due"), null=True)
    redrives = models.IntegerField(_("times driven again"), null=True)

    objects = AnswerQuerySet.as_manager()

    class Meta:
        db_table = "workflow_answers"
        verbose_name = _("answer")
        verbose_name_plural = _("answers")
        ordering = ("run", "step_name", "ordinal")
        constraints = (
            models.UniqueConstraint(fields=("run", "step_name", "ordinal"), name="workflow_answers_ordinal_unique"),
        )
        indexes = (SparseIndex(fields=("due_at",), present="due_at", name="idx_workflow_answers_due"),)

    def __str__(self) -> str:
        return f"{self.step_name} · {self.ordinal}"

    @staticmethod
    def id_of(run_id: str, step_name: str, ordinal: int) -> str:
        """The id of the row of that entry."""
        return derived_id("answer", run_id, step_name, str(ordinal))


class WorkflowVersion(models.Model):
    """An immutable definition of a workflow, by hash."""

    id = text_id(primary_key=True, editable=False)
    workflow_name = ExactCharField(_("workflow"), max_length=NAME_LENGTH)
    graph_hash = ExactCharField(_("version"), max_length=64)
    graph = PayloadField(_("definition"))
    source = ExactCharField(_("source"), max_length=16)
    status = ExactCharField(_("status"), max_length=16, choices=VersionStatus, default=VersionStatus.ACTIVE)
    created_at = MillisecondDateTimeField(_("created"))

    objects = VersionQuerySet.as_manager()

    class Meta:
        db_table = "workflow_versions"
        verbose_name = _("version")
        verbose_name_plural = _("versions")
        ordering = ("workflow_name", "-created_at")
        constraints = (
            models.UniqueConstraint(fields=("workflow_name", "graph_hash"), name="workflow_versions_name_hash_unique"),
        )
        indexes = (models.Index(fields=("source", "status"), name="idx_workflow_versions_source"),)

    def __str__(self) -> str:
        return f"{self.workflow_name} · {self.graph_hash[:12]}"

    @staticmethod
    def id_of(workflow_name: str, graph_hash: str) -> str:
        """The id of the row of that version."""
        return derived_id(workflow_name, graph_hash)


class WorkflowControl(models.Model):
    """What operators have set for a workflow: paused, and limits in place of the code's. No row: nothing."""

    workflow = ExactCharField(_("workflow"), primary_key=True, max_length=NAME_LENGTH)
    paused_at = MillisecondDateTimeField(_("paused"), null=True)
    paused_by = text_id(verbose_name=_("paused by"), null=True)
    paused_reason = models.TextField(_("reason"), null=True)  # noqa: DJ001 - absent differs from empty
    concurrency = models.IntegerField(_("concurrency"), null=True)
    concurrency_per_key = models.IntegerField(_("concurrency per key"), null=True)
    rate_limit = ExactCharField(_("rate limit"), max_length=64, null=True)
    updated_at = MillisecondDateTimeField(_("updated"))
    updated_by = text_id(verbose_name=_("updated by"), null=True)

    objects = ControlQuerySet.as_manager()

    class Meta:
        db_table = "workflow_controls"
        verbose_name = _("workflow control")
        verbose_name_plural = _("workflow controls")
        ordering = ("workflow",)

    def __str__(self) -> str:
        return str(self.workflow)


class WorkflowSlot(models.Model):
    """One of the places that a concurrency limit has, while a run holds it. Its id is derived from limit and number, so
    each place is held once."""

    id = text_id(primary_key=True, editable=False)
    scope = ExactCharField(max_length=36)
    workflow = ExactCharField(_("workflow"), max_length=NAME_LENGTH)
    key = text_id(verbose_name=_("concurrency key"), null=True)
    number = models.IntegerField(_("number"))
    run = models.ForeignKey(WorkflowRun, models.CASCADE, db_constraint=False, related_name="slots")
    taken_at = MillisecondDateTimeField(_("taken"))

    objects = SlotQuerySet.as_manager()

    class Meta:
        db_table = "workflow_slots"
        verbose_name = _("slot")
        verbose_name_plural = _("slots")
        ordering = ("workflow", "key", "number")
        indexes = (models.Index(fields=("scope", "number"), name="idx_workflow_slots_scope"),)

    def __str__(self) -> str:
        return f"{self.workflow} · {self.key or ''} · {self.number}"


class WorkflowRate(models.Model):
    """When the last runs under a rate limit began. Its id is derived from the workflow and the rate limit's key."""

    id = text_id(primary_key=True, editable=False)
    workflow = ExactCharField(_("workflow"), max_length=NAME_LENGTH)
    key = text_id(verbose_name=_("rate limit key"), null=True)
    starts = PayloadField(_("starts"))
    version = ExactCharField(max_length=32)
    over_at = MillisecondDateTimeField(_("over"))

    objects = RateQuerySet.as_manager()

    class Meta:
        db_table = "workflow_rates"
        verbose_name = _("rate")
        verbose_name_plural = _("rates")
        ordering = ("workflow", "key")
        indexes = (models.Index(fields=("over_at",), name="idx_workflow_rates_over"),)

    def __str__(self) -> str:
        return f"{self.workflow} · {self.key or ''}"


class WorkflowSchedule(models.Model):
    """When to start a workflow, again and again. Its id is derived from its name, which is so unique."""

    id = text_id(primary_key=True, editable=False)
    name = ExactCharField(_("name"), max_length=SCHEDULE_NAME_LENGTH)
    workflow = ExactCharField(_("workflow"), max_length=NAME_LENGTH)
    input = PayloadField(_("input"))
    owner_id = text_id(verbose_name=_("owner"), null=True)
    cron = ExactCharField(_("cron expression"), max_length=CRON_LENGTH)
    timezone = ExactCharField(_("time zone"), max_length=64)
    catch_up = ExactCharField(_("for missed fires"), max_length=16, choices=CatchUp, default=CatchUp.LATEST)
    overlap = ExactCharField(_("while the previous run is live"), max_length=16, choices=Overlap, default=Overlap.ALLOW)
    source = ExactCharField(_("made by"), max_length=16, choices=ScheduleSource, default=ScheduleSource.OPERATOR)
    enabled = models.BooleanField(_("enabled"), default=True)
    undeclared = models.BooleanField(_("gone from the code"), default=False)
    next_fire_at = MillisecondDateTimeField(_("next fire"), null=True)
    last_fire_at = MillisecondDateTimeField(_("last fire"), null=True)
    last_run_id = text_id(verbose_name=_("last run"), null=True)
    created_at = MillisecondDateTimeField(_("created"))
    updated_at = MillisecondDateTimeField(_("updated"))

    objects = ScheduleQuerySet.as_manager()

    class Meta:
        db_table = "workflow_schedules"
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        ordering = ("name", "id")
        indexes = (
            models.Index(fields=("name", "id"), name="idx_workflow_schedules_name"),
            SparseIndex(fields=("next_fire_at",), present="next_fire_at", name="idx_workflow_schedules_due"),
        )

    def __str__(self) -> str:
        return str(self.name)

    @staticmethod
    def id_of(name: str) -> str:
        """The id of the schedule of that name."""
        return derived_id("schedule", name)
