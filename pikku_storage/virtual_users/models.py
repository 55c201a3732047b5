"""The tables of virtual users (contract tables.md §3, 30-32).

Names of tables and columns are the contract's. Nothing here changes a row: see `querysets.py`.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.fields import (
    ExactCharField,
    ExactTextField,
    JsonTextField,
    MillisecondDateTimeField,
    PayloadField,
    text_id,
)
from pikku_storage.ids import derived_id, new_id
from pikku_storage.virtual_users.querysets import (
    VirtualUserRunQuerySet,
    VirtualUserScheduleQuerySet,
    VirtualUserStepQuerySet,
)
from pikku_storage.virtual_users.statuses import Disposition, RunStatus

NAME_LENGTH = 255
WORD_LENGTH = 50


class VirtualUserRun(models.Model):
    """One run of a persona."""

    run_id = text_id(primary_key=True, default=new_id, editable=False)
    persona = ExactCharField(_("persona"), max_length=NAME_LENGTH)
    disposition = ExactCharField(_("disposition"), max_length=WORD_LENGTH, choices=Disposition)
    seed = models.BigIntegerField(_("seed"))
    status = ExactCharField(_("status"), max_length=WORD_LENGTH, choices=RunStatus, default=RunStatus.RUNNING)
    goals = PayloadField(_("goals"))
    memory = PayloadField(_("memory"))
    findings = PayloadField(_("findings"))
    intents = PayloadField(_("intents"))
    tally = PayloadField(_("tally"), null=True)
    stopped_by = ExactCharField(_("stopped by"), max_length=NAME_LENGTH, null=True)
    error = ExactTextField(_("error"), null=True)
    started_by = ExactCharField(_("started by"), max_length=NAME_LENGTH, null=True)
    created_at = MillisecondDateTimeField(_("started"))
    finished_at = MillisecondDateTimeField(_("finished"), null=True)

    objects = VirtualUserRunQuerySet.as_manager()

    class Meta:
        db_table = "virtual_user_run"
        verbose_name = _("run of a virtual user")
        verbose_name_plural = _("runs of virtual users")
        ordering = ("-created_at", "-run_id")
        indexes = (
            models.Index(fields=("created_at", "run_id"), name="idx_virtual_user_run_created"),
            models.Index(fields=("persona", "created_at", "run_id"), name="idx_virtual_user_run_persona"),
        )

    def __str__(self) -> str:
        return f"{self.persona} · {self.run_id}"


class VirtualUserRunStep(models.Model):
    """One step of a run's transcript.

    Ours: the primary key, derived from run and index. There is no foreign key, as in the contract.
    """

    key = text_id(primary_key=True, editable=False, db_column="step_key")
    run_id = text_id(verbose_name=_("run"))
    step_index = models.IntegerField(_("index"))
    intent_id = ExactCharField(_("intent"), max_length=NAME_LENGTH, null=True)
    action = PayloadField(_("action"), null=True)
    status = models.IntegerField(_("status"), null=True)
    ok = models.BooleanField(_("succeeded"), null=True)
    response = JsonTextField(_("response"), null=True)
    finding_kinds = PayloadField(_("kinds of findings"), null=True)
    tokens_in = models.IntegerField(_("input tokens"), default=0)
    tokens_out = models.IntegerField(_("output tokens"), default=0)

    objects = VirtualUserStepQuerySet.as_manager()

    class Meta:
        db_table = "virtual_user_run_step"
        verbose_name = _("step of a virtual user")
        verbose_name_plural = _("steps of virtual users")
        ordering = ("run_id", "step_index")
        indexes = (models.Index(fields=("run_id", "step_index"), name="idx_virtual_user_run_step"),)

    def __str__(self) -> str:
        return f"{self.run_id} · {self.step_index}"

    @staticmethod
    def key_of(run_id: str, step_index: int) -> str:
        """The key of the row of that step."""
        return derived_id("virtual user step", run_id, str(step_index))


class VirtualUserSchedule(models.Model):
    """When a persona runs next, and how often it does."""

    persona = ExactCharField(_("persona"), max_length=NAME_LENGTH, primary_key=True)
    enabled = models.BooleanField(_("enabled"), default=False)
    disposition = ExactCharField(_("disposition"), max_length=WORD_LENGTH, choices=Disposition)
    goals = PayloadField(_("goals"))
    budget = PayloadField(_("budget"), null=True)
    min_interval_ms = models.BigIntegerField(_("shortest interval in milliseconds"))
    max_interval_ms = models.BigIntegerField(_("longest interval in milliseconds"))
    next_run_at = MillisecondDateTimeField(_("next run"))
    last_run_id = text_id(verbose_name=_("last run"), null=True)
    last_run_at = MillisecondDateTimeField(_("time of the last run"), null=True)

    objects = VirtualUserScheduleQuerySet.as_manager()

    class Meta:
        db_table = "virtual_user_schedule"
        verbose_name = _("schedule of a virtual user")
        verbose_name_plural = _("schedules of virtual users")
        ordering = ("persona",)
        indexes = (models.Index(fields=("enabled", "next_run_at"), name="idx_virtual_user_schedule_due"),)

    def __str__(self) -> str:
        return str(self.persona)
