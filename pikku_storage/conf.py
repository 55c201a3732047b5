"""The package's settings: `PIKKU_STORAGE = {…}` in a project's settings, read on each access so that tests can override
them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from celery import current_app
from django.conf import settings as django_settings

from pikku_storage.durations import Duration, to_milliseconds

APP_LABELS = "pikku_"
"""What the labels of this package's apps begin with."""


class SecretFormat(StrEnum):
    """What `SECRET_FORMAT` may be."""

    BOUND = "bound"
    COMPATIBLE = "compatible"
    BOUND_ONLY = "bound-only"


class PikkuSettings:
    """Typed access to `PIKKU_STORAGE`. Every property documents one key."""

    def _get(self, key: str, default: Any) -> Any:
        return getattr(django_settings, "PIKKU_STORAGE", {}).get(key, default)

    def _milliseconds(self, key: str, default: Duration) -> int:
        return to_milliseconds(self._get(key, default))

    @property
    def AUDIT_SINK(self) -> str | None:
        """Dotted path of what is called with each `pikku_storage.auditing.AuditEvent`; `None` keeps none. By default
        they go to the logger `pikku_storage.audit`."""
        value: str | None = self._get("AUDIT_SINK", "pikku_storage.auditing.log_event")
        return value

    @property
    def CHANNEL_LEASE(self) -> int:
        """Milliseconds that a channel is believed to be there without a word from the process that holds its
        connection. Default `"60s"`."""
        return self._milliseconds("CHANNEL_LEASE", "60s")

    @property
    def CHANNEL_NAMESPACE(self) -> str:
        """What events are published under on PostgreSQL and Redis, where projects may share a server. Default
        `"pikku_eventhub"`."""
        name = str(self._get("CHANNEL_NAMESPACE", "pikku_eventhub"))
        if not 0 < len(name.encode()) <= 63:
            raise ValueError("a name has 1 to 63 bytes")
        return name

    @property
    def CHANNEL_POLL_INTERVAL(self) -> int:
        """Milliseconds between two looks for events, where they travel by a table. Default `"250ms"`."""
        return self._milliseconds("CHANNEL_POLL_INTERVAL", "250ms")

    @property
    def CHANNEL_QUEUE_SIZE(self) -> int:
        """How many events may wait for one slow socket before it is dropped. Default 100."""
        size = int(self._get("CHANNEL_QUEUE_SIZE", 100))
        if size < 1:
            raise ValueError("at least one event waits")
        return size

    @property
    def CHANNEL_REDIS_URL(self) -> str | None:
        """The Redis that events travel by. Default `None`."""
        return self._get("CHANNEL_REDIS_URL", None) or None

    @property
    def CHANNEL_TRANSPORT(self) -> str:
        """How events travel between processes: `"notify"`, `"redis"`, `"polling"`, `"local"`, or the dotted path of a
        transport. Default `"auto"`: by Redis if there is a `CHANNEL_REDIS_URL`, or else as the database can."""
        return str(self._get("CHANNEL_TRANSPORT", "auto"))

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
    def HTTP_AUTHENTICATORS(self) -> tuple[str, ...]:
        """Dotted paths of callables that are asked, in order and before the session, who sends a request to
        `pikku_storage.workflows.urls`: `request -> user or None`. Default: none."""
        paths = self._get("HTTP_AUTHENTICATORS", ())
        if isinstance(paths, str):
            raise TypeError("a list of dotted paths, not a text")
        return tuple(paths)

    @property
    def HTTP_RUN_WAIT(self) -> int:
        """Milliseconds that a request to `<name>/run` waits for the run's end. Default `"30s"`."""
        return self._milliseconds("HTTP_RUN_WAIT", "30s")

    @property
    def HTTP_STREAM_LIFE(self) -> int:
        """Milliseconds after which a stream of a run is closed, and the client asks again. Default `"5min"`."""
        return self._milliseconds("HTTP_STREAM_LIFE", "5min")

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

    @property
    def USER_ORGANISATION(self) -> str | None:
        """Dotted path of a callable that names the organisation in whose name a user acts: `user -> id or None`. What
        the organisation owns is then theirs too. Default `None`: there are no organisations."""
        value: str | None = self._get("USER_ORGANISATION", None)
        return value

    @property
    def SECRET_KEK(self) -> str | None:
        """The passphrase that new secrets, credentials and encrypted fields are sealed under. Default `None`: nothing
        can be sealed."""
        return _passphrase(self._get("SECRET_KEK", None))

    @property
    def SECRET_KEK_VERSION(self) -> int:
        """The version of `SECRET_KEK`; count it up with each new passphrase. Default 1."""
        return _version(self._get("SECRET_KEK_VERSION", 1))

    @property
    def SECRET_PREVIOUS_KEKS(self) -> dict[int, str]:
        """Earlier passphrases by their version, which stored rows may still need. Default `{}`."""
        given = self._get("SECRET_PREVIOUS_KEKS", {})
        if not isinstance(given, Mapping):
            raise TypeError("it is no dictionary of passphrases by their version")
        return {_version(version): _passphrase(text) or "" for version, text in given.items()}

    @property
    def KEY_PROVIDER(self) -> str:
        """Dotted path of the class that knows the passphrases. Default: the one that reads the three settings above."""
        return str(self._get("KEY_PROVIDER", "pikku_storage.secrets.keys.SettingsKeys"))

    @property
    def SECRET_FORMAT(self) -> SecretFormat:
        """How secrets and credentials are sealed: `"bound"` to their place, `"compatible"` with the TypeScript
        packages, or `"bound-only"`, which also refuses to open what is not bound. Default `"bound"`."""
        return SecretFormat(self._get("SECRET_FORMAT", "bound"))

    @property
    def SECRET_AUDIT(self) -> bool:
        """Whether writes, deletions and rotations of secrets and credentials are recorded. Default `True`."""
        return bool(self._get("SECRET_AUDIT", True))

    @property
    def SECRET_AUDIT_READS(self) -> bool:
        """Whether reads are recorded too. Default `False`."""
        return bool(self._get("SECRET_AUDIT_READS", False))

    @property
    def SECRET_ALLOWED_HOSTS(self) -> dict[str, list[str]]:
        """By the name of a secret, the hosts that it may be sent to; `*.example.com` is any host below it. Default
        `{}`."""
        given = self._get("SECRET_ALLOWED_HOSTS", {})
        if not isinstance(given, Mapping) or any(isinstance(hosts, str) for hosts in given.values()):
            raise TypeError("it is no dictionary of lists of hosts")
        return {str(key): [str(host) for host in hosts] for key, hosts in given.items()}

    @property
    def SECRET_STRICT_HOSTS(self) -> bool:
        """Whether a secret without allowed hosts may be sent nowhere. Default `False`: anywhere."""
        return bool(self._get("SECRET_STRICT_HOSTS", False))


def _passphrase(given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise TypeError("a passphrase is a text")
    return given or None


def _version(given: object) -> int:
    # JSON, and so the environment, has texts for keys.
    text = str(given)
    if isinstance(given, bool) or not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError("a key version is a whole number from 1")
    return int(text)


KEYS = frozenset(name for name in vars(PikkuSettings) if name.isupper())
settings = PikkuSettings()
