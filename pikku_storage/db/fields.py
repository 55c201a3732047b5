"""Model fields that behave the same on every database."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    _DateTimeField = models.DateTimeField[Any, Any]
else:
    # Generic for the type checker only.
    _DateTimeField = models.DateTimeField


class MillisecondDateTimeField(_DateTimeField):
    """An aware time, cut to the milliseconds that MongoDB keeps, so that comparing for equality works everywhere."""

    def get_prep_value(self, value: Any) -> Any:
        """Cut what is finer than a millisecond."""
        value = super().get_prep_value(value)
        if isinstance(value, datetime):
            value = value.replace(microsecond=value.microsecond // 1000 * 1000)
        return value


class PayloadField(models.JSONField):
    """JSON that nobody filters by. Values come from `pikku_storage.json.to_json`; SQL NULL is `None`."""
