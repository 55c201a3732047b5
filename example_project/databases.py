"""DATABASE_URL, read into an entry of Django's DATABASES."""

from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

SUPPORTED_SCHEMES = ("sqlite", "postgres", "postgresql")

# The web server, the workers and the scheduler share one file. WAL lets them read while one writes; IMMEDIATE takes
# the write lock at BEGIN, where SQLite waits for it, and not in mid-transaction, where it can only give up.
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 30,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}


def database_from_url(url: str, *, base_dir: Path) -> dict[str, Any]:
    """The settings of the database that `url` names; a relative SQLite path counts from `base_dir`.

    Raises ImproperlyConfigured for a scheme that is not supported. The message names the scheme and never the rest of
    the URL, which may hold a password.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SUPPORTED_SCHEMES:
        named = f"has the scheme {scheme!r}" if separator else "has no scheme"
        supported = ", ".join(f"{name}://" for name in SUPPORTED_SCHEMES)
        raise ImproperlyConfigured(f"DATABASE_URL {named}; supported are {supported}.")
    try:
        config: dict[str, Any] = dict(environ.Env.db_url_config(url))
    except ValueError:
        # The parser's own message may quote the URL, so it is not chained.
        raise ImproperlyConfigured(
            "DATABASE_URL cannot be parsed; expected scheme://user:password@host:port/name."
        ) from None
    if scheme == "sqlite":
        return _with_sqlite_options(config, base_dir)
    return {"CONN_MAX_AGE": 60, "CONN_HEALTH_CHECKS": True, **config}


def _with_sqlite_options(config: dict[str, Any], base_dir: Path) -> dict[str, Any]:
    config["OPTIONS"] = {**SQLITE_OPTIONS, **config.get("OPTIONS", {})}
    if config["NAME"] != ":memory:":
        path = base_dir / config["NAME"]
        path.parent.mkdir(parents=True, exist_ok=True)
        config["NAME"] = str(path)
    return config
