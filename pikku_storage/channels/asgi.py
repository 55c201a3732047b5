"""WebSockets: an ASGI application that is a client's side of the event hub.

It needs no other package, and works within the routers and middleware of Django Channels as well.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from django.db import Error as DatabaseError

from pikku_storage.channels.events import Event, parse
from pikku_storage.channels.hub import BROKEN, CLOSED, STOPPED, TOO_SLOW, EventHub
from pikku_storage.channels.sessions import origin_is_ours, user_of
from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.exceptions import ForbiddenError, PayloadError
from pikku_storage.ids import new_id
from pikku_storage.json import Json

logger = logging.getLogger(__name__)

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

GONE, TOO_LARGE, FAILED = 1000, 1009, 1011
FORBIDDEN = 4403
"""Close codes; 4403 is what HTTP has as 403."""
CODES = {TOO_SLOW: 1013, BROKEN: FAILED, STOPPED: 1012, CLOSED: FORBIDDEN}
CLOSING = 2.0
"""Seconds that a client has to take note of the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One socket. Its channel's id is made here, and never taken from a client."""

    channel_id: str
    user: Any
    """The Django user of the session, or an anonymous one."""
    scope: Scope = field(repr=False)
    """ASGI's; its headers hold the cookie of the session."""
    topics: set[str] = field(default_factory=set)

    @property
    def user_id(self) -> str | None:
        """The id of the user, or `None`."""
        return str(self.user.pk) if self.user.is_authenticated else None


