"""What a schedule does about fires that nobody started in time, and about runs that take longer than its interval."""

from __future__ import annotations

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class CatchUp(TextChoices):
    """What is started for the fires that were missed while no relay ran."""

    SKIP = "skip", _("none of those missed")
    LATEST = "latest", _("the latest one")
    ALL = "all", _("each of them")


class Overlap(TextChoices):
    """Whether a fire starts a run while that of an earlier fire is live."""

    ALLOW = "allow", _("start another run")
    SKIP = "skip", _("start none")


class ScheduleSource(TextChoices):
    """Who made a schedule."""

    CODE = "code", _("code")
    OPERATOR = "operator", _("operator")
