"""The audit trail's table (contract tables.md §3.29). Nothing here changes a row: see `querysets.py`."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from pikku_storage.audit.querysets import TrailQuerySet
from pikku_storage.db.fields import ExactCharField, ExactTextField, MillisecondDateTimeField, text_id

WORD_LENGTH = 50
"""Of sources, outcomes and the like."""


class AuditEntry(models.Model):
    """An event. `tables`, `changed_cols` and `data` are JSON as text, which readers take as it is if it is none."""

    audit_id = text_id(primary_key=True, editable=False)
    occurred_at = MillisecondDateTimeField(_("when"))
    type = text_id(verbose_name=_("what"))
    source = ExactCharField(_("source"), max_length=WORD_LENGTH, default="auto")
    outcome = ExactCharField(_("outcome"), max_length=WORD_LENGTH, null=True)
    function_id = text_id(verbose_name=_("function"), null=True)
    wire_type = ExactCharField(_("where"), max_length=WORD_LENGTH, null=True)
    trace_id = text_id(verbose_name=_("trace"), null=True)
    transaction_id = text_id(verbose_name=_("transaction"), null=True)
    query_id = text_id(verbose_name=_("query"), null=True)
    user_id = text_id(verbose_name=_("user"), null=True)
    org_id = text_id(verbose_name=_("organisation"), null=True)
    pikku_user_id = text_id(verbose_name=_("caller"), null=True)
    tables = ExactTextField(_("tables"), null=True)
    changed_cols = ExactTextField(_("changed columns"), null=True)
    event = text_id(verbose_name=_("event"), null=True)
    # Always null, as in the contract.
    old = ExactTextField(null=True)
    data = ExactTextField(_("data"), null=True)

    objects = TrailQuerySet.as_manager()

    class Meta:
        db_table = "audit"
        verbose_name = _("audit event")
        verbose_name_plural = _("audit trail")
        ordering = ("-occurred_at", "-audit_id")
        indexes = (
            models.Index(fields=("occurred_at", "audit_id"), name="idx_audit_occurred_at"),
            models.Index(fields=("user_id", "occurred_at", "audit_id"), name="idx_audit_user_id"),
            models.Index(fields=("type", "occurred_at", "audit_id"), name="idx_audit_type"),
            # Ours.
            models.Index(fields=("org_id", "occurred_at", "audit_id"), name="idx_audit_org_id"),
            models.Index(fields=("outcome", "occurred_at", "audit_id"), name="idx_audit_outcome"),
        )

    def __str__(self) -> str:
        return f"{self.type} · {self.audit_id}"
