"""How a time reads in a cell, a fact or a sentence: how long ago, with the time itself on hover."""

from __future__ import annotations

from datetime import datetime

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from console.formatting import absolute, ago


def moment(at: datetime, text: str) -> SafeString:
    """A text that stands for a time, which is shown on hover."""
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), absolute(at), text)


def since(at: datetime | None, now: datetime | None = None) -> SafeString:
    """How long ago; nothing for `None`."""
    return SafeString() if at is None else moment(at, ago(at, now or timezone.now()))
