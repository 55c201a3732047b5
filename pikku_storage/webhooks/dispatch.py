"""Telling workers of webhooks. A message is a hint: the relay finds what no message brought up."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kombu.exceptions import OperationalError

from pikku_storage.conf import settings

logger = logging.getLogger(__name__)


def announce(delivery_ids: Sequence[str], *, using: str, countdown: float | None = None) -> int:
    """Send a message for each; where the project sends none (`DISPATCHER` is `None`), attempt those that are due, here
    and now. Answers how many were sent or attempted. A broker that is down is left alone."""
    if settings.DISPATCHER is None:
        return 0 if countdown else _attempt(delivery_ids, using)
    from pikku_storage.webhooks.tasks import deliver

    sent = 0
    try:
        for delivery_id in delivery_ids:
            deliver.apply_async(
                (delivery_id,), {"using": using}, queue=settings.WEBHOOK_QUEUE, countdown=countdown, retry=False
            )
            sent += 1
    except (OperationalError, OSError) as error:
        logger.warning(
            "The broker took no message; %d webhooks wait for the relay: %s", len(delivery_ids) - sent, error
        )
    return sent


def _attempt(delivery_ids: Sequence[str], using: str) -> int:
    from pikku_storage.webhooks.service import WebhookService

    service = WebhookService(using)
    return sum(service.deliver(delivery_id) is not None for delivery_id in delivery_ids)