class ChannelEndpoint:
    """Subclass it, and say who may do what: by default whoever is signed in may connect, and nobody may subscribe or
    publish. One endpoint serves any number of connections."""

    channel_name = "websocket"
    """The name that its channels have in the table."""
    most_topics = 100
    """How many topics one connection may subscribe to."""
    most_bytes = 64 * 1024
    """How large a message of a client may be."""
    session_interval: Duration = "1min"
    """How often the session is looked at again: who signed out, or was made inactive, is disconnected."""

    def __init__(self, hub: EventHub | None = None) -> None:
        self.hub = hub

    # -- what you decide -----------------------------------------------------------------------------------------------

    async def allow_connect(self, connection: Connection) -> None:
        """Raise `ForbiddenError` to refuse."""
        if connection.user_id is None:
            raise ForbiddenError("Sign in first")

    async def allow_subscribe(self, connection: Connection, topic: str) -> None:
        """Raise `ForbiddenError` to refuse, as it does by default."""
        raise ForbiddenError("Not authorized to subscribe to this topic")

    async def allow_publish(self, connection: Connection, topic: str, data: Json) -> Json:
        """What is published of what a client sent; raise `ForbiddenError` to refuse, as it does by default."""
        raise ForbiddenError("Not authorized to publish to this topic")

    async def opening_data(self, connection: Connection) -> Json:
        """What the channel is opened with."""
        return {"path": connection.scope["path"]}

    async def connected(self, connection: Connection) -> None:
        """Called when the channel is there, before the client is told."""

    async def received(self, connection: Connection, message: Mapping[str, Json]) -> Json:
        """Called with a message of a type of your own; what it answers is sent back. By default it is refused."""
        raise ForbiddenError("Unknown type of message")

    # -- what it does --------------------------------------------------------------------------------------------------

    async def subscribe(self, connection: Connection, topic: str) -> bool:
        """Let a connection hear of a topic, without asking whether it may."""
        done = await self._hub.subscribe(topic, connection.channel_id)
        if done:
            connection.topics.add(topic)
        return done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification: `websocket` and `lifespan`."""
        if scope["type"] == "lifespan":
            await live(self._hub, receive, send)
            return
        await receive()
        connection = await self._admit(scope)
        if connection is None:
            await send({"type": "websocket.close", "code": FORBIDDEN})
            return
        await send({"type": "websocket.accept"})
        await _Conversation(self, self._hub, connection, send).hold(receive)

    async def _admit(self, scope: Scope) -> Connection | None:
        # A browser sends the cookie of our session also with what a page of somebody else's asks for.
        if not origin_is_ours(scope):
            return None
        await self._hub.start()
        connection = Connection(channel_id=new_id(), user=await user_of(scope, self._hub.ask), scope=scope)
        try:
            await self.allow_connect(connection)
        except ForbiddenError:
            return None
        return connection

    @property
    def _hub(self) -> EventHub:
        if self.hub is None:
            self.hub = EventHub()
        return self.hub


class _Conversation:
    """What is said on one connection."""

    def __init__(self, endpoint: ChannelEndpoint, hub: EventHub, connection: Connection, send: Send) -> None:
        self._endpoint = endpoint
        self._hub = hub
        self._connection = connection
        self._send = send
        self._sending = asyncio.Lock()
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def hold(self, receive: Receive) -> None:
        """Until either side ends it."""
        endpoint, connection = self._endpoint, self._connection
        work: list[asyncio.Task[None]] = []
        try:
            await self._hub.open(
                connection.channel_id,
                endpoint.channel_name,
                self._event,
                self._dropped,
                opening_data=await endpoint.opening_data(connection),
                user_id=connection.user_id,
            )
            await endpoint.connected(connection)
            await self._say({"type": "ready", "channelId": connection.channel_id})
            work = [asyncio.create_task(self._read(receive)), asyncio.create_task(self._watch())]
            ends: list[asyncio.Future[Any]] = [*work, self._over]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except Exception:  # it is this connection's end, and no other's
            logger.exception("A connection of %s failed", endpoint.channel_name)
            self._end(FAILED)
        finally:
            for task in work:
                task.cancel()
            for ended in await asyncio.gather(*work, return_exceptions=True):
                if isinstance(ended, Exception):
                    logger.error("A connection of %s failed", endpoint.channel_name, exc_info=ended)
                    self._end(FAILED)
            await self._hub.close(connection.channel_id)
            await self._close()

    async def _close(self) -> None:
        code = self._over.result() if self._over.done() else GONE
        if code == GONE:
            return
        # Whatever comes of it, the connection is over.
        with suppress(Exception):
            async with asyncio.timeout(CLOSING):
                await self._send({"type": "websocket.close", "code": code})

    def _end(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    async def _dropped(self, reason: str) -> None:
        self._end(CODES[reason])

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(to_milliseconds(self._endpoint.session_interval) / 1000)
            if self._over.done():
                return
            try:
                user = await user_of(self._connection.scope, self._hub.ask)
            except DatabaseError:
                # Nobody loses a connection because the database is away for a moment.
                continue
            if user.pk != self._connection.user.pk:
                self._end(FORBIDDEN)
                return

    # -- saying --------------------------------------------------------------------------------------------------------

    async def _event(self, event: Event) -> None:
        await self._say({"type": "event", "topic": event.topic, "data": event.data})

    async def _say(self, message: Mapping[str, Json]) -> None:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        async with self._sending:
            await self._send({"type": "websocket.send", "text": text})

    # -- hearing -------------------------------------------------------------------------------------------------------

    async def _read(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self._end(GONE)
                return
            # Of the two one is there; the other may be null.
            text = message.get("text")
            data = (message.get("bytes") or b"") if text is None else text.encode()
            if len(data) > self._endpoint.most_bytes:
                self._end(TOO_LARGE)
                return
            answer = await self._answer(data)
            if answer is not None:
                await self._say(answer)

    async def _answer(self, data: bytes) -> Mapping[str, Json] | None:
        try:
            message = parse(data)
        except ValueError:
            return {"type": "error", "error": "bad-message"}
        # So that a client knows what an answer is to.
        about: dict[str, Json] = {name: message[name] for name in ("id", "topic") if name in message}
        try:
            answer = await self._do(message)
        except ForbiddenError:
            return {"type": "error", "error": "forbidden", **about}
        except PayloadError:
            return {"type": "error", "error": "bad-message", **about}
        except DatabaseError:
            logger.warning("A message on %s failed", self._endpoint.channel_name, exc_info=True)
            return {"type": "error", "error": "unavailable", **about}
        return None if answer is None else {**about, **answer}

    async def _do(self, message: Mapping[str, Json]) -> Mapping[str, Json] | None:
        endpoint, connection, kind = self._endpoint, self._connection, message.get("type")
        if kind not in {"subscribe", "unsubscribe", "publish"}:
            answer = await endpoint.received(connection, message)
            return None if answer is None else {"type": "answer", "data": answer}
        topic = message.get("topic")
        if not isinstance(topic, str):
            raise PayloadError("$.topic", "must be a text")
        if kind == "subscribe":
            await endpoint.allow_subscribe(connection, topic)
            if len(connection.topics - {topic}) >= endpoint.most_topics:
                raise ForbiddenError("Too many topics")
            done = await endpoint.subscribe(connection, topic)
            return {"type": "subscribed"} if done else {"type": "error", "error": "unavailable"}
        if kind == "unsubscribe":
            connection.topics.discard(topic)
            await self._hub.unsubscribe(topic, connection.channel_id)
            return {"type": "unsubscribed"}
        data = await endpoint.allow_publish(connection, topic, message.get("data"))
        await self._hub.publish(topic, connection.channel_id, data)
        return {"type": "published"}


class WithChannels:
    """An ASGI application: WebSockets go to the endpoint of their path, everything else to `http`, which is Django's.

    The endpoints share one hub. It listens when the server begins, and when that ends in order, its channels are
    removed.
    """

    def __init__(
        self, http: Application, endpoints: Mapping[str, ChannelEndpoint], hub: EventHub | None = None
    ) -> None:
        self._http = http
        self._endpoints = endpoints
        self._hub = EventHub() if hub is None else hub
        for endpoint in endpoints.values():
            endpoint.hub = self._hub if endpoint.hub is None else endpoint.hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the ASGI specification."""
        if scope["type"] == "lifespan":
            await live(self._hub, receive, send)
        elif scope["type"] != "websocket":
            await self._http(scope, receive, send)
        elif scope["path"] in self._endpoints:
            await self._endpoints[scope["path"]](scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": FORBIDDEN})


async def live(hub: EventHub, receive: Receive, send: Send) -> None:
    """Start and stop a hub with its server: the `lifespan` of ASGI."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await hub.start()
            await send({"type": "lifespan.startup.complete"})
        else:
            await hub.stop()
            await send({"type": "lifespan.shutdown.complete"})
            return
