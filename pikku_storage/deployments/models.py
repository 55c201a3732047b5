"""The table of deployments (contract tables.md §3, 10 and 11).

The names of the functions are a list in the row of their deployment, on every database, as they are in the contract's
documents on MongoDB. So a deployment changes as one, also where there are no transactions, and what dies in the middle
leaves nothing half registered. The contract's second table, `pikku_deployment_functions`, has no counterpart: only
deployments that are up are ever asked for a function, which is a short list.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from pikku_storage.db.fields import ExactCharField, ExactTextField, MillisecondDateTimeField, PayloadField
from pikku_storage.deployments.querysets import DeploymentQuerySet

ID_LENGTH = 255


class Deployment(models.Model):
    """A process that says, by a heartbeat, that it is up, where it is reached, and what it serves."""

    deployment_id = ExactCharField(_("deployment"), max_length=ID_LENGTH, primary_key=True)
    endpoint = ExactTextField(_("endpoint"))
    # Null only in documents of other programs.
    functions = PayloadField(_("functions"), null=True)
    last_heartbeat = MillisecondDateTimeField(_("last heartbeat"))
    created_at = MillisecondDateTimeField(_("created"))

    objects = DeploymentQuerySet.as_manager()

    class Meta:
        db_table = "pikku_deployments"
        verbose_name = _("deployment")
        verbose_name_plural = _("deployments")
        ordering = ("-last_heartbeat", "deployment_id")
        indexes = (models.Index(fields=("last_heartbeat",), name="idx_pikku_deployments_beat"),)

    def __str__(self) -> str:
        return str(self.deployment_id)
