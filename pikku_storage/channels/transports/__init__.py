"""How an event reaches the processes that hold sockets: one module for each way, behind one interface."""

from __future__ import annotations

from django.db import connections
from django.utils.module_loading import import_string

from pikku_storage.channels.transports.base import Transport
from pikku_storage.conf import settings

NAMES = {
    "local": "pikku_storage.channels.transports.local.LocalTransport",
    "notify": "pikku_storage.channels.transports.notify.NotifyTransport",
    "polling": "pikku_storage.channels.transports.polling.PollingTransport",
    "redis": "pikku_storage.channels.transports.redis.RedisTransport",
}
BY_VENDOR = {"postgresql": "notify"}
"""What a database has of its own; the others are asked again and again."""


def transport(using: str) -> Transport:
    """The transport that the settings name, for the database of that alias. Raises `ImportError` and
    `ImproperlyConfigured`."""
    name = settings.CHANNEL_TRANSPORT
    if name == "auto":
        name = "redis" if settings.CHANNEL_REDIS_URL else BY_VENDOR.get(connections[using].vendor, "polling")
    made: Transport = import_string(NAMES.get(name, name))(using)
    return made


__all__ = ["Transport", "transport"]
