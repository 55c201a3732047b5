"""The package's settings: `PIKKU_STORAGE = {…}` in a project's settings, read on each access so that tests can override
them."""

from __future__ import annotations

from typing import Any

from celery import current_app
from django.conf import settings as django_settings

from pikku_storage.durations import Duration, to_milliseconds

APP_LABELS = "pikku_"
"""What the labels of this package's apps begin with."""


class PikkuSettings:
    """Typed access to `PIKKU_STORAGE`. Every property documents one key."""

    def _get(self, key: str, default: Any) -> Any:
        return getattr(django_settings, "PIKKU_STORAGE", {}).get(key, default)

    def _milliseconds(self, key: str, default: Duration) -> int:
        return to_milliseconds(self._get(key, default))

    @property
    def DATABASE(self) -> str:
        """Alias of the database that holds this package's tables; `pikku_storage.db.router.PikkuRouter` sends them
        there. Default `"default"`."""
        return str(self._get("DATABASE", "default"))

    @property
    def DISPATCHER(self) -> str | None:
        """Dotted path of the class that sends messages; `None` runs every workflow inline, in the caller's process."""
        value: str | None = self._get("DISPATCHER", "pikku_storage.workflows.dispatch.CeleryDispatcher")
        return value

    @property
    def MIRROR(self) -> str | None:
        """Alias of a database that every write is repeated in, or the dotted path of a class that repeats them; `None`
        for no mirror, the default."""
        value: str | None = self._get("MIRROR", None)
        return value

    @property
    def QUEUE(self) -> str:
        """The broker queue of runs, and of steps whose function names no queue of its own. Default: the project's
        `task_default_queue`, which every worker serves unless it is told otherwise.
        """
        return str(self._get("QUEUE", None) or current_app.conf.task_default_queue)

    @property
    def LEASE(self) -> int:
        """Milliseconds a worker keeps a step or a run without renewing; a dead worker's work is taken over after it.
        Default `"60s"`."""
        return self._milliseconds("LEASE", "60s")

    @property
    def RELAY_INTERVAL(self) -> int:
        """Milliseconds between two rounds of the relay: how late a sleep or retry may be when a message was lost.
        Default `"5s"`."""
        return self._milliseconds("RELAY_INTERVAL", "5s")

    @property
    def PATIENCE(self) -> int:
        """Milliseconds after which a step whose message brought no worker is dispatched again; each further time takes
        twice as long, up to ten minutes. Default `"30s"`.
        """
        return self._milliseconds("PATIENCE", "30s")

    @property
    def STALLED_AFTER(self) -> int:
        """Milliseconds after which a run that waits for steps is looked at again. Default `"5min"`."""
        return self._milliseconds("STALLED_AFTER", "5min")

    @property
    def MESSAGE_PRIORITIES(self) -> bool:
        """Whether messages carry the priority of their run to the broker. Default `False`."""
        return bool(self._get("MESSAGE_PRIORITIES", False))

    @property
    def MAX_PAYLOAD_BYTES(self) -> int:
        """The most bytes of UTF-8 JSON that one input, result or state value may take. Default 4 MiB."""
        return int(self._get("MAX_PAYLOAD_BYTES", 4 * 1024 * 1024))


KEYS = frozenset(name for name in vars(PikkuSettings) if name.isupper())
settings = PikkuSettings()
