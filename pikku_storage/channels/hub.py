"""The event hub of a server process: it holds sockets, and brings them what is published anywhere (contract
services.md §10).

Rows say who has subscribed to what, so whoever subscribes a channel in whatever process is right at once. An event goes
through the transport also to the sockets of the process that published it: all of them see one order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

from django.db import Error as DatabaseError

from pikku_storage.channels import reads
from pikku_storage.channels.events import Event
from pikku_storage.channels.service import ChannelStore, EventHubStore
from pikku_storage.channels.sockets import Drop, Send, Socket
from pikku_storage.channels.threads import DatabaseThread
from pikku_storage.channels.transports import Transport
from pikku_storage.conf import settings
from pikku_storage.exceptions import ChannelError, ChannelExistsError
from pikku_storage.ids import new_id
from pikku_storage.json import Json

logger = logging.getLogger(__name__)

RENEWALS = 3
"""How often a lease is renewed before it runs out."""
PATIENCE = 5.0
"""Seconds that a first connection waits until the hub listens."""
TOO_SLOW, BROKEN, STOPPED, CLOSED = "too-slow", "broken", "stopped", "closed"


class EventHub:
    """Belongs to the event loop that it is first used in."""

    def __init__(self, using: str | None = None, *, carrier: Transport | None = None) -> None:
        self.channels, self.topics = ChannelStore(using), EventHubStore(using, carrier=carrier)
        # Made by `start`: a server may fork after it has imported the application, and no two processes hold the same.
        self.id = ""
        self._using = self.channels.using
        self._opening: set[str] = set()
        self._sockets: dict[str, tuple[Socket, Drop]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening = asyncio.Event()
        self._running: list[asyncio.Task[None]] = []
        self._is_stopped = False

    @property
    def size(self) -> int:
        """How many sockets it holds."""
        return len(self._sockets)

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, renew and sweep from now on; again does nothing. Comes back when it listens, or after `PATIENCE` if
        the transport is gone; it goes on trying. Raises `ChannelError` if it was stopped."""
        if self._is_stopped:
            raise ChannelError("The event hub is stopped")
        if not self._running:
            self.id = new_id()
            # What sockets ask for waits for one thread, and what keeps them alive for another one.
            self._asked, self._own = DatabaseThread("pikku-sockets"), DatabaseThread("pikku-hub")
            self._running = [asyncio.create_task(self._listen()), asyncio.create_task(self._keep())]
        try:
            await asyncio.wait_for(self._listening.wait(), PATIENCE)
        except TimeoutError:
            logger.warning("The event hub does not hear of events yet")

    async def stop(self) -> None:
        """Drop the sockets and remove their channels, for good."""
        self._is_stopped = True
        if not self._running:
            return
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running = []
        held = [socket for socket in map(self._forget, list(self._sockets)) if socket is not None]
        for _, drop in held:
            self._later(drop(STOPPED))
        while self._tasks:
            await asyncio.gather(*self._tasks)
        try:
            await self._asked(self.channels.remove_channels, [socket.channel_id for socket, _ in held])
        except DatabaseError:
            logger.warning("The channels of this process are left to the sweep", exc_info=True)
        await asyncio.gather(self._asked.close(), self._own.close())

    async def ask(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call something that needs the database, in the thread of what sockets ask for, once the hub is started."""
        return await self._asked(function, *args, **options)

    # -- sockets -------------------------------------------------------------------------------------------------------

    async def open(
        self,
        channel_id: str,
        channel_name: str,
        send: Send,
        drop: Drop,
        *,
        opening_data: Json = None,
        user_id: str | None = None,
    ) -> None:
        """Hold a socket under that id, which is leased to this process. `send` writes an event to it. `drop` closes it,
        and is called once, unless `close` was: the socket is `"too-slow"` or `"broken"`, somebody has `"closed"` the
        channel, or the hub is `"stopped"`.

        Raises `ChannelExistsError` and `PayloadError`.
        """
        await self.start()
        self._opening.add(channel_id)
        try:
            made = await self._asked(
                self.channels.add_channel,
                channel_id,
                channel_name,
                opening_data,
                pikku_user_id=user_id,
                holder=self.id,
            )
        finally:
            self._opening.discard(channel_id)
        socket = Socket(channel_id, channel_name, made.opening_data, user_id, send, settings.CHANNEL_QUEUE_SIZE)
        self._sockets[channel_id] = socket, drop
        socket.writer = asyncio.create_task(self._write(socket))

    async def close(self, channel_id: str) -> None:
        """The socket is closed: remove its channel. Nothing for one that was dropped."""
        if self._forget(channel_id):
            # As a task that `stop` waits for, and that goes on if whoever closes it is cancelled.
            await asyncio.shield(self._later(self._remove(channel_id)))

    async def subscribe(self, topic: str, channel_id: str) -> bool:
        """See `EventHubStore.subscribe`."""
        done = bool(await self._asked(self.topics.subscribe, topic, channel_id))
        if done and channel_id in self._sockets:
            self._sockets[channel_id][0].topics.add(topic)
        return done

    async def unsubscribe(self, topic: str, channel_id: str) -> bool:
        """See `EventHubStore.unsubscribe`."""
        if channel_id in self._sockets:
            self._sockets[channel_id][0].topics.discard(topic)
        return bool(await self._asked(self.topics.unsubscribe, topic, channel_id))

    async def publish(self, topic: str, channel_id: str | None, data: Json) -> None:
        """See `EventHubStore.publish`."""
        await self._asked(self.topics.publish, topic, channel_id, data)

    # -- delivering ----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except Exception:  # whatever it is, one event must not end them all
                logger.exception("The event hub heard something that it cannot bear; it listens again")
                await asyncio.sleep(PATIENCE)

    async def _hear(self) -> None:
        async with aclosing(self.topics.carrier.listen(self._own)) as batches:
            async for batch in batches:
                self._listening.set()
                if batch and self._sockets:
                    await self._deliver(batch)

    async def _deliver(self, batch: list[Event]) -> None:
        try:
            subscribed = await self._own(reads.subscribers, self._using, {event.topic for event in batch}, self.id)
        except DatabaseError:
            logger.warning("%d events were not delivered", len(batch), exc_info=True)
            return
        for event in batch:
            for channel_id in subscribed.get(event.topic, ()):
                held = self._sockets.get(channel_id)
                if held and channel_id != event.sender and not held[0].put(event):
                    self._drop(channel_id, TOO_SLOW)

    async def _write(self, socket: Socket) -> None:
        try:
            await socket.write()
        except Exception:  # whatever a connection raises, it is over
            logger.info("Channel %s is dropped", socket.channel_id, exc_info=True)
            self._drop(socket.channel_id, BROKEN)

    def _drop(self, channel_id: str, reason: str) -> None:
        """Only that one: the others know nothing of it."""
        held = self._forget(channel_id)
        if held:
            self._later(held[1](reason))
            self._later(self._remove(channel_id))

    def _forget(self, channel_id: str) -> tuple[Socket, Drop] | None:
        held = self._sockets.pop(channel_id, None)
        if held and held[0].writer and held[0].writer is not asyncio.current_task():
            held[0].writer.cancel()
        return held

    async def _remove(self, channel_id: str) -> None:
        try:
            await self._asked(self.channels.remove_channels, [channel_id])
        except DatabaseError:
            # Its lease is renewed with the others', and then it is seen to.
            logger.warning("Channel %s was not removed", channel_id, exc_info=True)

    def _later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def quietly() -> None:
            try:
                await work
            except Exception:
                logger.warning("A channel was not closed in order", exc_info=True)

        task = asyncio.create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- leases --------------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(settings.CHANNEL_LEASE / 1000 / RENEWALS)
            try:
                await self.keep()
            except Exception:  # as above
                logger.exception("The leases of channels were not renewed")

    async def keep(self) -> None:
        """One round: renew the leases, bring back what was swept meanwhile, remove what was not, and sweep what others
        left behind."""
        if await self._own(self.channels.renew_leases, self.id) != len(self._sockets):
            await self._agree()
        await self._own(self.channels.sweep)
        await self._own(self.topics.prune_events)

    async def _agree(self) -> None:
        stored = await self._own(reads.ids_of_holder, self._using, self.id)
        gone = stored - self._sockets.keys() - self._opening
        if gone:
            await self._own(self.channels.remove_channels, sorted(gone))
        missing = self._sockets.keys() - stored
        for channel_id in await self._own(reads.closing, self._using, missing) if missing else ():
            self._drop(channel_id, CLOSED)
        for channel_id, (socket, _) in list(self._sockets.items()):
            # It may have been closed while the others were seen to.
            if channel_id not in stored and channel_id in self._sockets:
                await self._restore(socket)

    async def _restore(self, socket: Socket) -> None:
        """A process that was frozen for longer than a lease finds its channels swept, and the sockets alive."""
        channel_id = socket.channel_id
        try:
            await self._own(
                self.channels.add_channel,
                channel_id,
                socket.name,
                socket.opening_data,
                pikku_user_id=socket.user_id,
                holder=self.id,
            )
        except ChannelExistsError:
            # It is about to be swept; the next round brings it back.
            return
        for topic in list(socket.topics):
            await self._own(self.topics.subscribe, topic, channel_id)
        if channel_id not in self._sockets:
            await self._remove(channel_id)
        else:
            logger.warning("Channel %s had been swept; it is back, with its topics and without its state", channel_id)
