"""The ASGI endpoint: who may connect, subscribe and publish, and what is said when something is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import AnonymousUser, User
from django.db import OperationalError
from django.test import Client
from pytest_django.fixtures import Settings

from example_project.live.rooms import RoomEndpoint
from pikku_storage.channels.asgi import ChannelEndpoint, Connection, WithChannels
from pikku_storage.channels.hub import EventHub
from pikku_storage.channels.models import Channel, ChannelSubscription
from pikku_storage.channels.service import EventHubStore
from pikku_storage.json import Json

pytestmark = pytest.mark.django_db(transaction=True)
LOBBY = "room:lobby"


@pytest.fixture(autouse=True)
def local(settings: Settings) -> None:
    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "CHANNEL_TRANSPORT": "local"}


class Asking(RoomEndpoint):
    """Has a message of its own, and fails when it is told to."""

    session_interval = "20ms"
    most_topics = 2
    most_bytes = 200

    async def received(self, connection: Connection, message: Any) -> Json:
        """`{"type": "whoami"}`."""
        if message.get("type") == "fail":
            raise RuntimeError("no")
        if message.get("type") == "whoami":
            return connection.user_id
        return await super().received(connection, message)


class Far:
    """The server's side of an ASGI application."""

    def __init__(self, application: Any, scope: dict[str, Any]) -> None:
        self.application = cast("Any", ApplicationCommunicator)(application, scope)

    async def tell(self, kind: str, **values: Any) -> None:
        """What the server says."""
        await self.application.send_input({"type": kind, **values})

    async def told(self) -> dict[str, Any]:
        """What the application says."""
        message: dict[str, Any] = await self.application.receive_output(5)
        return message


class Socket(Far):
    """A client."""

    async def open(self) -> dict[str, Any]:
        """Shake hands; what is said first, or the refusal."""
        await self.tell("websocket.connect")
        first = await self.told()
        return first if first["type"] == "websocket.close" else await self.heard()

    async def heard(self) -> dict[str, Any]:
        """The next message, or the end."""
        found = await self.told()
        message: dict[str, Any] = json.loads(found["text"]) if found["type"] == "websocket.send" else found
        return message

    async def ask(self, text: str | bytes | None = None, **message: Any) -> dict[str, Any]:
        """The answer to a text, to bytes, or to a message."""
        kind = "bytes" if isinstance(text, bytes) else "text"
        await self.tell("websocket.receive", **{kind: json.dumps(message) if text is None else text})
        return await self.heard()

    async def leave(self) -> None:
        """Close it from this side."""
        await self.tell("websocket.disconnect", code=1000)
        await self.application.wait(5)


def cookie_of(name: str) -> bytes:
    browser = Client()
    browser.force_login(User.objects.get_or_create(username=name)[0])
    return f"sessionid={browser.cookies['sessionid'].value}".encode()


def scope_of(cookie: bytes = b"", *, origin: bytes | None = None, path: str = "/live/", **more: Any) -> dict[str, Any]:
    headers = [(b"host", b"localhost:8000"), (b"cookie", cookie)]
    headers += [(b"origin", origin)] if origin is not None else []
    return {"type": "websocket", "path": path, "headers": headers, **more}


def served(work: Callable[..., Awaitable[None]], *, endpoint: type[ChannelEndpoint] = Asking) -> None:
    """Let people talk to an endpoint, and stop it."""
    cookies = [cookie_of(name) for name in ("ada", "eve")]

    async def run() -> None:
        hub = EventHub()
        application = WithChannels(_nothing, {"/live/": endpoint()}, hub)
        try:
            async with asyncio.timeout(20):
                await work(application, *cookies)
        finally:
            await hub.stop()

    async_to_sync(run)()
    assert not Channel.everyones.exists()
    assert not ChannelSubscription.everyones.exists()


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 404, "headers": []})


def test_people_talk_in_rooms_and_reach_nothing_else() -> None:
    async def work(application: Any, of_ada: bytes, of_eve: bytes) -> None:
        ada, eve = Socket(application, scope_of(of_ada)), Socket(application, scope_of(of_eve))
        assert (await ada.open())["type"] == (await eve.open())["type"] == "ready"
        forbidden = {"type": "error", "error": "forbidden"}
        # Only rooms that there are, and nobody else's inbox.
        user_id = str((await User.objects.aget(username="ada")).pk)
        for topic in ("room:cellar", f"user:{user_id}", "%"):
            assert await eve.ask(type="subscribe", topic=topic) == {**forbidden, "topic": topic}
        assert await ada.ask(type="publish", topic=LOBBY, data="x", id=1) == {**forbidden, "topic": LOBBY, "id": 1}
        for each in (ada, eve):
            assert await each.ask(type="subscribe", topic=LOBBY) == {"type": "subscribed", "topic": LOBBY}
        assert await ada.ask(type="publish", topic=LOBBY, data={"author": "eve"}) == {**forbidden, "topic": LOBBY}
        assert await ada.ask(type="publish", topic=LOBBY, data="hi") == {"type": "published", "topic": LOBBY}
        assert (await eve.heard())["data"] == {"author": "ada", "text": "hi"}
        assert await eve.ask(type="unsubscribe", topic=LOBBY) == {"type": "unsubscribed", "topic": LOBBY}
        # What is for Ada reaches Ada.
        await EventHubStore().apublish(f"user:{user_id}", None, "for you")
        assert (await ada.heard())["data"] == "for you"
        assert await eve.application.receive_nothing(0.05)
        # An inbox and a room are all that this endpoint allows.
        assert await ada.ask(type="subscribe", topic="room:kitchen") == {**forbidden, "topic": "room:kitchen"}
        await ada.leave()
        await eve.leave()

    served(work)


