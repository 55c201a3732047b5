"""Every change of the rows of webhooks. A transition is one guarded update, and the number of rows says who won."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError
from django.db.models import Q

from pikku_storage.db.operations import Delete, Expired, Insert, Update
from pikku_storage.db.querysets import EngineQuerySet

if TYPE_CHECKING:
    from pikku_storage.webhooks.models import WebhookDelivery  # noqa: F401 - named as text

PENDING = "pending"
ENDED = ("delivered", "failed")
BATCH = 500
"""How many rows are deleted by one statement."""


class DeliveryQuerySet(EngineQuerySet["WebhookDelivery"]):
    """Webhooks that are sent."""

    def add(self, values: Mapping[str, Any]) -> bool:
        """Insert a delivery; `False` if there is one of that id."""
        try:
            with self.engine.savepoint():
                self.engine.apply(Insert(self.model, values))
        except IntegrityError:
            return False
        return True

    def claim(self, delivery_id: str, *, attempts: int, token: str, by: str, at: datetime, until: datetime) -> bool:
        """Begin the attempt after `attempts` others; `False` if somebody else has it, or it is not due."""
        free = {"delivery_id": delivery_id, "status": PENDING, "claim_token": None, "attempts": attempts}
        taken = {"claim_token": token, "claimed_by": by, "due_at": until, "updated_at": at}
        return bool(self.engine.apply(Update(self.model, {**free, "next_attempt_at": Expired(at)}, taken))[0])

    def end_attempt(
        self, delivery_id: str, *, token: str, values: Mapping[str, Any], attempt: Mapping[str, Any]
    ) -> bool:
        """Record the attempt that this claim began, and what is next; `False` if the claim is lost."""
        from pikku_storage.webhooks.models import WebhookDeliveryAttempt

        mine = {"delivery_id": delivery_id, "status": PENDING, "claim_token": token}
        freed = {"claim_token": None, "claimed_by": None, "redrives": None, **values}
        record = Insert(WebhookDeliveryAttempt, {"delivery_id": delivery_id, **attempt})
        return bool(self.engine.apply(Update(self.model, mine, freed), record)[0])

    def due(self, at: datetime) -> DeliveryQuerySet:
        """What the relay must look at, the longest due first."""
        return self.filter(due_at__lte=at).order_by("due_at", "delivery_id")

    def redrive(self, delivery_id: str, *, seen: datetime, due_at: datetime, redrives: int) -> bool:
        """Note that its message is sent again; `False` if somebody else did, or it has gone on."""
        waiting = {"delivery_id": delivery_id, "status": PENDING, "claim_token": None, "due_at": seen}
        return bool(self.engine.apply(Update(self.model, waiting, {"due_at": due_at, "redrives": redrives}))[0])

    def replay(self, delivery_id: str, *, max_attempts: int, at: datetime, due_at: datetime) -> bool:
        """Begin anew; `False` if it has not ended, or is not there."""
        again = {"status": PENDING, "max_attempts": max_attempts, "next_attempt_at": at, "due_at": due_at}
        fresh = {**again, "delivered_at": None, "redrives": None, "updated_at": at}
        ended = {"delivery_id": delivery_id, "status": list(ENDED)}
        return bool(self.engine.apply(Update(self.model, ended, fresh))[0])

    def give_up(self, delivery_id: str, *, at: datetime) -> bool:
        """End what waits for an attempt; `False` if one is under way, it has ended, or is not there."""
        waiting = {"delivery_id": delivery_id, "status": PENDING, "claim_token": None}
        over = {"status": "failed", "next_attempt_at": None, "due_at": None, "redrives": None, "updated_at": at}
        return bool(self.engine.apply(Update(self.model, waiting, over))[0])

    def ended_before(self, by: datetime) -> DeliveryQuerySet:
        """What ended before that time."""
        return self.filter(Q(status__in=ENDED), updated_at__lt=by)

    def remove_ended(self, by: datetime) -> int:
        """Delete that with its attempts; answers how many. One that is replayed meanwhile stays, without the attempts
        that it had."""
        from pikku_storage.webhooks.models import WebhookDeliveryAttempt

        removed = 0
        while ids := list(self.ended_before(by).order_by("updated_at").values_list("pk", flat=True)[:BATCH]):
            try:
                with self.engine.savepoint():
                    WebhookDeliveryAttempt.objects.using(self.db).filter(delivery_id__in=ids).delete()
                    removed += self.engine.apply(Delete(self.model, {"delivery_id": ids, "status": list(ENDED)}))[0]
            except IntegrityError:
                # One of them was replayed, and has a new attempt; so it is none of the next ones.
                continue
        return removed
