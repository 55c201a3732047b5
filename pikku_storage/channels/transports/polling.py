"""Through a table that every listener reads again and again. It needs nothing but the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

from django.db import Error as DatabaseError

from pikku_storage.channels.events import Event
from pikku_storage.channels.models import ChannelEvent
from pikku_storage.channels.threads import Call
from pikku_storage.channels.transports.base import Transport
from pikku_storage.conf import settings
from pikku_storage.ids import new_id

WINDOW = timedelta(seconds=5)
"""How long after its time an event is still looked for. Transactions commit out of order, so the newest event that was
seen says nothing about older ones."""


class PollingTransport(Transport):
    """An event is heard of within `CHANNEL_POLL_INTERVAL`. One whose transaction takes longer than `WINDOW` from there
    to its commit is not heard of."""

    lost = (DatabaseError,)

    def send(self, event: Event) -> None:
        """See `Transport.send`."""
        ChannelEvent.objects.using(self.using).add(new_id(), event)

    async def _listen(self, call: Call) -> AsyncGenerator[list[Event]]:
        rows = ChannelEvent.objects.using(self.using)
        seen = set(await call(rows.ids_of_late, WINDOW))
        yield []
        while True:
            await asyncio.sleep(settings.CHANNEL_POLL_INTERVAL / 1000)
            ids = await call(rows.ids_of_late, WINDOW)
            new = [event_id for event_id in ids if event_id not in seen]
            if new:
                events = await call(rows.read, new)
                yield [events[event_id] for event_id in new if event_id in events]
            seen = set(ids)