def test_what_is_no_message_is_answered_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(application: Any, of_ada: bytes, of_eve: bytes) -> None:
        ada = Socket(application, scope_of(of_ada))
        await ada.open()
        bad = {"type": "error", "error": "bad-message"}
        for text in ("no JSON", "[1]", b"\xff\xfe", '{"type":"subscribe"}', '{"type":"subscribe","topic":7}'):
            assert (await ada.ask(text)).items() >= bad.items()
        assert await ada.ask(b'{"type":"whoami"}') == {
            "type": "answer",
            "data": str((await User.objects.aget(username="ada")).pk),
        }
        assert await ada.ask(type="unknown") == {"type": "error", "error": "forbidden"}
        with monkeypatch.context() as patch:
            patch.setattr(EventHubStore, "publish", _fails)
            await ada.ask(type="subscribe", topic=LOBBY)
            found = await ada.ask(type="publish", topic=LOBBY, data="x")
        assert found == {"type": "error", "error": "unavailable", "topic": LOBBY}
        assert await ada.ask("x" * 201) == {"type": "websocket.close", "code": 1009}
        await ada.application.wait(5)

    served(work)


def _fails(*arguments: Any) -> None:
    raise OperationalError("gone")


def test_an_endpoint_that_fails_ends_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def work(application: Any, of_ada: bytes, of_eve: bytes) -> None:
        ada, eve = Socket(application, scope_of(of_ada)), Socket(application, scope_of(of_eve))
        await ada.open()
        await eve.open()
        assert await ada.ask(type="fail") == {"type": "websocket.close", "code": 1011}
        assert (await eve.ask(type="whoami"))["type"] == "answer"
        await eve.leave()

    served(work)
    assert "A connection of rooms failed" in caplog.text


def test_who_is_not_signed_in_or_comes_from_elsewhere_is_refused() -> None:
    refused = {"type": "websocket.close", "code": 4403}

    async def work(application: Any, of_ada: bytes, of_eve: bytes) -> None:
        for scope in (
            scope_of(),
            scope_of(b"sessionid=nobody"),
            scope_of(of_ada, origin=b"https://evil.example"),
            scope_of(of_ada, path="/elsewhere/"),
            scope_of(of_ada, user=AnonymousUser()),
        ):
            assert await Socket(application, scope).open() == refused
        # Django Channels' middleware has looked it up.
        known = await User.objects.aget(username="eve")
        client = Socket(application, scope_of(user=known, origin=b"http://localhost:8000"))
        assert (await client.open())["type"] == "ready"
        assert (await client.ask(type="whoami"))["data"] == str(known.pk)
        await client.leave()

    served(work)


def test_by_default_nobody_subscribes_or_publishes() -> None:
    async def work(application: Any, of_ada: bytes, of_eve: bytes) -> None:
        ada = Socket(application, scope_of(of_ada))
        await ada.open()
        for kind in ("subscribe", "publish"):
            assert (await ada.ask(type=kind, topic=LOBBY))["error"] == "forbidden"
        await ada.leave()

    served(work, endpoint=ChannelEndpoint)


def test_who_signs_out_is_disconnected() -> None:
    async def work(application: Any, of_ada: bytes, of_eve: bytes) -> None:
        ada, eve = Socket(application, scope_of(of_ada)), Socket(application, scope_of(of_eve))
        await ada.open()
        await eve.open()
        await sync_to_async(lambda: User.objects.filter(username="ada").update(is_active=False))()
        assert await ada.heard() == {"type": "websocket.close", "code": 4403}
        assert (await eve.ask(type="whoami"))["type"] == "answer"
        await eve.leave()

    served(work)


def test_a_server_that_ends_says_so() -> None:
    async def work(application: Any, of_ada: bytes, of_eve: bytes) -> None:
        life = Far(application, {"type": "lifespan"})
        await life.tell("lifespan.startup")
        assert await life.told() == {"type": "lifespan.startup.complete"}
        ada = Socket(application, scope_of(of_ada))
        await ada.open()
        await life.tell("lifespan.shutdown")
        assert await ada.heard() == {"type": "websocket.close", "code": 1012}
        assert await life.told() == {"type": "lifespan.shutdown.complete"}
        assert (await Far(application, {"type": "http"}).told())["status"] == 404

    served(work)


def test_the_pages_of_the_rooms() -> None:
    browser = Client()
    assert browser.get("/live/").status_code == 302
    browser.force_login(User.objects.create_user("ada"))
    assert b'data-topic="room:kitchen"' in browser.get("/live/rooms/kitchen/").content
    assert browser.get("/live/rooms/cellar/").status_code == browser.post("/live/rooms/cellar/say/").status_code == 404
    assert browser.post("/live/rooms/lobby/say/", {"text": "hi"}).status_code == 204
    assert browser.post("/live/rooms/lobby/say/", {"text": ""}).status_code == 422
