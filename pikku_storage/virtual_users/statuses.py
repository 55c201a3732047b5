"""What runs and personas may be."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class RunStatus(models.TextChoices):
    """The status of a run. Only one that is running ever changes."""

    RUNNING = "running", _("running")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")


class Disposition(models.TextChoices):
    """How a persona behaves."""

    REALISTIC = "realistic", _("realistic")
    CARELESS = "careless", _("careless")
    NEWCOMER = "newcomer", _("newcomer")
    STALE = "stale", _("stale")
    AUDITOR = "auditor", _("auditor")
    ADVERSARIAL = "adversarial", _("adversarial")
    ACCOUNTABLE = "accountable", _("accountable")
