"""The tables of channels (contract tables.md §3, 1-2), and ours of events.

Names of tables and columns are the contract's, on MongoDB in camel case as there. Columns the contract does not have
are marked "ours". Nothing here changes a row: see `querysets.py`.

`objects` answers nothing before it is told whose rows are wanted; `everyones` is for code that has decided that
already.
"""

from __future__ import annotations

import json

from django.db import models
from django.utils.translation import gettext_lazy as _

from pikku_storage.access.owned import OwnedManager
from pikku_storage.channels.querysets import ChannelEventQuerySet, ChannelQuerySet, ChannelSubscriptionQuerySet
from pikku_storage.db.fields import ExactCharField, MillisecondDateTimeField, PayloadField, text_id
from pikku_storage.db.indexes import SparseIndex
from pikku_storage.ids import derived_id

NAME_LENGTH = 255


class Channel(models.Model):
    """A connected channel."""

    channel_id = text_id(primary_key=True, editable=False)
    channel_name = ExactCharField(_("name"), max_length=NAME_LENGTH)
    created_at = MillisecondDateTimeField(_("opened"))
    opening_data = PayloadField(_("opening data"))
    pikku_user_id = text_id(verbose_name=_("user"), null=True)
    state = PayloadField(_("state"), null=True)
    last_wire = MillisecondDateTimeField(_("last wire"))
    # Ours: which process holds the connection, and until when the channel is believed to be there without a word of it.
    # Null for a channel that lives until somebody removes it.
    holder = ExactCharField(_("holder"), max_length=36, null=True)
    lease_until = MillisecondDateTimeField(_("leased until"), null=True)
    # Ours: when its state or user last changed.
    updated_at = MillisecondDateTimeField(_("updated"), null=True)

    everyones = ChannelQuerySet.as_manager()
    objects = OwnedManager("pikku_user_id")

    class Meta:
        db_table = "channels"
        verbose_name = _("channel")
        verbose_name_plural = _("channels")
        ordering = ("-created_at", "-channel_id")
        indexes = (
            models.Index(fields=("created_at", "channel_id"), name="idx_channels_created"),
            SparseIndex(
                fields=("pikku_user_id", "created_at", "channel_id"), present="pikku_user_id", name="idx_channels_user"
            ),
            SparseIndex(fields=("lease_until", "channel_id"), present="lease_until", name="idx_channels_lease"),
            SparseIndex(fields=("holder",), present="holder", name="idx_channels_holder"),
        )

    def __str__(self) -> str:
        return f"{self.channel_name} · {self.channel_id}"


class ChannelSubscription(models.Model):
    """A topic that a channel hears of.

    Ours: the primary key, derived from channel and topic. What another program wrote has a key of its own there.
    """

    key = text_id(primary_key=True, editable=False, db_column="subscription_key")
    channel = models.ForeignKey(
        Channel, models.CASCADE, related_name="subscriptions", db_index=False, verbose_name=_("channel")
    )
    topic = text_id(verbose_name=_("topic"))

    everyones = ChannelSubscriptionQuerySet.as_manager()
    objects = OwnedManager("channel__pikku_user_id")

    class Meta:
        db_table = "channel_subscriptions"
        verbose_name = _("subscription")
        verbose_name_plural = _("subscriptions")
        ordering = ("topic", "channel_id")
        constraints = (models.UniqueConstraint(fields=("channel", "topic"), name="channel_subscriptions_once"),)
        indexes = (models.Index(fields=("topic", "channel"), name="idx_subscriptions_topic"),)

    def __str__(self) -> str:
        return f"{self.topic} · {self.channel_id}"

    @staticmethod
    def key_of(channel_id: str, topic: str) -> str:
        """The key of the row of that subscription."""
        return derived_id("subscription", json.dumps([channel_id, topic]))


class ChannelEvent(models.Model):
    """Ours: an event on its way, where it travels by the database. It is kept for a minute."""

    id = text_id(primary_key=True, editable=False)
    topic = text_id(verbose_name=_("topic"))
    sender = text_id(verbose_name=_("sender"), null=True)
    data = PayloadField(_("data"), null=True)
    created_at = MillisecondDateTimeField(_("published"))

    objects = ChannelEventQuerySet.as_manager()

    class Meta:
        db_table = "channel_events"
        verbose_name = _("event")
        verbose_name_plural = _("events")
        ordering = ("created_at", "id")
        indexes = (models.Index(fields=("created_at", "id"), name="idx_channel_events_created"),)

    def __str__(self) -> str:
        return f"{self.topic} · {self.id}"
