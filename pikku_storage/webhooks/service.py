"""Outgoing webhooks: sent, attempted, listed and replayed (contract services.md §15)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.db import router, transaction
from django.db.models import Q

from pikku_storage.access.actors import actor_of
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.auditing import AuditEvent, record_all
from pikku_storage.conf import settings
from pikku_storage.db import engine
from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.exceptions import PayloadError, WebhookInputError, WebhookNotFoundError
from pikku_storage.ids import new_id
from pikku_storage.json import to_text
from pikku_storage.retry import RetryPolicy
from pikku_storage.secrets.values import SecretValue, hide
from pikku_storage.webhooks import attempts, inputs
from pikku_storage.webhooks.dispatch import announce
from pikku_storage.webhooks.models import DeliveryStatus, WebhookDelivery, WebhookDeliveryAttempt
from pikku_storage.webhooks.records import Attempt, Delivery, DeliveryWithAttempts
from pikku_storage.webhooks.signing import sign_webhook

PAGE = 100
ROUND = 500
"""How many deliveries one round of the relay looks at."""
LONGEST_PATIENCE_MS = 600_000
_OF_RELAY = (
    *("delivery_id", "attempts", "retries", "max_attempts", "retry_delay"),
    *("claim_token", "due_at", "redrives"),
)


class WebhookService(AsyncTwins):
    """Webhooks. Every method has an async twin: `await service.asend(…)`."""

    def __init__(self, using: str | None = None, *, worker: str | None = None) -> None:
        self.using = using or router.db_for_write(WebhookDelivery)
        self._worker = worker or "inline"
        self._engine = engine(self.using)

    def send(
        self,
        url: str,
        data: Any,
        *,
        event: str | None = None,
        organization_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        secret: str | SecretValue | None = None,
        secret_name: str | None = None,
        retries: int | None = None,
        retry_delay: Duration | None = None,
    ) -> Delivery:
        """POST `data` as JSON to the URL, as soon as this transaction is committed and then until it is delivered or
        has failed `retries` + 1 times. It may arrive more than once.

        `secret` signs the body now, and is kept nowhere. `secret_name` is the name of a secret of `SecretService`,
        which is read for each attempt; by default what `WEBHOOK_SECRET` says. Raises `WebhookInputError`,
        `WebhookBlockedError` and `PayloadError`; then nothing is stored.
        """
        # Not bare any more, where a debug page would show it.
        hidden = None if secret is None else hide(secret)
        del secret
        now = self._engine.now()
        body = inputs.body_of(data)
        given = inputs.headers_of(headers)
        if hidden is not None:
            if not isinstance(hidden.reveal(), str) or not hidden.reveal():
                raise WebhookInputError("The secret of a webhook is a text, and not an empty one")
            given = inputs.merged(given, {settings.WEBHOOK_SIGNATURE_HEADER: sign_webhook(hidden, body)})
            secret_name = None
        else:
            secret_name = _secret_name(secret_name or settings.WEBHOOK_SECRET)
        retries, delay = _policy(retries, retry_delay)
        row: dict[str, Any] = {
            "delivery_id": new_id(),
            "organization_id": _optional("organization_id", organization_id),
            "url": inputs.url_of(url),
            "event": None if event is None else inputs.value_of(_text("event", event), "event"),
            "status": DeliveryStatus.PENDING.value,
            "attempts": 0,
            "created_at": now,
            "updated_at": now,
            "delivered_at": None,
            "body": body,
            "headers": given or None,
            "secret_name": secret_name,
            "retries": retries,
            "max_attempts": retries + 1,
            "retry_delay": delay,
            "next_attempt_at": now,
            "due_at": now + timedelta(milliseconds=settings.PATIENCE),
        }
        self._rows.add(row)
        self._announce(row["delivery_id"])
        return Delivery(**{name: row[name] for name in Delivery.COLUMNS})

    def deliver(self, delivery_id: str) -> str | None:
        """Make the attempt that is due, as a worker does; answers with the status after it, or `None` if there was
        nothing to do: somebody else makes it, it is not time yet, it has ended or is gone."""
        status = attempts.attempt(self.using, delivery_id, self._worker)
        if status == DeliveryStatus.PENDING:
            self._call_again(delivery_id)
        return status

    def relay(self) -> int:
        """One round of looking for what is due: messages that were lost, attempts whose worker is gone, delays that are
        over. Answers how many were announced. Any number may look at once."""
        self._engine.recover(WebhookDelivery)
        now = self._engine.now()
        due = [row for row in self._rows.due(now).values(*_OF_RELAY)[:ROUND] if self._take_up(row, now)]
        return announce([row["delivery_id"] for row in due], using=self.using)

    def replay(self, delivery_id: str, *, by: Any = None) -> Delivery:
        """Send once more what was delivered or has failed, with as many attempts as at first. One that is under way is
        left alone. It is audited. Raises `WebhookNotFoundError`, and `WebhookInputError` for one that was brought over
        from another program, which did not keep what it sent."""
        row = self._rows.filter(pk=delivery_id).values(*Delivery.COLUMNS, "retries", "body").first()
        if row is None:
            raise WebhookNotFoundError(delivery_id)
        if not row.pop("body"):
            raise WebhookInputError(f"Webhook delivery {delivery_id} was brought over without its body")
        now = self._engine.now()
        due_at = now + timedelta(milliseconds=settings.PATIENCE)
        most = row["attempts"] + row.pop("retries") + 1
        if self._rows.replay(delivery_id, max_attempts=most, at=now, due_at=due_at):
            event = AuditEvent(
                type="webhook.replayed",
                outcome="success",
                actor=actor_of(by),
                wire_type="webhooks",
                metadata={"deliveryId": delivery_id, "status": row["status"]},
            )
            record_all([event], using=self.using)
            self._announce(delivery_id)
        return Delivery(**self._rows.filter(pk=delivery_id).values(*Delivery.COLUMNS).get())

    def list_deliveries(
        self,
        *,
        organization_id: str | None = None,
        status: str | None = None,
        limit: int = PAGE,
        before: tuple[datetime, str] | None = None,
    ) -> list[Delivery]:
        """Deliveries, the newest first. `before` is the `(created_at, delivery_id)` of the last one seen."""
        given = {"organization_id": organization_id, "status": status}
        rows = self._rows.filter(**{name: value for name, value in given.items() if value is not None})
        if before is not None:
            at, delivery_id = before
            rows = rows.filter(Q(created_at__lt=at) | Q(created_at=at, delivery_id__lt=delivery_id))
        ordered = rows.order_by("-created_at", "-delivery_id").values(*Delivery.COLUMNS)
        return [Delivery(**row) for row in ordered[: max(1, limit)]]

    def get_delivery(self, delivery_id: str) -> DeliveryWithAttempts | None:
        """The delivery with its attempts, or `None`."""
        row = self._rows.filter(pk=delivery_id).values(*Delivery.COLUMNS, "body").first()
        if row is None:
            return None
        body = row.pop("body")
        tries = WebhookDeliveryAttempt.objects.using(self.using).filter(delivery_id=delivery_id)
        found = tries.order_by("attempt_number").values(*Attempt.COLUMNS)
        return DeliveryWithAttempts(
            delivery=Delivery(**row), body=body, attempts=tuple(Attempt(**each) for each in found)
        )

    def prune(self, older_than: Duration, *, dry_run: bool = False) -> int:
        """Delete what ended longer ago than that with its attempts, or with `dry_run` count it; answers how many.
        Raises `ValueError` for no duration."""
        by = self._engine.now() - timedelta(milliseconds=to_milliseconds(older_than))
        return int(self._rows.ended_before(by).count() if dry_run else self._rows.remove_ended(by))

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _rows(self) -> Any:
        return WebhookDelivery.objects.using(self.using)

    def _announce(self, delivery_id: str) -> None:
        transaction.on_commit(lambda: announce([delivery_id], using=self.using), using=self.using)

    def _call_again(self, delivery_id: str) -> None:
        """A message for the next attempt, if that is soon. A later one is left to the relay."""
        at = self._rows.filter(pk=delivery_id).values_list("next_attempt_at", flat=True).first()
        seconds = 0.0 if at is None else (at - self._engine.now()).total_seconds()
        if at is not None and seconds <= settings.PATIENCE / 1000:
            announce([delivery_id], using=self.using, countdown=max(0.0, seconds))

    def _take_up(self, row: Mapping[str, Any], now: datetime) -> bool:
        """Whether a message is to be sent. What was claimed is given up first; each further message waits twice as
        long."""
        if row["claim_token"] is not None:
            attempts.lose(self.using, row)
            return False
        redrives = (row["redrives"] or 0) + 1
        patience = min(settings.PATIENCE << min(redrives - 1, 20), LONGEST_PATIENCE_MS)
        due_at = now + timedelta(milliseconds=patience)
        return bool(self._rows.redrive(row["delivery_id"], seen=row["due_at"], due_at=due_at, redrives=redrives))


def _policy(retries: int | None, delay: Duration | None) -> tuple[int, str | None]:
    try:
        given = RetryPolicy.of(retries, delay)
    except ValueError as error:
        raise WebhookInputError(str(error)) from None
    return (
        settings.WEBHOOK_RETRIES if given.retries is None else given.retries,
        settings.WEBHOOK_RETRY_DELAY if given.delay is None else given.delay,
    )


def _secret_name(name: str | None) -> str | None:
    if name is not None and not apps.is_installed("pikku_storage.secrets"):
        raise WebhookInputError("A secret is read by its name from pikku_storage.secrets, which is not installed")
    return _optional("secret_name", name)


def _text(name: str, value: str) -> str:
    try:
        return to_text(value, root=f"${name}")
    except PayloadError as error:
        raise WebhookInputError(str(error)) from None


def _optional(name: str, value: str | None) -> str | None:
    return None if value is None else _text(name, value)
