"""The event hub: who hears of what, in one process and between several, and what one bad socket costs the others."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, transaction
from pytest_django.fixtures import Settings

from pikku_storage.channels import reads
from pikku_storage.channels.events import Event
from pikku_storage.channels.hub import EventHub
from pikku_storage.channels.models import Channel, ChannelEvent
from pikku_storage.channels.querysets import ChannelEventQuerySet, ChannelQuerySet
from pikku_storage.channels.service import ChannelStore, EventHubStore
from pikku_storage.channels.tasks import sweep
from pikku_storage.channels.transports import transport
from pikku_storage.channels.transports.polling import PollingTransport
from pikku_storage.db.clock import travel
from pikku_storage.exceptions import ChannelError, ChannelExistsError, PayloadError
from tests.conformance.support import DATABASE, connection, needs_transactions

pytestmark = pytest.mark.django_db(transaction=True)


class Client:
    """The far end of a socket; keeps what it is told."""

    def __init__(self, *, broken: bool = False, slow: bool = False) -> None:
        self.heard: list[Any] = []
        self.dropped: list[str] = []
        self._broken, self._slow = broken, slow

    async def send(self, event: Event) -> None:
        """As a connection does it."""
        if self._broken:
            raise ConnectionError("gone")
        if self._slow:
            await asyncio.sleep(60)
        self.heard.append(event.data)

    async def drop(self, reason: str) -> None:
        """As a connection does it."""
        self.dropped.append(reason)


@pytest.fixture(autouse=True)
def quick(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {
        **settings.PIKKU_STORAGE,
        "CHANNEL_TRANSPORT": "local",
        "CHANNEL_POLL_INTERVAL": "20ms",
        # Redis is shared with other runs of the tests.
        "CHANNEL_NAMESPACE": f"test_{os.getpid()}",
    }


def running(work: Callable[..., Awaitable[Any]], *hubs: EventHub) -> Any:
    """Do the work, with hubs that are stopped after it."""

    async def run() -> Any:
        made = hubs or (EventHub(),)
        try:
            return await work(*made)
        finally:
            for hub in made:
                await hub.stop()

    return async_to_sync(run)()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


async def joined(hub: EventHub, channel_id: str, *topics: str, **options: bool) -> Client:
    """A client whose channel hears of these topics."""
    client = Client(**options)
    await hub.open(channel_id, "chat", client.send, client.drop, user_id="ada")
    for topic in topics:
        assert await hub.subscribe(topic, channel_id)
    return client


def ids() -> list[str]:
    return sorted(Channel.everyones.values_list("channel_id", flat=True))


@pytest.mark.contract("CN-08")
def test_subscribers_hear_and_the_sender_does_not() -> None:
    async def work(hub: EventHub) -> None:
        ada, eve, max_ = [await joined(hub, name, "news") for name in ("ada", "eve", "max")]
        await hub.unsubscribe("news", "max")
        await hub.publish("news", "ada", {"n": 1})
        await hub.publish("nobody's", None, {"n": 2})
        await hub.publish("news", None, {"n": 3})
        await until(lambda: len(eve.heard) == 2)
        assert (ada.heard, eve.heard, max_.heard) == ([{"n": 3}], [{"n": 1}, {"n": 3}], [])
        made = await sync_to_async(ChannelStore().get_channel)("ada")
        assert (made.holder, made.pikku_user_id) == (hub.id, "ada")
        await hub.close("eve")
        await hub.close("eve")
        await hub.publish("news", None, {"n": 4})
        await until(lambda: len(ada.heard) == 2)
        assert (len(eve.heard), eve.dropped, hub.size) == (2, [], 2)
        with pytest.raises(ChannelExistsError):
            await joined(hub, "ada")
        with pytest.raises(PayloadError):
            await hub.publish("news", None, {"at": timedelta()})

    running(work)
    assert ids() == []


def test_a_socket_that_breaks_or_is_slow_is_dropped_and_no_other(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "CHANNEL_QUEUE_SIZE": 5}

    async def work(hub: EventHub) -> None:
        good = await joined(hub, "good", "news")
        broken, slow = await joined(hub, "broken", "news", broken=True), await joined(hub, "slow", "news", slow=True)
        for number in range(10):
            await hub.publish("news", None, number)
            await until(lambda: len(good.heard) > number)  # noqa: B023 - waited for at once
        await until(lambda: hub.size == 1)
        assert good.heard == list(range(10))
        assert (broken.dropped, slow.dropped, good.dropped) == (["broken"], ["too-slow"], [])
        stored = sync_to_async(ids)
        async with asyncio.timeout(10):
            while await stored() != ["good"]:
                await asyncio.sleep(0.01)

    running(work)


@pytest.mark.parametrize("name", ["auto", "polling"])
def test_events_cross_between_hubs(settings: Settings, name: str) -> None:
    """Each hub has a transport of its own, as if it were another process. On PostgreSQL `auto` is NOTIFY."""
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "CHANNEL_TRANSPORT": name}
    large = "x" * 9000

    async def work(here: EventHub, there: EventHub) -> None:
        near, far = await joined(here, "near", "news"), await joined(there, "far", "news")
        await here.publish("news", "near", {"text": "🦀"})
        await there.publish("news", "far", [None, 1.5])
        await sync_to_async(EventHubStore().publish)("news", None, large)
        await until(lambda: len(far.heard) == len(near.heard) == 2)
        assert (near.heard, far.heard) == ([[None, 1.5], large], [{"text": "🦀"}, large])
        # Subscribed by another process: the rows decide.
        await sync_to_async(EventHubStore().subscribe)("more", "far")
        await here.publish("more", None, "more")
        await until(lambda: far.heard[-1] == "more")

    running(work, EventHub(), EventHub())
    kept = ChannelEvent.objects.count()
    assert kept == (1 if name == "auto" and connection.vendor == "postgresql" else 4)
    sweep()
    assert ChannelEvent.objects.count() == kept
    with travel(timedelta(minutes=2)):
        sweep()
    assert ChannelEvent.objects.count() == 0


def test_a_real_redis_carries_events(settings: Settings, redis_url: str) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "CHANNEL_TRANSPORT": "auto", "CHANNEL_REDIS_URL": redis_url}

    async def work(here: EventHub, there: EventHub) -> None:
        far = await joined(there, "far", "news")
        await here.start()
        await here.publish("news", None, {"text": "🦀" * 5000})
        await until(lambda: far.heard == [{"text": "🦀" * 5000}])

    running(work, EventHub(), EventHub())
    assert ChannelEvent.objects.count() == 0


@needs_transactions
@pytest.mark.parametrize("name", ["auto", "polling", "local"])
def test_an_event_takes_part_in_the_transaction(settings: Settings, name: str) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "CHANNEL_TRANSPORT": name}

    def publish(text: str, *, commits: bool) -> None:
        with transaction.atomic(using=DATABASE):
            EventHubStore().publish("news", None, text)
            transaction.set_rollback(not commits, using=DATABASE)

    async def work(hub: EventHub) -> None:
        client = await joined(hub, "c", "news")
        await sync_to_async(publish)("never", commits=False)
        await sync_to_async(publish)("now", commits=True)
        await until(lambda: bool(client.heard))
        assert client.heard == ["now"]

    running(work)


def test_a_listener_that_loses_its_server_connects_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "CHANNEL_TRANSPORT": "polling"}
    original, fails = ChannelEventQuerySet.ids_of_late, [True]

    def sometimes(self: ChannelEventQuerySet, window: timedelta) -> list[str]:
        if fails:
            fails.pop()
            raise OperationalError("gone")
        return original(self, window)

    async def work(hub: EventHub) -> None:
        client = await joined(hub, "c", "news")
        with monkeypatch.context() as patch:
            patch.setattr(ChannelEventQuerySet, "ids_of_late", sometimes)
            await until(lambda: not fails)
            # What is published while nobody listens is lost, and nothing else.
            async with asyncio.timeout(10):
                while not client.heard:
                    await hub.publish("news", None, "back")
                    await asyncio.sleep(0.02)

    running(work)
    assert "Lost what events come from" in caplog.text


@pytest.mark.skipif(connection.vendor != "postgresql", reason="about PostgreSQL")
def test_a_listener_whose_connection_postgresql_ended_connects_again(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "CHANNEL_TRANSPORT": "notify"}

    def end_it() -> int:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN %'"
            )
            return int(cursor.fetchone()[0])

    async def work(hub: EventHub) -> None:
        client = await joined(hub, "c", "news")
        assert await sync_to_async(end_it)() == 1
        async with asyncio.timeout(10):
            while not client.heard:
                await hub.publish("news", None, "back")
                await asyncio.sleep(0.02)

    running(work)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="about PostgreSQL")
def test_what_typescript_notifies_is_heard(settings: Settings) -> None:
    """Contract services.md §10; and what is no event at all is left out."""
    settings.PIKKU_STORAGE = {
        **settings.PIKKU_STORAGE,
        "CHANNEL_TRANSPORT": "notify",
        "CHANNEL_NAMESPACE": "pikku_eventhub",
    }

    def notify() -> None:
        with connection.cursor() as cursor:
            for text in ("no JSON", "[]", '{"topic":7}', '{"instanceId":"i","topic":"news","data":{"n":1}}'):
                cursor.execute("SELECT pg_notify('pikku_eventhub', %s)", [text])

    async def work(hub: EventHub) -> None:
        client = await joined(hub, "c", "news")
        await sync_to_async(notify)()
        await until(lambda: bool(client.heard))
        assert client.heard == [{"n": 1}]

    running(work)


def test_a_hub_keeps_what_lives_and_agrees_with_the_rows(caplog: pytest.LogCaptureFixture) -> None:
    """Fault 21: a process that was frozen for longer than its lease, and rows that were left behind."""

    def meanwhile(holder: str) -> None:
        with travel(timedelta(minutes=2)):
            assert ChannelStore().sweep() == 2
        ChannelStore().add_channel("left behind", "chat", holder=holder)
        ChannelStore().add_channel("dead", "chat", holder="dead")

    async def work(hub: EventHub) -> None:
        clients = [await joined(hub, name, "news") for name in ("a", "b")]
        await hub.keep()
        await sync_to_async(meanwhile)(hub.id)
        with travel(timedelta(seconds=50)):
            await hub.keep()
        with travel(timedelta(seconds=100)):
            await hub.keep()
        assert await sync_to_async(ids)() == ["a", "b"]
        await hub.publish("news", None, 1)
        await until(lambda: [client.heard for client in clients] == [[1], [1]])

    running(work)
    assert "had been swept; it is back" in caplog.text
    assert ids() == []


def test_a_channel_that_is_closed_loses_its_socket_and_does_not_come_back(audited: list[Any]) -> None:
    async def work(hub: EventHub) -> None:
        store = ChannelStore()
        ada, eve = await joined(hub, "ada", "news"), await joined(hub, "eve", "news")
        assert await store.aclose_channel("ada", by="root", reason="noisy")
        assert not await store.aclose_channel("ada", by="root"), "it is closing"
        await hub.publish("news", None, 1)
        await until(lambda: eve.heard == [1])
        await hub.keep()
        await until(lambda: ada.dropped == ["closed"])
        await hub.keep()
        assert (ada.heard, eve.dropped, hub.size) == ([], [], 1)
        # Its row goes after its socket.
        async with asyncio.timeout(10):
            while await sync_to_async(ids)() != ["eve"]:
                await asyncio.sleep(0.01)

    running(work)
    (event,) = audited
    assert (event.type, event.actor.user_id) == ("channel.closed", "root")
    assert event.metadata == {"channelId": "ada", "userId": "ada", "reason": "noisy"}


def test_closing_a_channel_that_no_process_looks_after() -> None:
    store = ChannelStore()
    store.add_channel("forever", "chat")
    store.add_channel("orphan", "chat", holder="a process that died")
    assert [store.close_channel(name) for name in ("forever", "orphan", "unknown")] == [True, True, False]
    assert ids() == ["orphan"], "it waits for its process"
    with travel(timedelta(hours=1)):
        assert store.sweep() == 1
    assert ids() == []


def test_a_database_that_fails_costs_an_event_and_no_socket(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> None:
        raise OperationalError("gone")

    async def work(hub: EventHub) -> None:
        stays, goes = await joined(hub, "stays", "news"), await joined(hub, "goes", "news")
        with monkeypatch.context() as patch:
            patch.setattr(reads, "subscribers", fail)
            patch.setattr(ChannelQuerySet, "remove", fail)
            await hub.publish("news", None, "lost")
            await until(lambda: "were not delivered" in caplog.text)
            await hub.close("goes")
        assert await sync_to_async(ids)() == ["goes", "stays"]
        await hub.keep()
        assert await sync_to_async(ids)() == ["stays"]
        await hub.publish("news", None, "heard")
        await until(lambda: bool(stays.heard))
        assert (stays.heard, goes.heard) == (["heard"], [])

    running(work)
    assert "Channel goes was not removed" in caplog.text


def test_a_hub_that_stops_closes_its_sockets() -> None:
    async def work(hub: EventHub) -> Client:
        client = await joined(hub, "c", "news")
        await hub.stop()
        await hub.stop()
        with pytest.raises(ChannelError, match="is stopped"):
            await joined(hub, "late")
        return client

    assert running(work).dropped == ["stopped"]
    assert ids() == []


def test_the_transport_is_what_the_settings_say(settings: Settings) -> None:
    given = settings.PIKKU_STORAGE
    settings.PIKKU_STORAGE = {**given, "CHANNEL_TRANSPORT": f"{PollingTransport.__module__}.PollingTransport"}
    assert isinstance(transport(DATABASE), PollingTransport)
    settings.PIKKU_STORAGE = {**given, "CHANNEL_TRANSPORT": "redis"}
    with pytest.raises(ImproperlyConfigured, match="no CHANNEL_REDIS_URL"):
        transport(DATABASE)
    if connection.vendor != "postgresql":
        settings.PIKKU_STORAGE = {**given, "CHANNEL_TRANSPORT": "notify"}
        with pytest.raises(ImproperlyConfigured, match="is not PostgreSQL"):
            transport(DATABASE)


@pytest.mark.parametrize("name", ["carrier.pigeon", "redis", "pikku_storage.ids.new_id"])
def test_a_transport_that_cannot_be_used_is_reported(settings: Settings, name: str) -> None:
    def found() -> list[str | None]:
        return [message.id for message in run_checks(tags=["pikku"], databases=[]) if message.id == "pikku.E601"]

    assert found() == []
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "CHANNEL_TRANSPORT": name}
    assert found() == ["pikku.E601"]
