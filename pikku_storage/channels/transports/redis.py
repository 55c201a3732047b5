"""Through Redis's publish and subscribe. Needs the extra `redis`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from functools import lru_cache

import redis
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from redis.asyncio import Redis as AsyncRedis

from pikku_storage.channels.events import Event, parse
from pikku_storage.channels.threads import Call
from pikku_storage.channels.transports.base import Transport
from pikku_storage.conf import settings

logger = logging.getLogger(__name__)

SILENCE = 15.0
"""Seconds without a word after which either side looks whether its connection still is one."""
TIMEOUT = 5.0


class RedisTransport(Transport):
    """Events are published when the transaction commits, and lost with a line in the log if Redis is gone then."""

    lost = (redis.RedisError, OSError)

    def __init__(self, using: str) -> None:
        super().__init__(using)
        if not settings.CHANNEL_REDIS_URL:
            raise ImproperlyConfigured("CHANNEL_TRANSPORT is 'redis', and there is no CHANNEL_REDIS_URL")
        self._url = settings.CHANNEL_REDIS_URL

    def send(self, event: Event) -> None:
        """See `Transport.send`."""
        text = event.encode(self.instance)

        def publish() -> None:
            _client(self._url).publish(settings.CHANNEL_NAMESPACE, text)

        transaction.on_commit(publish, using=self.using, robust=True)

    async def _listen(self, call: Call) -> AsyncGenerator[list[Event]]:
        client = AsyncRedis.from_url(self._url, health_check_interval=SILENCE, socket_connect_timeout=TIMEOUT)
        async with client, client.pubsub() as subscription:
            await subscription.subscribe(settings.CHANNEL_NAMESPACE)
            # The answer to it, from when on everything is heard.
            await subscription.get_message(timeout=TIMEOUT)
            yield []
            while True:
                message = await subscription.get_message(ignore_subscribe_messages=True, timeout=SILENCE)
                batch = []
                while message is not None:
                    batch += _events(message["data"])
                    message = await subscription.get_message(ignore_subscribe_messages=True, timeout=0.0)
                if batch:
                    yield batch


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT)


def _events(data: bytes) -> list[Event]:
    try:
        return [Event.decode(parse(data))]
    except ValueError:
        logger.warning("Heard something that is no event on %s", settings.CHANNEL_NAMESPACE)
        return []
