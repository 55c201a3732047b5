"""DATABASE_URL, read into an entry of Django's DATABASES."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

SUPPORTED_SCHEMES = ("sqlite", "postgres", "postgresql", "mysql", "mongodb", "mongodb+srv", "djongo")
MONGODB_ENGINE = "django_mongodb_backend"
DJONGO_ENGINE = "pikku_storage.db.backends.djongo"
PIKKU = "pikku"
"""Alias of the database that PIKKU_DATABASE_URL names."""

# The web server, the workers and the scheduler share one file. WAL lets them read while one writes; IMMEDIATE takes
# the write lock at BEGIN, where SQLite waits for it, and not in mid-transaction, where it can only give up.
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 30,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}

# A connection that is kept costs no handshake each time, and one that broke meanwhile is replaced before it is used.
SERVER_SETTINGS = {"CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True}

# After its fifth use on a connection a statement is prepared: the server parses it no more. That takes values bound by
# the server. Not behind a pooler that may change the connection with each transaction (PgBouncer's
# `pool_mode = transaction`): there, append `?prepare_threshold=none&disable_server_side_cursors=true` to the URL.
POSTGRESQL_OPTIONS = {"server_side_binding": True, "prepare_threshold": 5}

# What Django takes anyway, said because the package needs it: every character of Unicode, and statements that see what
# others have committed.
MARIADB_OPTIONS = {"charset": "utf8mb4", "isolation_level": "read committed"}

# In a query, where the parser of URLs leaves them as text. Only for the names above: a driver's option may be a word.
_WORDS = {"true": True, "false": False, "none": None}
_NAMES_WITH_WORDS = {*SERVER_SETTINGS, *POSTGRESQL_OPTIONS, "DISABLE_SERVER_SIDE_CURSORS"}


def databases_from_env(env: environ.Env, *, base_dir: Path, default: str | None = None) -> dict[str, dict[str, Any]]:
    """DATABASES: what DATABASE_URL names and, if there is a PIKKU_DATABASE_URL, a database of their own for runs."""
    url = env.str("DATABASE_URL") if default is None else env.str("DATABASE_URL", default)
    databases = {"default": database_from_url(url, base_dir=base_dir)}
    own = env.str("PIKKU_DATABASE_URL", "")
    if own:
        databases[PIKKU] = database_from_url(own, base_dir=base_dir, variable="PIKKU_DATABASE_URL")
    return databases


def database_from_url(url: str, *, base_dir: Path, variable: str = "DATABASE_URL") -> dict[str, Any]:
    """The settings of the database that `url`, the value of `variable`, names; a relative SQLite path counts from
    `base_dir`.

    The query of the URL overrides single settings and options: `?conn_max_age=0&prepare_threshold=none`.

    Raises ImproperlyConfigured for a scheme that is not supported. The message names the scheme and never the rest of
    the URL, which may hold a password.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SUPPORTED_SCHEMES:
        named = f"has the scheme {scheme!r}" if separator else "has no scheme"
        supported = ", ".join(f"{name}://" for name in SUPPORTED_SCHEMES)
        raise ImproperlyConfigured(f"{variable} {named}; supported are {supported}.")
    if scheme.startswith("mongodb"):
        return _mongodb(url, variable, MONGODB_ENGINE)
    if scheme == "djongo":
        return _mongodb(url.replace(scheme, "mongodb", 1), variable, DJONGO_ENGINE)
    try:
        config: dict[str, Any] = dict(environ.Env.db_url_config(url))
    except ValueError:
        # The parser's own message may quote the URL, so it is not chained.
        raise ImproperlyConfigured(
            f"{variable} cannot be parsed; expected scheme://user:password@host:port/name."
        ) from None
    if scheme == "sqlite":
        return _with_sqlite_options(config, base_dir)
    return _with_server_options(config, MARIADB_OPTIONS if scheme == "mysql" else POSTGRESQL_OPTIONS)


def _with_sqlite_options(config: dict[str, Any], base_dir: Path) -> dict[str, Any]:
    config["OPTIONS"] = {**SQLITE_OPTIONS, **config.get("OPTIONS", {})}
    if config["NAME"] != ":memory:":
        path = base_dir / config["NAME"]
        path.parent.mkdir(parents=True, exist_ok=True)
        config["NAME"] = str(path)
    return config


def _with_server_options(config: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    options = {**defaults, **config.pop("OPTIONS", {})}
    return _with_words({**SERVER_SETTINGS, **config, "OPTIONS": _with_words(options)})


def _mongodb(url: str, variable: str, backend: str) -> dict[str, Any]:
    # The driver reads the URL itself: several hosts, a replica set, TLS, time limits.
    name = urlsplit(url).path.strip("/")
    if not name:
        raise ImproperlyConfigured(f"{variable} names no database; expected mongodb://user:password@host:port/name.")
    return {"ENGINE": backend, "HOST": url, "NAME": name}


def _with_words(config: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _WORDS.get(value.lower(), value) if name in _NAMES_WITH_WORDS and isinstance(value, str) else value
        for name, value in config.items()
    }
