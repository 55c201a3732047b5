"""Through PostgreSQL's NOTIFY: at once, and with the transaction that publishes."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError
from django.db import connections

from pikku_storage.channels.events import Event, parse
from pikku_storage.channels.models import ChannelEvent
from pikku_storage.channels.threads import Call
from pikku_storage.channels.transports.base import Transport
from pikku_storage.conf import settings
from pikku_storage.ids import new_id

logger = logging.getLogger(__name__)

MOST_BYTES = 7999
"""PostgreSQL refuses a longer payload."""
SILENCE = 15.0
"""Seconds without a word after which the listener looks whether its connection still is one."""
_NOT_FOR_LISTENING = ("cursor_factory", "context", "prepare_threshold")


class NotifyTransport(Transport):
    """The payload is the event, as the contract's services send it. One that is too long is a row, which the payload
    names."""

    lost = (psycopg.Error, DatabaseError, OSError)

    def __init__(self, using: str) -> None:
        super().__init__(using)
        if connections[using].vendor != "postgresql":
            raise ImproperlyConfigured(f"CHANNEL_TRANSPORT is 'notify', and DATABASES[{using!r}] is not PostgreSQL")

    def send(self, event: Event) -> None:
        """See `Transport.send`."""
        text = event.encode(self.instance)
        if len(text.encode()) > MOST_BYTES:
            event_id = new_id()
            ChannelEvent.objects.using(self.using).add(event_id, event)
            text = f'{{"instanceId":"{self.instance}","event":"{event_id}"}}'
        with connections[self.using].cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, %s)", [settings.CHANNEL_NAMESPACE, text])

    async def _listen(self, call: Call) -> AsyncGenerator[list[Event]]:
        async with await psycopg.AsyncConnection.connect(**self._parameters(), autocommit=True) as connection:
            name = psycopg.sql.Identifier(settings.CHANNEL_NAMESPACE)
            await connection.execute(psycopg.sql.SQL("LISTEN {}").format(name))
            yield []
            while True:
                heard = [each.payload async for each in connection.notifies(timeout=SILENCE, stop_after=1)]
                if heard:
                    yield await self._events(heard, call)
                else:
                    await connection.execute("SELECT 1")

    def _parameters(self) -> dict[str, Any]:
        parameters = connections[self.using].get_connection_params()
        parameters = {name: value for name, value in parameters.items() if name not in _NOT_FOR_LISTENING}
        # A server that vanished without a word is noticed within a minute, and not within hours.
        return {"keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3, **parameters}

    async def _events(self, payloads: Iterable[str], call: Call) -> list[Event]:
        messages = []
        for payload in payloads:
            try:
                messages.append(parse(payload))
            except ValueError:
                logger.warning("Heard something that is no event on %s", settings.CHANNEL_NAMESPACE)
        ids = [message["event"] for message in messages if "event" in message]
        kept = await call(ChannelEvent.objects.using(self.using).read, ids) if ids else {}
        events = [kept.get(message["event"]) if "event" in message else _event(message) for message in messages]
        return [event for event in events if event is not None]


def _event(message: dict[str, Any]) -> Event | None:
    try:
        return Event.decode(message)
    except ValueError:
        logger.warning("Heard something that is no event on %s", settings.CHANNEL_NAMESPACE)
        return None
