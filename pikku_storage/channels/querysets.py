"""Every change of the rows of channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, transaction

from pikku_storage.channels.events import Event
from pikku_storage.db.operations import Delete, Guard, Insert, Update
from pikku_storage.db.querysets import EngineQuerySet
from pikku_storage.json import Json

if TYPE_CHECKING:
    from pikku_storage.channels.models import Channel, ChannelEvent, ChannelSubscription  # noqa: F401 - named as text

BATCH = 500
"""How many channels are swept or removed by one statement."""
CLOSING = "closing"
"""The holder of a channel that was closed, until the process that has its socket takes notice."""
_TRIES = 10


class ChannelQuerySet(EngineQuerySet["Channel"]):
    """Channels, and the leases on them."""

    def add(self, values: Mapping[str, Any]) -> bool:
        """Insert a channel; `False` if there is one of that id."""
        return self.insert(Insert(self.model, values))

    def change(self, channel_id: str, values: Mapping[str, Any]) -> bool:
        """Set these columns; `False` if there is no such channel."""
        return bool(self.engine.apply(Update(self.model, {"channel_id": channel_id}, values))[0])

    def merge_state(self, channel_id: str, key: str, value: Json, *, at: datetime) -> bool:
        """Set one key of the state in the database; `False` if there is no such channel."""
        return bool(self.engine.merge_json_key(self.model, channel_id, "state", key, value, at))

    def renew(self, holder: str, *, until: datetime) -> int:
        """Lease every channel of a holder anew; answers how many it still has."""
        return self.filter(holder=holder).update(lease_until=until)

    def take_expired(self, sweeper: str, *, at: datetime) -> list[str]:
        """Take channels whose lease ran out away from their holders; answers with their ids.

        A holder that comes back too late then renews nothing, so what is taken can be removed in several writes. What a
        sweeper took and did not remove is still expired, and the next one takes it.
        """
        expired = self.filter(lease_until__lte=at)
        ids = list(expired.order_by("lease_until", "channel_id").values_list("channel_id", flat=True)[:BATCH])
        if not ids or not expired.filter(pk__in=ids).update(holder=sweeper):
            return []
        return list(self.filter(pk__in=ids, holder=sweeper).order_by().values_list("channel_id", flat=True))

    def close(self, channel_id: str, *, holder: str, until: datetime) -> bool:
        """Take a channel away from its holder, which then lets its socket go; `False` if that holds it no more. Until
        that time the row stands there for it to see."""
        held, closing = {"channel_id": channel_id, "holder": holder}, {"holder": CLOSING, "lease_until": until}
        return bool(self.engine.apply(Update(self.model, held, closing))[0])

    def remove(self, subscriptions: ChannelSubscriptionQuerySet, ids: Sequence[str]) -> int:
        """Delete these channels with their subscriptions; answers how many channels there were."""
        return sum(self._remove(subscriptions, ids[start : start + BATCH]) for start in range(0, len(ids), BATCH))

    def _remove(self, subscriptions: ChannelSubscriptionQuerySet, ids: Sequence[str]) -> int:
        def write() -> int:
            with transaction.atomic(using=self.engine.using):
                # Where that locks the rows for whoever would subscribe, nobody does meanwhile.
                self.engine.apply(Update(self.model, {"channel_id": list(ids)}, {"updated_at": self.engine.now()}))
                subscriptions.remove_of_channels(ids)
                removed = self.engine.apply(Delete(self.model, {"channel_id": list(ids)}))[0]
                # Elsewhere somebody may have. From here on a subscription looks for its channel in vain.
                subscriptions.remove_of_channels(ids)
            return removed

        for _ in range(_TRIES):
            try:
                return self.engine.retrying(write)
            except IntegrityError:
                # One of them subscribed in between, where that is seen at once.
                continue
        return write()


class ChannelSubscriptionQuerySet(EngineQuerySet["ChannelSubscription"]):
    """Subscriptions. They are found by channel and topic: what another program wrote has a key of its own."""

    def add(self, channels: type[Channel], channel_id: str, topic: str) -> bool:
        """Insert a subscription, unless it is there; `False` if there is no such channel."""
        row = {"channel_id": channel_id, "topic": topic}
        channel = Guard(channels, {"channel_id": channel_id})
        insert = Insert(self.model, {"key": self.model.key_of(channel_id, topic), **row})
        try:
            with self.engine.savepoint():
                added = bool(self.engine.apply(channel, insert)[0])
        except IntegrityError:
            # There already; or the channel went just now, where foreign keys see that.
            return self.filter(**row).exists()
        if added and not self.engine.connection.features.supports_foreign_keys:
            return self._keep_with_its_channel(channels, row)
        return added

    def remove(self, channel_id: str, topic: str) -> bool:
        """Delete a subscription; `False` if there is none."""
        return bool(self.engine.apply(Delete(self.model, {"channel_id": channel_id, "topic": topic}))[0])

    def remove_of_channels(self, ids: Sequence[str]) -> int:
        """Delete all subscriptions of these channels."""
        return self.engine.apply(Delete(self.model, {"channel_id": list(ids)}))[0]

    def _keep_with_its_channel(self, channels: type[Channel], row: Mapping[str, str]) -> bool:
        if channels._default_manager.using(self.db).filter(pk=row["channel_id"]).exists():
            return True
        self.remove(row["channel_id"], row["topic"])
        return False


class ChannelEventQuerySet(EngineQuerySet["ChannelEvent"]):
    """Events that travel by the database. Rows are only ever added, and deleted when they are old."""

    def add(self, event_id: str, event: Event) -> None:
        """Insert an event."""
        values = {"id": event_id, "topic": event.topic, "sender": event.sender, "data": event.data}
        self.engine.apply(Insert(self.model, {**values, "created_at": self.engine.now()}))

    def ids_of_late(self, window: timedelta) -> list[str]:
        """The ids of the events of the last while, the oldest first."""
        late = self.filter(created_at__gt=self.engine.now() - window)
        return list(late.order_by("created_at", "id").values_list("id", flat=True))

    def read(self, ids: Sequence[str]) -> dict[str, Event]:
        """These events, by their ids."""
        rows = self.filter(pk__in=list(ids)).order_by().values_list("id", "topic", "sender", "data")
        return {event_id: Event(topic=topic, sender=sender, data=data) for event_id, topic, sender, data in rows}

    def prune(self, *, before: datetime) -> int:
        """Delete older events; answers how many there were."""
        removed = 0
        while ids := list(self.filter(created_at__lt=before).order_by().values_list("id", flat=True)[:BATCH]):
            removed += self.engine.apply(Delete(self.model, {"id": ids}))[0]
        return removed
