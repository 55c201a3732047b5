"""Whether a deployment is up."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from pikku_storage.conf import settings


class Liveness(TextChoices):
    """What a heartbeat's age says."""

    LIVE = "live", _("live")
    LATE = "late", _("late")
    GONE = "gone", _("gone")


def liveness_of(last_heartbeat: datetime, now: datetime) -> Liveness:
    """Late is who has missed a beat (`DEPLOYMENT_HEARTBEAT`); gone is whose time to live (`DEPLOYMENT_TTL`) is over, so
    that nobody calls it any more."""
    age = now - last_heartbeat
    if age >= timedelta(milliseconds=settings.DEPLOYMENT_TTL):
        return Liveness.GONE
    return Liveness.LIVE if age <= timedelta(milliseconds=settings.DEPLOYMENT_HEARTBEAT) * 1.5 else Liveness.LATE
