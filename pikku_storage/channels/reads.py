"""What a hub asks about the channels that it holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pikku_storage.channels.models import Channel, ChannelSubscription
from pikku_storage.channels.querysets import CLOSING


def subscribers(using: str, topics: Iterable[str], holder: str) -> dict[str, list[str]]:
    """By topic, the channels of that holder that hear of it. One read, however many topics."""
    rows = ChannelSubscription.everyones.using(using).filter(topic__in=list(topics), channel__holder=holder)
    found: dict[str, list[str]] = defaultdict(list)
    for topic, channel_id in rows.order_by().values_list("topic", "channel_id"):
        found[topic].append(channel_id)
    return dict(found)


def closing(using: str, channel_ids: Iterable[str]) -> set[str]:
    """Those of these channels that somebody has closed."""
    rows = Channel.everyones.using(using).filter(pk__in=list(channel_ids), holder=CLOSING)
    return set(rows.order_by().values_list("channel_id", flat=True))


def ids_of_holder(using: str, holder: str) -> set[str]:
    """The channels of that holder."""
    return set(Channel.everyones.using(using).filter(holder=holder).order_by().values_list("channel_id", flat=True))
