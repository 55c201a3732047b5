"""Many writers of the same channel, many sweepers, and subscriptions to a channel that goes."""

from datetime import timedelta

import pytest

from pikku_storage.channels.models import Channel, ChannelSubscription
from pikku_storage.channels.service import ChannelStore, EventHubStore
from pikku_storage.db.clock import travel
from tests.races.together import in_threads, together

THREADS = 6

pytestmark = pytest.mark.django_db(transaction=True)


def test_writers_of_one_state_lose_nothing() -> None:
    store, topics = ChannelStore(), EventHubStore()
    store.add_channel("c", "chat")

    def write(number: int) -> bool:
        for key in range(5):
            store.merge_state("c", f"{number}.{key}", number)
        return topics.subscribe("news", "c")

    assert in_threads(write, THREADS) == [True] * THREADS
    assert store.get_state("c") == {f"{number}.{key}": number for number in range(THREADS) for key in range(5)}
    assert topics.get_channel_ids_for_topic("news") == ["c"]


def test_sweepers_and_subscribers_leave_nothing_and_take_nothing_that_lives() -> None:
    store, topics = ChannelStore(), EventHubStore()
    for number in range(20):
        store.add_channel(f"dead {number}", "chat", holder="dead")
        store.add_channel(f"live {number}", "chat", holder="live")
        topics.subscribe("news", f"live {number}")
    with travel(timedelta(minutes=2)):
        store.renew_leases("live")

        def subscribe() -> int:
            for number in range(20):
                topics.subscribe("news", f"dead {number}")
            return 0

        together(store.sweep, store.sweep, store.sweep, subscribe, subscribe)
        store.sweep()
    live = {f"live {number}" for number in range(20)}
    assert set(Channel.everyones.values_list("channel_id", flat=True)) == live
    assert set(ChannelSubscription.everyones.values_list("channel_id", flat=True)) == live
