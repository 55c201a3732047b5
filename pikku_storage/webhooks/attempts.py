"""One attempt of a delivery: claimed, made, and recorded.

Each step is one guarded write. A worker that dies after its claim leaves it behind; when the claim's time is over,
whoever looks at the delivery next records that attempt as lost, and the delivery goes on. What the receiver has seen of
it nobody knows, so it may see the same delivery twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pikku_storage.conf import settings
from pikku_storage.db import engine
from pikku_storage.exceptions import SecretError, WebhookBlockedError, WebhookTransportError
from pikku_storage.ids import derived_id, new_token
from pikku_storage.retry import RetryPolicy
from pikku_storage.webhooks.inputs import merged
from pikku_storage.webhooks.models import WebhookDelivery
from pikku_storage.webhooks.signing import sign_webhook
from pikku_storage.webhooks.statuses import DeliveryStatus

MARGIN = timedelta(seconds=60)
"""What a claim holds longer than an attempt may take: for looking up the name, and for writing down the outcome."""
LONGEST_ERROR = 1_000
LOST = "WORKER_LOST: the worker was gone before it could say what became of this attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an attempt."""

    status_code: int | None = None
    response_body: str | None = None
    error: str | None = None
    is_final: bool = False
    duration_ms: int | None = None

    @property
    def is_delivered(self) -> bool:
        """Whether the receiver has it."""
        return self.status_code is not None and self.status_code // 100 == 2


def attempt(using: str, delivery_id: str, worker: str) -> str | None:
    """Make the attempt that is due; answers with the status after it, or `None` if there was nothing to do."""
    row = _row(using, delivery_id)
    now = engine(using).now()
    if row is not None and row["claim_token"] is not None and row["due_at"] is not None and row["due_at"] <= now:
        lose(using, row)
        row, now = _row(using, delivery_id), engine(using).now()
    if row is None:
        return None
    token, until = new_token(), now + timedelta(milliseconds=settings.WEBHOOK_TIMEOUT) + MARGIN
    rows = WebhookDelivery.objects.using(using)
    if not rows.claim(delivery_id, attempts=row["attempts"], token=token, by=worker, at=now, until=until):
        return None
    outcome = _made(using, row)
    # A later attempt is left to the relay; without a broker each is.
    values = _next(row, outcome, engine(using).now(), calls_again=settings.DISPATCHER is not None)
    return str(values["status"]) if _recorded(using, row, token, outcome, values) else None


def lose(using: str, row: Mapping[str, Any]) -> bool:
    """Record the attempt of a claim whose time is over as lost; `False` if somebody else did, or it ended after all."""
    outcome = Outcome(error=LOST)
    values = _next(row, outcome, engine(using).now(), calls_again=False)
    return _recorded(using, row, row["claim_token"], outcome, values)


def _row(using: str, delivery_id: str) -> dict[str, Any] | None:
    pending: Any = WebhookDelivery.objects.using(using).filter(pk=delivery_id, status=DeliveryStatus.PENDING)
    row: dict[str, Any] | None = pending.values().first()
    return row


def _made(using: str, row: Mapping[str, Any]) -> Outcome:
    from pikku_storage.webhooks.transport import post

    began = time.monotonic()
    try:
        headers = headers_of(using, row)
        engine(using).release()
        answer = post(row["url"], row["body"].encode(), headers, timeout=settings.WEBHOOK_TIMEOUT / 1000)
    except WebhookBlockedError as error:
        # It would be asked for again and again, and be blocked each time.
        outcome = Outcome(error=f"{error.code}: {error}", is_final=True)
    except (WebhookTransportError, SecretError) as error:
        outcome = Outcome(error=str(error), duration_ms=_since(began))
    else:
        is_redirect = answer.status // 100 == 3
        outcome = Outcome(
            status_code=answer.status,
            response_body=answer.body or None,
            error="redirects are not followed" if is_redirect else None,
            duration_ms=_since(began),
        )
    return outcome


def headers_of(using: str, row: Mapping[str, Any]) -> dict[str, str]:
    """What is sent with the body. Raises `SecretError` if it cannot be signed."""
    usual = {"Content-Type": "application/json", "User-Agent": "pikku-storage"}
    own = {"X-Pikku-Delivery": row["delivery_id"]}
    if row["event"] is not None:
        own["X-Pikku-Event"] = row["event"]
    if row["secret_name"] is not None:
        from pikku_storage.secrets.service import SecretService

        secret = SecretService().get_secret(row["secret_name"])
        own[settings.WEBHOOK_SIGNATURE_HEADER] = sign_webhook(secret, row["body"])
    return merged(merged(usual, row["headers"] or {}), own)


def _next(row: Mapping[str, Any], outcome: Outcome, now: datetime, *, calls_again: bool) -> dict[str, Any]:
    """What becomes of the delivery. With `calls_again` a message will bring up an attempt that is soon."""
    number = row["attempts"] + 1
    values = {"attempts": number, "updated_at": now, "next_attempt_at": None, "due_at": None}
    if outcome.is_delivered:
        return {**values, "status": DeliveryStatus.DELIVERED.value, "delivered_at": now}
    if outcome.is_final or number >= row["max_attempts"]:
        return {**values, "status": DeliveryStatus.FAILED.value}
    # Counted from the last replay on.
    tries = number - (row["max_attempts"] - row["retries"] - 1)
    delay = RetryPolicy.of(None, row["retry_delay"]).delay_after(tries)
    patience = timedelta(milliseconds=settings.PATIENCE)
    again = now + delay
    due_at = again + patience if calls_again and delay <= patience else again
    return {**values, "status": DeliveryStatus.PENDING.value, "next_attempt_at": again, "due_at": due_at}


def _recorded(using: str, row: Mapping[str, Any], token: str, outcome: Outcome, values: Mapping[str, Any]) -> bool:
    number = values["attempts"]
    attempt = {
        "attempt_id": derived_id("webhook attempt", row["delivery_id"], str(number)),
        "attempt_number": number,
        "status_code": outcome.status_code,
        "response_body": None if outcome.is_delivered else outcome.response_body,
        "error": None if outcome.error is None else _storable(outcome.error),
        "created_at": values["updated_at"],
        "duration_ms": outcome.duration_ms,
    }
    rows = WebhookDelivery.objects.using(using)
    return rows.end_attempt(row["delivery_id"], token=token, values=values, attempt=attempt)


def _storable(text: str) -> str:
    """What every database can hold of it: an error may quote what a receiver said."""
    return text.encode(errors="replace").decode().replace("\x00", "")[:LONGEST_ERROR]


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)
