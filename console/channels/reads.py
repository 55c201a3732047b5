"""What the pages of channels read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count

from pikku_storage.channels.models import ChannelSubscription

MOST_TOPICS = 200


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that a channel hears of, and how many channels do."""

    name: str
    subscribers: int


def read_subscription_counts(using: str, channel_ids: Sequence[str]) -> dict[str, int]:
    """By channel, how many topics it hears of. One query, none without channels."""
    if not channel_ids:
        return {}
    rows = ChannelSubscription.everyones.using(using).filter(channel_id__in=channel_ids).order_by()
    return dict(rows.values_list("channel_id").annotate(topics=Count("topic")))


def read_topics(using: str, channel_id: str) -> tuple[list[Topic], bool]:
    """The topics of a channel by name, and whether there are more than `MOST_TOPICS`. Two queries."""
    rows = ChannelSubscription.everyones.using(using)
    of_channel = rows.filter(channel_id=channel_id).order_by("topic").values_list("topic", flat=True)
    names = list(of_channel[: MOST_TOPICS + 1])
    has_more, names = len(names) > MOST_TOPICS, names[:MOST_TOPICS]
    counts = dict(rows.filter(topic__in=names).order_by().values_list("topic").annotate(channels=Count("channel_id")))
    # Who unsubscribed in between is still named.
    return [Topic(name, counts.get(name, 0)) for name in names], has_more
