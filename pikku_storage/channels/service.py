"""Channels and their subscriptions (contract services.md §10).

Know nothing of owners: whoever may call them may read and write everything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db import DatabaseError, router
from django.db.models import Q

from pikku_storage.access.actors import actor_of, user_id_of
from pikku_storage.async_twins import AsyncTwins
from pikku_storage.auditing import AuditEvent, record_all
from pikku_storage.channels.events import Event
from pikku_storage.channels.models import NAME_LENGTH, ChannelEvent, ChannelSubscription
from pikku_storage.channels.models import Channel as Row
from pikku_storage.channels.querysets import BATCH, CLOSING, ChannelQuerySet, ChannelSubscriptionQuerySet
from pikku_storage.channels.records import Channel
from pikku_storage.channels.transports import Transport, transport
from pikku_storage.conf import settings
from pikku_storage.db import engine
from pikku_storage.db.operations import ABSENT
from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.exceptions import ChannelExistsError, ChannelNotFoundError, PayloadError
from pikku_storage.ids import new_token
from pikku_storage.json import Json, to_json, to_text

logger = logging.getLogger(__name__)

EVENTS_ARE_KEPT = timedelta(minutes=1)


class ChannelStore(AsyncTwins):
    """What is known of connected channels. Every method has an async twin: `await store.aget_channel(id)`."""

    def __init__(self, using: str | None = None) -> None:
        self.using = using or router.db_for_write(Row)
        self._engine = engine(self.using)

    def add_channel(
        self,
        channel_id: str,
        channel_name: str,
        opening_data: Json = None,
        *,
        pikku_user_id: Any = None,
        holder: str | None = None,
    ) -> Channel:
        """Add a channel. Without opening data it has `{}`; the user is a Django user or an id.

        With a `holder`, any text that names the process which holds the connection, the channel is leased: unless
        `renew_leases` is called in time, `sweep` removes it. Raises `ChannelExistsError` and `PayloadError`.
        """
        now = self._engine.now()
        values = {
            "channel_id": to_text(channel_id, root="$channel_id"),
            "channel_name": to_text(channel_name, root="$channel_name", longest=NAME_LENGTH),
            "opening_data": {} if opening_data is None else to_json(opening_data, root="$opening_data"),
            "pikku_user_id": user_id_of(pikku_user_id, role="user"),
            "created_at": now,
            "holder": None if holder is None else to_text(holder, root="$holder", longest=36),
            "lease_until": None if holder is None else self._lease(None, now),
        }
        # The state is left out: on MongoDB it is absent until it is set (contract tables.md §3, 1).
        if not self._rows.add({**values, "last_wire": now, "updated_at": now}):
            raise ChannelExistsError(channel_id)
        return Channel(**values)

    def remove_channels(self, channel_ids: Iterable[str]) -> None:
        """Remove these channels with their subscriptions, as far as they are there."""
        self._rows.remove(self._subscriptions, list(channel_ids))

    def close_channel(self, channel_id: str, *, by: Any = None, reason: str | None = None) -> bool:
        """Let the connection go. A channel that is leased hears of nothing more at once, and the process that holds it
        closes its socket when it next renews its leases; any other is removed. `False` if there is no such channel, or
        it is closing. It is audited."""
        row = self._rows.filter(pk=channel_id).values("holder", "pikku_user_id").first()
        if row is None or row["holder"] == CLOSING:
            return False
        if row["holder"] is None:
            closed = bool(self._rows.remove(self._subscriptions, [channel_id]))
        else:
            # Long enough for its holder to come by, and for the sweep to remove it where no process does.
            until = self._lease(None, self._lease(None, self._engine.now()))
            closed = self._rows.close(channel_id, holder=row["holder"], until=until)
            if closed:
                self._subscriptions.remove_of_channels([channel_id])
        if closed:
            metadata: dict[str, Json] = {"channelId": channel_id, "userId": row["pikku_user_id"], "reason": reason}
            actor = actor_of(by)
            event = AuditEvent(
                type="channel.closed", outcome="success", actor=actor, wire_type="channel", metadata=metadata
            )
            record_all([event], using=self.using)
        return closed

    def set_pikku_user_id(self, channel_id: str, user: Any) -> None:
        """Say whose channel it is, `None` for nobody's; nothing if there is no such channel."""
        self._rows.change(
            channel_id, {"pikku_user_id": user_id_of(user, role="user"), "updated_at": self._engine.now()}
        )

    def get_channel(self, channel_id: str) -> Channel:
        """The channel. Raises `ChannelNotFoundError`."""
        row = self._rows.filter(pk=channel_id).values(*Channel.COLUMNS).first()
        if row is None:
            raise ChannelNotFoundError(channel_id)
        return Channel(**row)

    def list_channels(
        self, *, pikku_user_id: Any = None, limit: int = 50, before: tuple[datetime, str] | None = None
    ) -> list[Channel]:
        """Channels of that user, or of everybody, the newest first. `before` is the `(created_at, channel_id)` of the
        last one seen."""
        rows = self._rows
        if pikku_user_id is not None:
            rows = rows.filter(pikku_user_id=user_id_of(pikku_user_id, role="user"))
        if before is not None:
            at, channel_id = before
            rows = rows.filter(Q(created_at__lt=at) | Q(created_at=at, channel_id__lt=channel_id))
        found = rows.order_by("-created_at", "-channel_id").values(*Channel.COLUMNS)[:limit]
        return [Channel(**row) for row in found]

    # -- state ---------------------------------------------------------------------------------------------------------

    def get_state(self, channel_id: str) -> Json:
        """What `set_state` stored; `None` if that was nothing, it was cleared, or there is no such channel."""
        return self._rows.filter(pk=channel_id).values_list("state", flat=True).first()

    def set_state(self, channel_id: str, state: Json) -> None:
        """Store a state in place of the one there was; nothing if there is no such channel."""
        plain = to_json(state, root="$state")
        self._rows.change(channel_id, {"state": ABSENT if plain is None else plain, "updated_at": self._engine.now()})

    def merge_state(self, channel_id: str, key: str, value: Json) -> None:
        """Set one key of a state that is an object or nothing; those who set other keys at the same time do not lose
        theirs. Nothing if there is no such channel. Raises `PayloadError` for a state that is no object."""
        key, plain = to_text(key, root="$key"), to_json(value, root=f"$state.{key}")
        if not isinstance(self.get_state(channel_id), dict | None):
            raise PayloadError("$state", "only a JSON object has keys; set another state first")
        self._rows.merge_state(channel_id, key, plain, at=self._engine.now())

    def clear_state(self, channel_id: str) -> None:
        """Forget the state; nothing if there is no such channel."""
        self.set_state(channel_id, None)

    # -- leases --------------------------------------------------------------------------------------------------------

    def renew_leases(self, holder: str, *, lease: Duration | None = None) -> int:
        """Lease all channels of a holder anew, in one write, for `CHANNEL_LEASE` unless it says otherwise; answers how
        many it has. Fewer than it thinks means that they were swept."""
        return self._rows.renew(holder, until=self._lease(lease, self._engine.now()))

    def sweep(self) -> int:
        """Remove the channels whose lease ran out, whatever their age; answers how many. Any number may sweep at
        once."""
        removed, sweeper = 0, new_token()
        while taken := self._rows.take_expired(sweeper, at=self._engine.now()):
            removed += self._rows.remove(self._subscriptions, taken)
            if len(taken) < BATCH:
                break
        return removed

    def _lease(self, lease: Duration | None, now: datetime) -> datetime:
        return now + timedelta(milliseconds=settings.CHANNEL_LEASE if lease is None else to_milliseconds(lease))

    @property
    def _rows(self) -> ChannelQuerySet:
        rows: ChannelQuerySet = Row.everyones.using(self.using)
        return rows

    @property
    def _subscriptions(self) -> ChannelSubscriptionQuerySet:
        rows: ChannelSubscriptionQuerySet = ChannelSubscription.everyones.using(self.using)
        return rows


