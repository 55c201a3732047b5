"""Within one process, for development and tests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from django.db import transaction

from pikku_storage.channels.events import Event
from pikku_storage.channels.threads import Call
from pikku_storage.channels.transports.base import Transport

logger = logging.getLogger(__name__)

MOST_WAITING = 1000
_listeners: set[tuple[asyncio.AbstractEventLoop, asyncio.Queue[Event]]] = set()


class LocalTransport(Transport):
    """Events are heard of by hubs of the same process, when the transaction commits."""

    lost = ()

    def send(self, event: Event) -> None:
        """See `Transport.send`."""
        transaction.on_commit(lambda: _put(event), using=self.using)

    async def _listen(self, call: Call) -> AsyncGenerator[list[Event]]:
        waiting: asyncio.Queue[Event] = asyncio.Queue(MOST_WAITING)
        listener = asyncio.get_running_loop(), waiting
        _listeners.add(listener)
        try:
            yield []
            while True:
                batch = [await waiting.get()]
                while not waiting.empty():
                    batch.append(waiting.get_nowait())
                yield batch
        finally:
            _listeners.discard(listener)


def _put(event: Event) -> None:
    for loop, waiting in list(_listeners):
        loop.call_soon_threadsafe(_put_there, waiting, event)


def _put_there(waiting: asyncio.Queue[Event], event: Event) -> None:
    try:
        waiting.put_nowait(event)
    except asyncio.QueueFull:
        logger.warning("An event is lost: %d others wait", MOST_WAITING)
