"""Channels, their state, topics and leases (contract services.md §10)."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import CommandError, call_command
from django.db import OperationalError
from pytest_django.fixtures import Settings

from pikku_storage.channels.models import Channel, ChannelSubscription
from pikku_storage.channels.querysets import ChannelQuerySet, ChannelSubscriptionQuerySet
from pikku_storage.channels.reads import subscribers
from pikku_storage.channels.service import ChannelStore, EventHubStore
from pikku_storage.channels.tasks import sweep
from pikku_storage.db.clock import travel
from pikku_storage.exceptions import ChannelExistsError, ChannelNotFoundError, PayloadError, UnscopedQueryError
from tests.conformance.conftest import Counter
from tests.conformance.support import connection, data_statements

pytestmark = pytest.mark.django_db


@pytest.fixture
def store() -> ChannelStore:
    return ChannelStore()


@pytest.fixture
def topics() -> EventHubStore:
    return EventHubStore()


def ids() -> list[str]:
    return sorted(Channel.everyones.values_list("channel_id", flat=True))


def subscribed() -> list[tuple[str, str]]:
    return sorted(ChannelSubscription.everyones.values_list("channel_id", "topic"))


# -- the store ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract("CH-01")
def test_a_channel_reads_back_the_same(store: ChannelStore) -> None:
    made = store.add_channel("c1", "chat", {"room": "r1", "n": [1, None, 2.5]})
    assert store.get_channel("c1") == made
    assert (made.channel_id, made.channel_name, made.opening_data) == (
        "c1",
        "chat",
        {"room": "r1", "n": [1, None, 2.5]},
    )
    assert (made.pikku_user_id, made.holder, made.lease_until) == (None, None, None)
    assert store.add_channel("c2", "chat").opening_data == {}


def test_an_id_is_taken_once(store: ChannelStore) -> None:
    store.add_channel("c", "chat", {"first": True})
    with pytest.raises(ChannelExistsError, match="with the id c already"):
        store.add_channel("c", "other")
    assert store.get_channel("c").opening_data == {"first": True}


@pytest.mark.parametrize(
    ("arguments", "path"), [(("", "chat"), r"\$channel_id"), (("c", "x" * 256), r"\$channel_name")]
)
def test_what_cannot_be_stored_is_refused(store: ChannelStore, arguments: Any, path: str) -> None:
    with pytest.raises(PayloadError, match=path):
        store.add_channel(*arguments)
    with pytest.raises(PayloadError, match=r"\$opening_data.at"):
        store.add_channel("c", "chat", {"at": timedelta()})
    with pytest.raises(PayloadError, match=r"\$topic"):
        EventHubStore().subscribe("a\x00b", "c")
    assert ids() == []


@pytest.mark.contract("CH-02", "CH-03")
def test_a_user_comes_and_goes(store: ChannelStore) -> None:
    store.add_channel("c", "chat")
    store.set_pikku_user_id("c", "ada")
    assert store.get_channel("c").pikku_user_id == "ada"
    store.set_pikku_user_id("c", None)
    assert store.get_channel("c").pikku_user_id is None
    store.set_pikku_user_id("unknown", "ada")


@pytest.mark.contract("CH-04", "CH-05", "CH-06")
def test_removed_and_unknown_channels(store: ChannelStore, topics: EventHubStore) -> None:
    for name in ("a", "b", "c"):
        store.add_channel(name, "chat")
        topics.subscribe("news", name)
    store.remove_channels([])
    assert ids() == ["a", "b", "c"]
    store.remove_channels(["a", "b", "unknown"])
    assert (ids(), subscribed()) == (["c"], [("c", "news")])
    with pytest.raises(ChannelNotFoundError) as raised:
        store.get_channel("a")
    assert (str(raised.value), raised.value.http_status) == ("Channel not found: a", 404)


@pytest.mark.contract("CH-07")
def test_a_state_is_set_replaced_and_cleared(store: ChannelStore) -> None:
    store.add_channel("c", "chat")
    assert store.get_state("c") is None
    for state in ({"cursor": 1, "open": ["a"]}, {"other": {"deep": [True]}}, [1, 2], "text", False):
        store.set_state("c", state)
        assert store.get_state("c") == state
    store.clear_state("c")
    assert store.get_state("c") is None
    store.set_state("c", {"a": 1})
    store.set_state("c", None)
    assert store.get_state("c") is None
    store.set_state("unknown", {"a": 1})
    store.merge_state("unknown", "a", 1)
    assert store.get_state("unknown") is None


def test_keys_of_a_state_are_merged_in_the_database(store: ChannelStore) -> None:
    store.add_channel("c", "chat")
    store.merge_state("c", "a.b", {"x": 1})
    store.merge_state("c", 'quote"d $key', [None])
    store.merge_state("c", "a.b", 2)
    assert store.get_state("c") == {"a.b": 2, 'quote"d $key': [None]}
    store.set_state("c", [1])
    with pytest.raises(PayloadError, match="only a JSON object has keys"):
        store.merge_state("c", "a", 1)


def test_channels_of_somebody(store: ChannelStore, topics: EventHubStore) -> None:
    for number in range(5):
        store.add_channel(f"c{number}", "chat", pikku_user_id="ada" if number % 2 else "eve")
    topics.subscribe("news", "c1")
    seen = store.list_channels(limit=2)
    rest = store.list_channels(before=(seen[-1].created_at, seen[-1].channel_id))
    assert sorted(each.channel_id for each in (*seen, *rest)) == ids()
    assert sorted(each.channel_id for each in store.list_channels(pikku_user_id="ada")) == ["c1", "c3"]
    with pytest.raises(UnscopedQueryError):
        Channel.objects.all()
    assert sorted(row.channel_id for row in Channel.objects.for_principals("ada")) == ["c1", "c3"]
    assert [row.topic for row in ChannelSubscription.objects.for_principals("ada")] == ["news"]
    assert list(Channel.objects.for_principals(None)) == []


# -- topics ------------------------------------------------------------------------------------------------------------


@pytest.mark.contract("EH-01", "EH-02", "EH-03", "EH-04", "EH-05")
def test_a_channel_hears_of_a_topic(store: ChannelStore, topics: EventHubStore) -> None:
    store.add_channel("c", "chat")
    assert topics.subscribe("news", "c") is True
    assert topics.get_channel_ids_for_topic("news") == ["c"]
    assert topics.subscribe("news", "c") is True
    assert topics.get_channel_ids_for_topic("news") == ["c"]
    assert topics.get_channel_ids_for_topic("News") == topics.get_channel_ids_for_topic("unknown") == []
    assert topics.unsubscribe("news", "c") is True
    assert topics.unsubscribe("news", "c") is False
    assert topics.get_channel_ids_for_topic("news") == []


def test_an_unknown_channel_hears_of_nothing(topics: EventHubStore) -> None:
    """On MongoDB as well, where the contract's services would keep a subscription of nobody."""
    assert topics.subscribe("news", "unknown") is False
    assert subscribed() == []


