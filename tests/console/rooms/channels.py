"""Channels and subscriptions."""

from __future__ import annotations

from django.contrib.auth.models import User

from console.gate import CHANNELS
from pikku_storage.channels.models import ChannelSubscription
from pikku_storage.channels.service import ChannelStore, EventHubStore
from tests.console.rooms import Room, Rows

_CHANNEL = "pikku_channels_channel"


def _make(user: User) -> dict[str, Rows]:
    ChannelStore().add_channel("c / 1", "chat", pikku_user_id=user, holder="a process")
    EventHubStore().subscribe("news", "c / 1")
    key = ChannelSubscription.key_of("c / 1", "news")
    return {"channel": Rows("c / 1"), "channelsubscription": Rows(key)}


ROOM = Room(
    area=CHANNELS,
    make=_make,
    needs={f"{_CHANNEL}_operation": "manage"},
    params={f"{_CHANNEL}_operation": {"operation": "close"}, f"{_CHANNEL}_payload": {"part": "opening_data"}},
)