class EventHubStore(AsyncTwins):
    """Who has subscribed to what, and telling them. Every method has an async twin.

    Events go through `carrier`, by default what the setting `CHANNEL_TRANSPORT` names.
    """

    def __init__(self, using: str | None = None, *, carrier: Transport | None = None) -> None:
        self.using = using or router.db_for_write(ChannelSubscription)
        self._given = carrier

    def subscribe(self, topic: str, channel_id: str) -> bool:
        """Let a channel hear of a topic: `True`, also if it does already; `False` if there is no such channel or the
        database fails, which the log then says. Raises `PayloadError` for a topic that cannot be stored."""
        topic = to_text(topic, root="$topic")
        try:
            return self._rows.add(Row, channel_id, topic)
        except DatabaseError:
            logger.warning("Channel %s could not subscribe to %s", channel_id, topic, exc_info=True)
            return False

    def unsubscribe(self, topic: str, channel_id: str) -> bool:
        """Let it hear of that no more; `True` only if it did."""
        return self._rows.remove(channel_id, topic)

    def get_channel_ids_for_topic(self, topic: str) -> list[str]:
        """The channels that hear of a topic, sorted."""
        return list(self._rows.filter(topic=topic).order_by("channel_id").values_list("channel_id", flat=True))

    def publish(self, topic: str, channel_id: str | None, data: Json) -> None:
        """Tell all channels that hear of a topic, but for `channel_id`, in whatever process they are; when the
        transaction commits. Nobody hears of what is published while they are not connected. Raises `PayloadError`."""
        event = Event(topic=to_text(topic, root="$topic"), data=to_json(data, root="$data"), sender=channel_id)
        self.carrier.send(event)

    def prune_events(self) -> int:
        """Delete events that travelled by the database more than a minute ago; answers how many."""
        return ChannelEvent.objects.using(self.using).prune(before=engine(self.using).now() - EVENTS_ARE_KEPT)

    @cached_property
    def carrier(self) -> Transport:
        """What events go through."""
        return self._given or transport(self.using)

    @property
    def _rows(self) -> ChannelSubscriptionQuerySet:
        rows: ChannelSubscriptionQuerySet = ChannelSubscription.everyones.using(self.using)
        return rows
