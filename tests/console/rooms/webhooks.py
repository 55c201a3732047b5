"""Deliveries of webhooks."""

from __future__ import annotations

from django.contrib.auth.models import User

from console.gate import WEBHOOKS
from pikku_storage.webhooks.models import WebhookDelivery
from tests.console.rooms import Room, Rows
from tests.console.stories import now

_DELIVERY = "pikku_webhooks_webhookdelivery"


def _make(user: User) -> dict[str, Rows]:
    at = now()
    delivery = WebhookDelivery.objects.create(
        url="https://hooks.test/", body="{}", retries=3, max_attempts=4, created_at=at, updated_at=at, status="failed"
    )
    return {"webhookdelivery": Rows(delivery.pk)}


ROOM = Room(
    area=WEBHOOKS,
    make=_make,
    needs={f"{_DELIVERY}_operation": "manage"},
    params={f"{_DELIVERY}_operation": {"operation": "replay"}},
)
