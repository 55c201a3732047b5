"""The package's settings: `PIKKU_STORAGE = {…}` in a project's settings, read on each access so that tests can override
them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from celery import current_app
from django.apps import apps
from django.conf import settings as django_settings
from django.db import connections

from pikku_storage.crypto.hidden import HiddenText
from pikku_storage.durations import Duration, to_milliseconds
from pikku_storage.retry import EXPONENTIAL, RetryPolicy

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
    def AGENT_DATABASES(self) -> dict[str, str | None]:
        """By the name of an agent, the alias of the database that holds its threads and memory; `None` if it keeps
        nothing. Default `{}`: all agents are kept where the routers say."""
        given = self._get("AGENT_DATABASES", {})
        if not isinstance(given, Mapping):
            raise TypeError("it is no dictionary of aliases by the names of agents")
        unknown = sorted({str(alias) for alias in given.values() if alias is not None} - {*connections})
        if unknown:
            raise ValueError(f"DATABASES has no {', '.join(unknown)}")
        return {str(name): alias for name, alias in given.items()}

    @property
    def AGENT_MODELS(self) -> dict[str, str]:
        """By the name of a provider, the dotted path of what asks its models for judges: a callable that takes a
        `pikku_storage.agents.scoring.JudgeRequest`. Default `{}`: judges cannot grade."""
        given = self._get("AGENT_MODELS", {})
        if not isinstance(given, Mapping) or not all(isinstance(path, str) for path in given.values()):
            raise TypeError("it is no dictionary of dotted paths by the names of providers")
        return {str(name): path for name, path in given.items()}

    @property
    def AUDIT_SINK(self) -> str | None:
        """Dotted path of what is called with each `pikku_storage.auditing.AuditEvent`; `None` keeps none. By default
        they go into the table of `pikku_storage.audit`, and without that app to the logger of the same name."""
        is_kept = apps.is_installed("pikku_storage.audit")
        default = "pikku_storage.audit.sinks.store" if is_kept else "pikku_storage.auditing.log_event"
        value: str | None = self._get("AUDIT_SINK", default)
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
    def CONSOLE_MODEL_PERMISSIONS(self) -> bool:
        """Whether the console asks for Django's permissions of a model as well as for the scope. Default `False`: the
        scope is enough."""
        return bool(self._get("CONSOLE_MODEL_PERMISSIONS", False))

    @property
    def DATABASE(self) -> str:
        """Alias of the database that holds this package's tables; `pikku_storage.db.router.PikkuRouter` sends them
        there. Default `"default"`."""
        return str(self._get("DATABASE", "default"))

    @property
    def DEPLOYMENT_ENDPOINT(self) -> str | None:
        """The address under which other services reach this process, up to and without `/remote/rpc/`. Default `None`:
        it is not announced."""
        value = self._get("DEPLOYMENT_ENDPOINT", None)
        if value is not None and not isinstance(value, str):
            raise TypeError("an address is a text")
        return value or None

    @property
    def DEPLOYMENT_HEARTBEAT(self) -> int:
        """Milliseconds between two heartbeats of a deployment. Default `"10s"`."""
        return self._milliseconds("DEPLOYMENT_HEARTBEAT", "10s")

    @property
    def DEPLOYMENT_TTL(self) -> int:
        """Milliseconds after its last heartbeat until which a deployment counts as up. Default `"30s"`."""
        return self._milliseconds("DEPLOYMENT_TTL", "30s")

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
    def REMOTE_SECRET(self) -> str | None:
        """What the sessions of calls between services are sealed with; at least 32 characters, the same in all of them.
        Default `None`: no call is signed, and none is let in."""
        return _secret(self._get("REMOTE_SECRET", None))

    @property
    def REMOTE_TIMEOUT(self) -> int:
        """Milliseconds that a call of another service waits for its answer. Default `"30s"`."""
        return self._milliseconds("REMOTE_TIMEOUT", "30s")

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
    def JWT_SECRETS(self) -> dict[str, str]:
        """By their ids, the secrets of tokens that processes give each other, and of signed addresses; at least 32
        characters each. The first one signs, the others are still believed. Default `{}`."""
        given = self._get("JWT_SECRETS", {})
        if not isinstance(given, Mapping):
            raise TypeError("it is no dictionary of secrets by their ids")
        return {str(key): _secret(text) or HiddenText() for key, text in given.items()}

    @property
    def QUEUE_IDENTITY_SECRET(self) -> str | None:
        """What the acting users of Celery messages are signed with; at least 32 characters, the same in every process.
        Default `None`: they are not sent."""
        return _secret(self._get("QUEUE_IDENTITY_SECRET", None))

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

    @property
    def WEBHOOK_ALLOWED_HOSTS(self) -> tuple[str, ...]:
        """Hosts (`*.example.com` is any host below it) and networks (`10.1.0.0/16`) that webhooks may be sent to
        although their addresses are not public. Default: none."""
        return _texts(self._get("WEBHOOK_ALLOWED_HOSTS", ()))

    @property
    def WEBHOOK_QUEUE(self) -> str:
        """The broker queue of webhooks. Default: what `QUEUE` says."""
        return str(self._get("WEBHOOK_QUEUE", None) or self.QUEUE)

    @property
    def WEBHOOK_RETRIES(self) -> int:
        """How often a webhook that failed is tried again. Default 3."""
        retries = self._get("WEBHOOK_RETRIES", 3)
        if type(retries) is not int or retries < 0:
            raise ValueError("it is a whole number of at least 0")
        return retries

    @property
    def WEBHOOK_RETRY_DELAY(self) -> str:
        """How long it waits for that: a duration, or `"exponential"`, from a second to ten minutes. Default
        `"exponential"`."""
        given = self._get("WEBHOOK_RETRY_DELAY", EXPONENTIAL)
        return str(RetryPolicy.of(None, given).delay)

    @property
    def WEBHOOK_SECRET(self) -> str | None:
        """Name of the secret that webhooks are signed with unless they are given another. Default `None`: they are not
        signed."""
        value: str | None = self._get("WEBHOOK_SECRET", None)
        return value

    @property
    def WEBHOOK_SIGNATURE_HEADER(self) -> str:
        """The header of the signature. Default `"X-Pikku-Signature"`."""
        return str(self._get("WEBHOOK_SIGNATURE_HEADER", "X-Pikku-Signature"))

    @property
    def WEBHOOK_TIMEOUT(self) -> int:
        """Milliseconds that an attempt may take, from the connection to the end of the answer. Default `"30s"`."""
        return self._milliseconds("WEBHOOK_TIMEOUT", "30s")


def _texts(given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        raise TypeError("a list of texts, not a text")
    return tuple(str(each) for each in given)


def _passphrase(given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise TypeError("a passphrase or secret is a text")
    return given or None


def _secret(given: object) -> HiddenText | None:
    text = _passphrase(given)
    return None if text is None else HiddenText(text)


def _version(given: object) -> int:
    # JSON, and so the environment, has texts for keys.
    text = str(given)
    if isinstance(given, bool) or not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ValueError("a key version is a whole number from 1")
    return int(text)


KEYS = frozenset(name for name in vars(PikkuSettings) if name.isupper())
settings = PikkuSettings()