def test_a_database_that_fails_subscribes_nobody(
    store: ChannelStore, topics: EventHubStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> bool:
        raise OperationalError("gone")

    monkeypatch.setattr(ChannelSubscriptionQuerySet, "add", fail)
    assert topics.subscribe("news", "c") is False
    assert "could not subscribe to news" in caplog.text


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("on", ["remove_of_channels", "add"])
def test_a_channel_that_goes_while_it_subscribes_leaves_nothing(
    store: ChannelStore, topics: EventHubStore, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    """Whichever comes in between the other's writes."""
    store.add_channel("c", "chat")
    original = getattr(ChannelSubscriptionQuerySet, on)
    times = iter([True])

    def interrupted(self: ChannelSubscriptionQuerySet, *arguments: Any) -> Any:
        answer = original(self, *arguments)
        if next(times, False):
            topics.subscribe("news", "c") if on == "remove_of_channels" else store.remove_channels(["c"])
        return answer

    monkeypatch.setattr(ChannelSubscriptionQuerySet, on, interrupted)
    if on == "remove_of_channels":
        store.remove_channels(["c"])
    else:
        topics.subscribe("news", "c")
    assert (ids(), subscribed()) == ([], [])


def test_async_twins(store: ChannelStore, topics: EventHubStore) -> None:
    async def use() -> Any:
        await store.aadd_channel("c", "chat")
        await topics.asubscribe("news", "c")
        await store.amerge_state("c", "a", 1)
        return await topics.aget_channel_ids_for_topic("news"), await store.aget_state("c")

    assert async_to_sync(use)() == (["c"], {"a": 1})


# -- leases (fault 21) -------------------------------------------------------------------------------------------------


def test_channels_of_a_dead_server_go_and_live_ones_never_do(store: ChannelStore, topics: EventHubStore) -> None:
    store.add_channel("for ever", "chat")
    for holder in ("dead", "alive"):
        for number in range(2):
            store.add_channel(f"{holder} {number}", "chat", holder=holder)
            topics.subscribe("news", f"{holder} {number}")
    assert store.sweep() == 0
    for minutes in range(1, 8):
        # Seven leases long, and each renewed in time.
        with travel(timedelta(seconds=minutes * 50)):
            assert store.renew_leases("alive") == 2
            assert store.sweep() == (2 if minutes == 2 else 0)
    assert ids() == ["alive 0", "alive 1", "for ever"]
    assert subscribed() == [("alive 0", "news"), ("alive 1", "news")]
    assert store.renew_leases("dead") == 0


def test_a_lease_is_as_long_as_the_setting_says(store: ChannelStore, settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "CHANNEL_LEASE": "5min"}
    made = store.add_channel("c", "chat", holder="me")
    assert made.lease_until is not None
    assert made.lease_until - made.created_at == timedelta(minutes=5)
    assert store.renew_leases("me", lease="1s") == 1
    with travel(timedelta(seconds=2)):
        sweep()
    assert ids() == []


def test_what_a_server_asks_again_and_again_costs_one_statement(
    store: ChannelStore, topics: EventHubStore, statements: Counter
) -> None:
    for number in range(5):
        store.add_channel(f"c{number}", "chat", holder="me")
        topics.subscribe(f"t{number % 2}", f"c{number}")
    with statements() as renewed:
        assert store.renew_leases("me") == 5
    with statements() as read:
        assert {topic: len(found) for topic, found in subscribers(store.using, ["t0", "t1"], "me").items()} == {
            "t0": 3,
            "t1": 2,
        }
    with statements() as swept:
        assert store.sweep() == 0
    assert [len(data_statements(seen)) for seen in (renewed, read, swept)] == [1, 1, 1]


def test_a_holder_that_comes_back_while_it_is_swept_has_lost(
    store: ChannelStore, topics: EventHubStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is taken is taken: it cannot lose its topics and live on without them."""
    store.add_channel("c", "chat", holder="late")
    topics.subscribe("news", "c")
    original, renewed = ChannelQuerySet.remove, []

    def renewed_before(self: ChannelQuerySet, *arguments: Any) -> int:
        renewed.append(store.renew_leases("late"))
        return original(self, *arguments)

    monkeypatch.setattr(ChannelQuerySet, "remove", renewed_before)
    with travel(timedelta(minutes=2)):
        assert store.sweep() == 1
    assert (renewed, ids(), subscribed()) == ([0], [], [])


def test_a_sweep_that_died_is_taken_up_by_the_next(store: ChannelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add_channel("c", "chat", holder="dead")

    def die(*arguments: Any) -> int:
        raise OperationalError("gone")

    with travel(timedelta(minutes=2)):
        with monkeypatch.context() as patch:
            patch.setattr(ChannelQuerySet, "remove", die)
            with pytest.raises(CommandError, match="The database failed: gone"):
                call_command("sweep_channels")
        out = StringIO()
        call_command("sweep_channels", stdout=out)
    assert (out.getvalue(), ids()) == ("1 channels and 0 old events removed\n", [])


def test_many_are_swept_in_batches(store: ChannelStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("service", "querysets"):
        monkeypatch.setattr(f"pikku_storage.channels.{module}.BATCH", 2)
    for number in range(5):
        store.add_channel(f"c{number}", "chat", holder="dead")
    with travel(timedelta(minutes=2)):
        assert store.sweep() == 5


# -- MongoDB -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(connection.vendor != "mongodb", reason="about MongoDB")
def test_documents_are_those_of_the_contract(store: ChannelStore, topics: EventHubStore) -> None:
    """Contract tables.md §3, 1-2: what the TypeScript packages write is read, and what we write is what they read."""
    database = connection.database
    store.add_channel("c", "chat", {"room": 1}, pikku_user_id="ada")
    topics.subscribe("news", "c")
    written = database["channels"].find_one({"_id": "c"})
    assert written.keys() >= {"_id", "channelName", "createdAt", "openingData", "pikkuUserId", "lastWire"}
    assert (written["openingData"], "state" in written) == ({"room": 1}, False)
    store.set_state("c", {"a": {"b": 1}})
    assert database["channels"].find_one({"_id": "c"})["state"] == {"a": {"b": 1}}
    store.clear_state("c")
    assert "state" not in database["channels"].find_one({"_id": "c"})
    (row,) = database["channel_subscriptions"].find({})
    assert row.keys() == {"_id", "channelId", "topic"}

    at = written["createdAt"]
    database["channels"].insert_one(
        {"_id": "theirs", "channelName": "chat", "openingData": {}, "createdAt": at, "lastWire": at, "state": {"n": 1}}
    )
    database["channel_subscriptions"].insert_one({"channelId": "theirs", "topic": "news"})
    assert store.get_channel("theirs").lease_until is None
    assert topics.get_channel_ids_for_topic("news") == ["c", "theirs"]
    assert topics.subscribe("news", "theirs") is True
    store.merge_state("theirs", "m", 2)
    assert store.get_state("theirs") == {"n": 1, "m": 2}
    with travel(timedelta(days=1)):
        assert store.sweep() == 0
    assert topics.unsubscribe("news", "theirs") is True
    store.remove_channels(["theirs", "c"])
    assert database["channels"].count_documents({}) == database["channel_subscriptions"].count_documents({}) == 0
