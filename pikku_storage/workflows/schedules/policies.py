"""What a schedule may say of itself: what it does about fires that nobody started in time, and about runs that take
longer than its interval; who made it; whether it fires."""

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


class ScheduleState(TextChoices):
    """Whether a schedule fires."""

    ACTIVE = "active", _("active")
    PAUSED = "paused", _("paused")
    UNDECLARED = "undeclared", _("gone from the code")

    @classmethod
    def of(cls, *, enabled: bool, undeclared: bool) -> ScheduleState:
        """The state of a schedule with these columns."""
        if undeclared:
            return cls.UNDECLARED
        return cls.ACTIVE if enabled else cls.PAUSED
