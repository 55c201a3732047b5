"""The two tables of webhooks (contract tables.md §3, 12-13). Nothing here changes a row: see `querysets.py`.

Columns the contract does not have are marked "ours".
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.fields import (
    ExactCharField,
    ExactTextField,
    MillisecondDateTimeField,
    PayloadField,
    text_id,
)
from pikku_storage.db.indexes import SparseIndex
from pikku_storage.ids import new_id
from pikku_storage.webhooks.querysets import DeliveryQuerySet
from pikku_storage.webhooks.statuses import DeliveryStatus

WORD_LENGTH = 50
TOKEN_LENGTH = 36


class WebhookDelivery(models.Model):
    """One webhook that is sent: what, where to, and how far that is."""

    delivery_id = text_id(primary_key=True, default=new_id, editable=False)
    organization_id = text_id(verbose_name=_("organisation"), null=True)
    url = ExactTextField(_("URL"))
    event = text_id(verbose_name=_("event"), null=True)
    status = ExactCharField(_("status"), max_length=WORD_LENGTH, choices=DeliveryStatus, default=DeliveryStatus.PENDING)
    attempts = models.IntegerField(_("attempts"), default=0)
    created_at = MillisecondDateTimeField(_("created"))
    updated_at = MillisecondDateTimeField(_("updated"))
    delivered_at = MillisecondDateTimeField(_("delivered"), null=True)
    # Ours, what is sent: the body to the byte, the headers beside the usual ones, and the name of the secret that each
    # attempt is signed with.
    body = ExactTextField(_("body"))
    headers = PayloadField(_("headers"), null=True)
    secret_name = text_id(verbose_name=_("secret"), null=True)
    # Ours, when: how often it is tried again, at first and after a replay, and so how many attempts there may be in
    # all; how long to wait between them; from when the next one may begin; and when the relay must look, because the
    # claim has run out or the message is lost.
    retries = models.IntegerField(_("retries"))
    max_attempts = models.IntegerField(_("most attempts"))
    retry_delay = ExactCharField(_("delay"), max_length=WORD_LENGTH, null=True)
    next_attempt_at = MillisecondDateTimeField(_("next attempt"), null=True)
    due_at = MillisecondDateTimeField(null=True)
    redrives = models.IntegerField(null=True)
    # Ours, who: the claim of the attempt that is under way.
    claim_token = ExactCharField(max_length=TOKEN_LENGTH, null=True)
    claimed_by = text_id(verbose_name=_("worker"), null=True)

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        db_table = "webhook_delivery"
        verbose_name = _("webhook")
        verbose_name_plural = _("webhooks")
        ordering = ("-created_at", "-delivery_id")
        indexes = (
            models.Index(fields=("organization_id", "created_at", "delivery_id"), name="idx_webhook_delivery_org"),
            # Ours.
            models.Index(fields=("created_at", "delivery_id"), name="idx_webhook_delivery_created"),
            models.Index(fields=("status", "updated_at", "delivery_id"), name="idx_webhook_delivery_status"),
            SparseIndex(fields=("due_at", "delivery_id"), present="due_at", name="idx_webhook_delivery_due"),
        )

    def __str__(self) -> str:
        return f"{self.event or 'webhook'} · {self.delivery_id}"


class WebhookDeliveryAttempt(models.Model):
    """One try. Its id is derived from delivery and number, so that it is there once."""

    attempt_id = text_id(primary_key=True, editable=False)
    delivery = models.ForeignKey(
        WebhookDelivery, models.CASCADE, related_name="tries", db_index=False, verbose_name=_("webhook")
    )
    attempt_number = models.IntegerField(_("number"))
    status_code = models.IntegerField(_("status code"), null=True)
    response_body = ExactTextField(_("response"), null=True)
    error = ExactTextField(_("error"), null=True)
    created_at = MillisecondDateTimeField(_("ended"))
    # Ours.
    duration_ms = models.IntegerField(_("milliseconds"), null=True)

    class Meta:
        db_table = "webhook_delivery_attempt"
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        ordering = ("attempt_number",)
        indexes = (models.Index(fields=("delivery", "attempt_number"), name="idx_webhook_delivery_attempt"),)

    def __str__(self) -> str:
        return f"{self.delivery_id} · {self.attempt_number}"
