"""What the pages of webhooks read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models.functions import Substr

from pikku_storage.webhooks.models import WebhookDeliveryAttempt

MOST_ATTEMPTS = 100
_ERROR_SHOWN = 200


@dataclass(frozen=True, slots=True)
class LastAnswer:
    """How the last attempt ended: with a status, or with an error."""

    status_code: int | None
    error: str


def read_last_answers(using: str, delivery_ids: Sequence[str]) -> dict[str, LastAnswer]:
    """By delivery, how its last attempt ended. One query, none without deliveries."""
    if not delivery_ids:
        return {}
    tries = WebhookDeliveryAttempt._default_manager.using(using).filter(delivery_id__in=delivery_ids)
    rows = tries.annotate(beginning=Substr("error", 1, _ERROR_SHOWN)).order_by("delivery_id", "attempt_number")
    found = rows.values_list("delivery_id", "status_code", "beginning")
    return {delivery_id: LastAnswer(status, error or "") for delivery_id, status, error in found}


def read_attempts(using: str, delivery_id: str) -> list[Any]:
    """The last `MOST_ATTEMPTS` attempts of a delivery, the newest first."""
    tries = WebhookDeliveryAttempt._default_manager.using(using).filter(delivery_id=delivery_id)
    return list(tries.order_by("-attempt_number")[:MOST_ATTEMPTS])
