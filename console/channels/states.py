"""Whether a channel is there."""

from __future__ import annotations

from datetime import datetime

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

from pikku_storage.channels.querysets import CLOSING


class ChannelState(TextChoices):
    """What is known of a channel's connection."""

    OPEN = "open", _("open")
    LAPSED = "lapsed", _("lapsed")
    CLOSING = "closing", _("closing")
    UNLEASED = "unleased", _("no lease")


def state_of(holder: str | None, lease_until: datetime | None, now: datetime) -> ChannelState:
    """A channel whose lease ran out is as good as gone; one that was never leased stays until it is removed."""
    if holder == CLOSING:
        return ChannelState.CLOSING
    if lease_until is None:
        return ChannelState.UNLEASED
    return ChannelState.OPEN if lease_until > now else ChannelState.LAPSED
