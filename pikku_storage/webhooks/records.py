"""What `WebhookService` answers with: frozen, typed records. Times are aware UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A webhook that is sent. `next_attempt_at` is `None` once it has ended."""

    delivery_id: str
    organization_id: str | None
    url: str
    event: str | None
    status: str
    attempts: int
    max_attempts: int
    created_at: datetime
    updated_at: datetime
    delivered_at: datetime | None
    next_attempt_at: datetime | None

    COLUMNS: ClassVar = (
        "delivery_id",
        "organization_id",
        "url",
        "event",
        "status",
        "attempts",
        "max_attempts",
        "created_at",
        "updated_at",
        "delivered_at",
        "next_attempt_at",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try. Without a `status_code` there was no answer, and `error` says why."""

    attempt_id: str
    attempt_number: int
    status_code: int | None
    response_body: str | None
    error: str | None
    duration_ms: int | None
    created_at: datetime

    COLUMNS: ClassVar = (
        "attempt_id",
        "attempt_number",
        "status_code",
        "response_body",
        "error",
        "duration_ms",
        "created_at",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryWithAttempts:
    """A delivery, what it sends, and its attempts in their order."""

    delivery: Delivery
    body: str
    attempts: tuple[Attempt, ...]
